"""Telegram's HTML: the few tags it knows, and nothing that it refuses.

Every run of text carries its own complete set of tags, so they always nest.
Code stands outside all styles and quotes do not nest, as Telegram wants it.
Headings are bold, tables are aligned in `<pre>`, links with a scheme that
Telegram does not open are written out.
"""

import re
from collections.abc import Iterator
from html import escape, unescape

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import scan
from hermes.streaming.markup.inline import Node, parse, text_of
from hermes.streaming.markup.plain import plain, weight
from hermes.streaming.units import clean, is_blank, length

__all__ = ["plain", "render", "visible_length", "weight"]

_TAG = re.compile(r"<[^>]*>")
_SAFE_URL = re.compile(r"(?:https?://[^\s/]|tg://|mailto:[^\s@]+@|tel:\+?\d)[^\s]*$", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,40}$")
_STYLES = {"strong": "b", "em": "i", "strike": "s", "spoiler": "tg-spoiler"}


def render(markdown: str) -> str:
    """Return `markdown` as Telegram HTML; never empty unless nothing can be seen."""
    markdown = clean(markdown)
    html = "\n".join(_block(block) for block in scan.read(markdown)).strip("\n").rstrip()
    return escape(markdown.strip(), quote=False) if is_blank(_visible(html)) else html


def visible_length(rendered: str, unit: LengthUnit) -> int:
    return length(_visible(rendered), unit)


def _visible(html: str) -> str:
    return unescape(_TAG.sub("", html))


def _block(block: scan.Block) -> str:
    match block:
        case scan.QuoteBlock(blocks):
            return "\n".join(_quote(blocks))
        case scan.Code(language=language, text=text):
            return _pre(text, language)
        case scan.Table():
            return _pre(scan.lay_out(block), "")
        case _:
            return _line(block)


def _line(block: scan.Block) -> str:
    match block:
        case scan.Text(text):
            return _inline(text)
        case scan.Heading(text):
            return _inline(text, ("b",))
        case scan.Item():
            mark = "•" if block.marker in "-*+" else block.marker
            if block.done is not None:
                mark = "☑" if block.done else "☐"
            return f"{block.indent}{mark} {_inline(block.text)}"
        case scan.Rule():
            return "———"
        case _:
            return ""


def _quote(blocks: tuple[scan.Block, ...]) -> Iterator[str]:
    """Yield one quote per run of lines; code blocks and tables stand between them."""
    lines: list[str] = []
    for block in _flat(blocks):
        if not isinstance(block, scan.Code | scan.Table):
            lines.append(_line(block))
            continue
        yield from _quoted(lines)
        lines = []
        yield _block(block)
    yield from _quoted(lines)


def _quoted(lines: list[str]) -> Iterator[str]:
    inner = "\n".join(lines)
    if is_blank(_visible(inner)):
        if lines:
            yield inner
        return
    yield f"<blockquote>{inner}</blockquote>"


def _flat(blocks: tuple[scan.Block, ...]) -> Iterator[scan.Block]:
    for block in blocks:
        if isinstance(block, scan.QuoteBlock):
            yield from _flat(block.blocks)
        else:
            yield block


def _pre(text: str, language: str) -> str:
    body = escape(text, quote=False)
    if is_blank(text):
        return body
    if _LANGUAGE.match(language):
        return f'<pre><code class="language-{language}">{body}</code></pre>'
    return f"<pre>{body}</pre>"


def _inline(text: str, styles: tuple[str, ...] = ()) -> str:
    return "".join(_nodes(parse(text).nodes, styles))


def _nodes(nodes: tuple[Node, ...], styles: tuple[str, ...]) -> Iterator[str]:
    for node in nodes:
        match node.kind:
            case "text":
                yield _styled(escape(node.text, quote=False), styles)
            case "code":
                code = escape(node.text, quote=False)
                yield code if is_blank(node.text) else f"<code>{code}</code>"
            case "link" | "image":
                yield _styled(_link(node), styles)
            case _:
                tag = _STYLES[node.kind]
                yield from _nodes(node.children, styles if tag in styles else (*styles, tag))


def _styled(html: str, styles: tuple[str, ...]) -> str:
    if not html.strip():
        return html
    opening = "".join(f"<{tag}>" for tag in styles)
    closing = "".join(f"</{tag}>" for tag in reversed(styles))
    return f"{opening}{html}{closing}"


def _link(node: Node) -> str:
    label = node.text or text_of(node.children)
    if not label.strip():
        label = node.url
    if _SAFE_URL.match(node.url) and not is_blank(label):
        return f'<a href="{escape(node.url)}">{escape(label, quote=False)}</a>'
    written = label if label == node.url or not node.url else f"{label} ({node.url})"
    return escape(written, quote=False)
