"""Plain text, and the base of all dialects: what is left is still pleasant to read.

A `Dialect` reads Markdown (`scan` the blocks, `inline` what is in their text) and
writes every kind of block and node by a method of its own. A dialect of a
platform overrides what that platform writes differently.
"""

import re
from collections.abc import Iterable
from typing import ClassVar

from hermes.domain.platforms import LengthUnit
from hermes.streaming.markup import scan
from hermes.streaming.markup.inline import Node, parse
from hermes.streaming.units import clean, is_blank, length


def escaped(text: str) -> str:
    """Return Markdown that shows `text` as it is; for text within a line."""
    return re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", text)


class Dialect:
    boxes: ClassVar[tuple[str, str]] = ("[ ]", "[x]")
    """In front of a task: open, done."""
    bullet: ClassVar[str] = ""
    """In front of an item without a number; empty: as it was written."""
    rule: ClassVar[str] = ""
    """A line across; empty: as it was written."""

    def render(self, markdown: str) -> str:
        """Return `markdown` in this dialect; its own text if nothing else could be seen."""
        markdown = clean(markdown)
        text = self._blocks(scan.read(markdown)).strip("\n").rstrip()
        return self._text(markdown.strip()) if is_blank(self._visible(text)) else text

    def plain(self, markdown: str) -> str:
        return PLAIN.render(markdown)

    def code(self, text: str) -> str:
        """Return `text` as a block in which nothing is markup, whatever it contains."""
        return self._code(clean(text), "")

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        """Return the most that `markdown` can take when it is rendered."""
        return length(markdown, unit) + scan.ROOM * markdown.count("|")

    def _visible(self, rendered: str) -> str:
        return rendered

    def _blocks(self, blocks: Iterable[scan.Block]) -> str:
        return "\n".join(self._block(block) for block in blocks)

    def _block(self, block: scan.Block) -> str:
        match block:
            case scan.Text(text):
                return self._inline(text)
            case scan.Heading(text):
                return self._heading(text)
            case scan.Item(indent=indent, text=text):
                return f"{indent}{self._marker(block)} {self._inline(text)}"
            case scan.QuoteBlock(blocks):
                return self._quote(blocks)
            case scan.Code(language=language, text=text):
                return self._code(text, language)
            case scan.Table():
                text, fixed = scan.lay_out(block)
                return self._code(text, "") if fixed else self._records(text)
            case scan.Rule(text):
                return self.rule or text

    def _records(self, text: str) -> str:
        """Return the rows of a wide table as paragraphs, a cell on each line."""
        return self._text(text)

    def _heading(self, text: str) -> str:
        return self._inline(text)

    def _marker(self, item: scan.Item) -> str:
        mark = self.bullet if self.bullet and item.marker in "-*+" else item.marker
        return mark if item.done is None else f"{mark} {self.boxes[item.done]}"

    def _quote(self, blocks: tuple[scan.Block, ...]) -> str:
        return "\n".join(f">{line}" for line in self._blocks(blocks).split("\n"))

    def _code(self, text: str, language: str) -> str:  # noqa: ARG002 (others show it)
        return text

    def _inline(self, text: str) -> str:
        return self._nodes(parse(text).nodes)

    def _nodes(self, nodes: tuple[Node, ...]) -> str:
        return "".join(self._node(node) for node in nodes)

    def _node(self, node: Node) -> str:
        inner = self._text(node.text) if node.text else self._nodes(node.children)
        return self._link(inner, node.url) if node.kind in ("link", "image") else inner

    def _link(self, label: str, url: str) -> str:
        if not url or label == url or label == url.removeprefix("mailto:"):
            return label
        return f"{label} ({url})" if label.strip() else url

    def _text(self, text: str) -> str:
        """Return text in which nothing is markup."""
        return text


PLAIN = Dialect()


class FencedDialect(Dialect):
    """What Slack and Discord have in common: code between fences, quotes line by line."""

    boxes = ("☐", "☑")

    def _quote(self, blocks: tuple[scan.Block, ...]) -> str:
        lines = self._blocks(blocks).split("\n")
        return "\n".join(f"> {line}".rstrip() for line in lines)

    def _code(self, text: str, language: str) -> str:
        body = self._text(text.replace("```", "'''"))
        return f"```{language}\n{body}\n```"

    def weight(self, markdown: str, unit: LengthUnit) -> int:
        # A row of a table has a `|`, and a fence that is left open needs closing.
        fences = markdown.count("```") + markdown.count("~~~")
        return length(markdown, unit) + (scan.ROOM + 2) * markdown.count("|") + 9 * fences
