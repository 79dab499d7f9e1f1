"""Telegram's HTML: the few tags it knows, and nothing that it refuses.

Every run of text carries its own complete set of tags, so they always nest.
Code stands outside all styles and quotes do not nest, as Telegram wants it.
Headings are bold, tables are aligned in `<pre>` or, if wide, lists, links with a scheme that
Telegram does not open are written out.
"""

import re
from collections.abc import Iterator
from html import escape, unescape
from itertools import groupby

from hermes.streaming.markup import scan
from hermes.streaming.markup.inline import Node, parse, text_of
from hermes.streaming.markup.plain import Dialect
from hermes.streaming.units import is_blank

_TAG = re.compile(r"<[^>]*>")
_SAFE_URL = re.compile(r"(?:https?://[^\s/]|tg://|mailto:[^\s@]+@|tel:\+?\d)[^\s]*$", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,40}$")
_STYLES = {"strong": "b", "em": "i", "strike": "s", "spoiler": "tg-spoiler"}


class TelegramHtml(Dialect):
    bullet = "•"
    boxes = ("☐", "☑")
    rule = "———"

    def _visible(self, rendered: str) -> str:
        return unescape(_TAG.sub("", rendered))

    def _heading(self, text: str) -> str:
        return self._styled(parse(text).nodes, ("b",))

    def _records(self, text: str) -> str:
        parts = (self._text(record).partition("\n") for record in text.split("\n\n"))
        return "\n\n".join(
            f"{_wrapped(first, ('b',))}{newline}{rest}" for first, newline, rest in parts
        )

    def _marker(self, item: scan.Item) -> str:
        return super()._marker(item) if item.done is None else self.boxes[item.done]

    def _quote(self, blocks: tuple[scan.Block, ...]) -> str:
        """Return one quote per run of lines; code blocks and tables stand between them."""
        parts: list[str] = []
        for apart, run in groupby(_flat(blocks), lambda b: isinstance(b, scan.Code | scan.Table)):
            inner = self._blocks(run)
            bare = apart or is_blank(self._visible(inner))
            parts.append(inner if bare else f"<blockquote>{inner}</blockquote>")
        return "\n".join(parts)

    def _code(self, text: str, language: str) -> str:
        body = self._text(text)
        if is_blank(text):
            return body
        if _LANGUAGE.match(language):
            return f'<pre><code class="language-{language}">{body}</code></pre>'
        return f"<pre>{body}</pre>"

    def _nodes(self, nodes: tuple[Node, ...]) -> str:
        return self._styled(nodes, ())

    def _styled(self, nodes: tuple[Node, ...], tags: tuple[str, ...]) -> str:
        return "".join(self._tagged(node, tags) for node in nodes)

    def _tagged(self, node: Node, tags: tuple[str, ...]) -> str:
        match node.kind:
            case "text":
                return _wrapped(self._text(node.text), tags)
            case "code":
                code = self._text(node.text)
                return code if is_blank(node.text) else f"<code>{code}</code>"
            case "link" | "image":
                label = node.text or text_of(node.children)
                return _wrapped(self._link(label if label.strip() else node.url, node.url), tags)
            case kind:
                tag = _STYLES[kind]
                return self._styled(node.children, tags if tag in tags else (*tags, tag))

    def _link(self, label: str, url: str) -> str:
        if _SAFE_URL.match(url) and not is_blank(label):
            return f'<a href="{escape(url)}">{self._text(label)}</a>'
        return self._text(label if label == url or not url else f"{label} ({url})")

    def _text(self, text: str) -> str:
        return escape(text, quote=False)


def _wrapped(html: str, tags: tuple[str, ...]) -> str:
    if not html.strip():
        return html
    opening = "".join(f"<{tag}>" for tag in tags)
    closing = "".join(f"</{tag}>" for tag in reversed(tags))
    return f"{opening}{html}{closing}"


def _flat(blocks: tuple[scan.Block, ...]) -> Iterator[scan.Block]:
    for block in blocks:
        if isinstance(block, scan.QuoteBlock):
            yield from _flat(block.blocks)
        else:
            yield block


DIALECT = TelegramHtml()
