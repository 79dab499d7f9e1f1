"""Slack's mrkdwn: one star for bold, `<url|label>` for links, three characters escaped.

`rich_blocks` shows what it makes of headings, rules and code as Slack's own blocks.
"""

import re
from collections.abc import Iterator
from html import escape, unescape
from typing import Any

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup.inline import Node, parse, text_of
from hermes.streaming.markup.plain import FencedDialect

_SAFE_URL = re.compile(r"(?:https?://|mailto:|tel:)[^\s|<>]+$", re.IGNORECASE)
_SECTION = 3_000
_FENCE = re.compile(r"^```\n?(.*?)\n?```$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^(\*[^*\n]+\*|———)$", re.MULTILINE)
_STYLES = {"strong": "*", "em": "_", "strike": "~"}


class SlackMrkdwn(FencedDialect):
    bullet = "•"
    rule = "———"

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        escapes = 4 * markdown.count("&") + 3 * markdown.count("<") + 5 * markdown.count(">")
        # A heading gets stars.
        return super().weight(markdown, unit) + escapes + markdown.count("#")

    def _heading(self, text: str) -> str:
        bare = self._text(text_of(parse(text).nodes)).strip()
        return f"*{bare}*" if bare else ""

    def _code(self, text: str, language: str) -> str:  # noqa: ARG002 (Slack knows none)
        return super()._code(text, "")

    def _node(self, node: Node) -> str:
        if node.kind in ("link", "image"):
            return self._link(node.text or text_of(node.children), node.url)
        inner = super()._node(node)
        mark = _STYLES.get(node.kind, "")
        if node.kind == "code":
            inner, mark = inner.replace("`", "'"), "`"
        return f"{mark}{inner}{mark}" if inner.strip() else inner

    def _link(self, label: str, url: str) -> str:
        shown, target = self._text(label.replace("|", "/")), self._text(url)
        if _SAFE_URL.match(url):
            return f"<{target}|{shown}>" if label.strip() and label != url else f"<{target}>"
        return shown if not url or label == url else f"{shown} ({target})"

    def _text(self, text: str) -> str:
        return escape(text, quote=False)


DIALECT = SlackMrkdwn()


def rich_blocks(text: str, most: int) -> list[dict[str, Any]]:
    """Return a text in mrkdwn as blocks: code, headings and dividers as such, as far as they go."""
    blocks, rest = list[dict[str, Any]](), ""
    for number, part in enumerate(_FENCE.split(text)):
        code = number % 2 == 1
        for line in [part] if code else _LINE.split(part):
            if len(blocks) >= most - 2:
                rest += f"```\n{line}\n```" if code else line
            else:
                blocks += _blocks(line, code=code)
    return [*blocks, *sections(rest.strip("\n"), "mrkdwn")]


def _blocks(line: str, *, code: bool) -> Iterator[dict[str, Any]]:
    if code:
        shown = {"type": "text", "text": unescape(line.strip("\n")) or " "}
        shape = {"type": "rich_text_preformatted", "elements": [shown]}
        yield {"type": "rich_text", "elements": [shape]}
    elif line == SlackMrkdwn.rule:
        yield {"type": "divider"}
    elif _LINE.fullmatch(line):
        header = {"type": "plain_text", "text": unescape(line.strip("*"))[:150]}
        yield {"type": "header", "text": header}
    else:
        yield from sections(line.strip("\n"), "mrkdwn")


def sections(text: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield a text as sections, which take 3,000 characters each; cut between lines."""
    while text.strip():
        cut = len(text) if len(text) <= _SECTION else text.rfind("\n", 1, _SECTION)
        cut = cut if cut > 0 else _SECTION
        shown = text[:cut] if kind == "mrkdwn" else unescape(text[:cut])
        yield {"type": "section", "text": {"type": kind, "text": shown}}
        text = text[cut:].lstrip("\n")
