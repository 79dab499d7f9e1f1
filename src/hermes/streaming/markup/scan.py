"""Markdown as models write it, line by line, for chat dialects.

Not a full CommonMark parser: chats keep the line structure of the source, so
blocks are found by their first line and their text is left in place. Reading
never fails; what is not understood is text. An open fence at the end is a
fence, because a stream may still be in the middle of it.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from hermes.streaming.markup.inline import parse, text_of
from hermes.streaming.units import width

_FENCE = re.compile(r"([ \t]*)(`{3,6}(?!`)|~{3,6}(?!~))[ \t]*([^`\n]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)$")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_QUOTE = re.compile(r" {0,3}> ?(.*)$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(?:\[([ xX])\][ \t]+)?(.*)$")
_DELIMITER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELL = re.compile(r"(?<!\\)\|")
_MAX_QUOTES = 8


class Fence(Struct, frozen=True, kw_only=True):
    marker: str
    language: str
    indent: int

    def closed_by(self, line: str) -> bool:
        stripped = line.strip()
        return (
            len(stripped) >= len(self.marker)
            and not stripped.strip(self.marker[0])
            and stripped[:1] == self.marker[0]
        )

    def opener(self) -> str:
        """Return a line that opens such a block again."""
        return " " * self.indent + self.marker + self.language


class Text(Struct, frozen=True):
    text: str


class Heading(Struct, frozen=True):
    text: str


class Item(Struct, frozen=True, kw_only=True):
    indent: str
    marker: str
    done: bool | None
    """Whether a task is ticked; None if it is no task."""
    text: str


class QuoteBlock(Struct, frozen=True):
    """Quoted lines, without their marks."""

    blocks: "tuple[Block, ...]"


class Code(Struct, frozen=True, kw_only=True):
    language: str
    text: str


class Table(Struct, frozen=True, kw_only=True):
    """A table, and its source for when there is no room to lay it out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str


class Rule(Struct, frozen=True):
    text: str


Block = Text | Heading | Item | QuoteBlock | Code | Table | Rule


def open_fence(line: str) -> Fence | None:
    found = _FENCE.match(line)
    if found is None:
        return None
    words = found[3].split()
    return Fence(marker=found[2], language=words[0] if words else "", indent=len(found[1]))


def is_delimiter(line: str) -> bool:
    """Return whether `line` can be the second line of a table."""
    return "|" in line and _DELIMITER.match(line) is not None


def read(markdown: str) -> Iterator[Block]:
    """Yield the blocks of `markdown` in order; joined by newlines they cover all of it."""
    return _blocks(markdown.split("\n"), quotes=0)


def _blocks(lines: list[str], *, quotes: int) -> Iterator[Block]:
    at, running = 0, list[str]()
    while at < len(lines):
        block, after = _block(lines, at, quotes)
        if block is None:
            running.append(lines[at])
            at += 1
            if not lines[at - 1].strip():
                yield Text("\n".join(running))
                running = []
            continue
        if running:
            yield Text("\n".join(running))
            running = []
        yield block
        at = after
    if running:
        yield Text("\n".join(running))


def _block(lines: list[str], at: int, quotes: int) -> tuple[Block | None, int]:
    line = lines[at]
    fence = open_fence(line)
    if fence is not None:
        return _code(lines, at, fence)
    if found := _HEADING.match(line):
        return Heading(_heading(found[1].rstrip(" \t"))), at + 1
    if _RULE.match(line):
        return Rule(line.strip()), at + 1
    if quotes < _MAX_QUOTES and _QUOTE.match(line):
        return _quote(lines, at, quotes)
    if "|" in line and at + 1 < len(lines) and is_delimiter(lines[at + 1]):
        table, after = _table(lines, at)
        if table is not None:
            return table, after
    if found := _ITEM.match(line):
        done = None if found[3] is None else found[3] != " "
        item = Item(indent=found[1], marker=found[2], done=done, text=found[4])
        return item, at + 1
    return None, at


def _heading(text: str) -> str:
    """Return a heading without the marks that may stand behind it."""
    bare = text.rstrip("#")
    return bare.rstrip(" \t") if bare != text and bare.endswith((" ", "\t")) else text


def _code(lines: list[str], at: int, fence: Fence) -> tuple[Block, int]:
    body: list[str] = []
    at += 1
    while at < len(lines):
        line = lines[at]
        at += 1
        if fence.closed_by(line):
            break
        lead = line[: fence.indent]
        body.append(line[fence.indent :] if not lead.strip() else line.lstrip())
    return Code(language=fence.language, text="\n".join(body)), at


def _quote(lines: list[str], at: int, quotes: int) -> tuple[Block, int]:
    inner: list[str] = []
    while at < len(lines) and (found := _QUOTE.match(lines[at])):
        inner.append(found[1])
        at += 1
    return QuoteBlock(tuple(_blocks(inner, quotes=quotes + 1))), at


def _table(lines: list[str], at: int) -> tuple[Table | None, int]:
    header = _cells(lines[at])
    if len(header) != len(_cells(lines[at + 1])):
        return None, at
    start, rows = at, list[tuple[str, ...]]()
    at += 2
    while at < len(lines) and "|" in lines[at] and open_fence(lines[at]) is None:
        row = _cells(lines[at])[: len(header)]
        rows.append(row + ("",) * (len(header) - len(row)))
        at += 1
    source = "\n".join(lines[start:at])
    return Table(header=header, rows=tuple(rows), source=source), at


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip()
    inner = inner.removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return tuple(cell.strip() for cell in _CELL.split(inner))


ROOM = 7
"""Characters of padding that one `|` of the source pays for."""
_NARROW = 40
"""Columns that a phone shows without wrapping, roughly."""


def lay_out(table: Table) -> tuple[str, bool]:
    """Return a table as columns or, where that is too wide, as records; True: a fixed font."""
    rows = [[_bare(cell) for cell in row] for row in (table.header, *table.rows)]
    room = len(table.source) + ROOM * table.source.count("|")
    aligned, records = _aligned(rows), _records(rows)
    narrow = max(width(line) for line in aligned.split("\n")) <= _NARROW
    for layout in (aligned, records) if narrow else (records, aligned):
        if len(layout) <= room:
            return layout, layout is aligned
    return "\n".join("|".join(row) for row in rows), True


def _bare(cell: str) -> str:
    return text_of(parse(cell.replace("\\|", "|")).nodes).strip()


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(width(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell + " " * (columns - width(cell)) for cell, columns in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    ruler = "  ".join("-" * columns for columns in widths)
    return "\n".join([lines[0], ruler, *lines[1:]])


def _records(rows: list[list[str]]) -> str:
    header, *body = rows
    if not body:
        return "  ".join(header)
    return "\n\n".join(
        "\n".join(f"{name}: {cell}" for name, cell in zip(header, row, strict=True) if cell)
        for row in body
    )
