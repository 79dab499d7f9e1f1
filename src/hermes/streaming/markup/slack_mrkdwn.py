"""Slack's mrkdwn: one star for bold, `<url|label>` for links, three characters escaped."""

import re
from collections.abc import Iterator
from html import escape

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import scan
from hermes.streaming.markup.inline import Node, parse, text_of
from hermes.streaming.markup.plain import plain
from hermes.streaming.units import clean, is_blank, length

__all__ = ["plain", "render", "visible_length", "weight"]

_SAFE_URL = re.compile(r"(?:https?://|mailto:|tel:)[^\s|<>]+$", re.IGNORECASE)
_STYLES = {"strong": "*", "em": "_", "strike": "~"}


def render(markdown: str) -> str:
    markdown = clean(markdown)
    text = "\n".join(_block(block) for block in scan.read(markdown)).strip("\n").rstrip()
    return escape(markdown.strip(), quote=False) if is_blank(text) else text


def visible_length(rendered: str, unit: LengthUnit) -> int:
    return length(rendered, unit)


def weight(markdown: str, unit: LengthUnit) -> int:
    escapes = 4 * markdown.count("&") + 3 * markdown.count("<") + 5 * markdown.count(">")
    # A row of a table has a `|`, a fence that is left open needs closing, a heading gets stars.
    marks = (scan.ROOM + 2) * markdown.count("|") + markdown.count("#")
    fences = markdown.count("```") + markdown.count("~~~")
    return length(markdown, unit) + escapes + marks + 9 * fences


def _block(block: scan.Block) -> str:
    match block:
        case scan.Text(text):
            return _inline(text)
        case scan.Heading(text):
            bare = escape(text_of(parse(text).nodes), quote=False).strip()
            return f"*{bare}*" if bare else ""
        case scan.Item():
            mark = "•" if block.marker in "-*+" else block.marker
            box = "" if block.done is None else ("☑ " if block.done else "☐ ")
            return f"{block.indent}{mark} {box}{_inline(block.text)}"
        case scan.QuoteBlock(blocks):
            lines = "\n".join(_block(inner) for inner in blocks)
            return "\n".join(f"> {line}".rstrip() for line in lines.split("\n"))
        case scan.Code(text=text):
            return _fenced(text)
        case scan.Table():
            return _fenced(scan.lay_out(block))
        case scan.Rule():
            return "———"


def _fenced(text: str) -> str:
    body = escape(text.replace("```", "'''"), quote=False)
    return f"```\n{body}\n```"


def _inline(text: str) -> str:
    return "".join(_nodes(parse(text).nodes))


def _nodes(nodes: tuple[Node, ...]) -> Iterator[str]:
    for node in nodes:
        inner = escape(node.text, quote=False) if node.text else "".join(_nodes(node.children))
        match node.kind:
            case "code":
                code = inner.replace("`", "'")
                yield f"`{code}`" if code.strip() else code
            case "link" | "image":
                yield _link(node)
            case "strong" | "em" | "strike" if inner.strip():
                mark = _STYLES[node.kind]
                yield f"{mark}{inner}{mark}"
            case _:
                yield inner


def _link(node: Node) -> str:
    label = node.text or text_of(node.children)
    shown = escape(label.replace("|", "/"), quote=False)
    if _SAFE_URL.match(node.url):
        url = escape(node.url, quote=False)
        return f"<{url}|{shown}>" if label.strip() and label != node.url else f"<{url}>"
    if not node.url or label == node.url:
        return shown
    return f"{shown} ({escape(node.url, quote=False)})"
