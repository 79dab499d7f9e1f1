"""Tables in chats, which have none: aligned columns, records, or bare cells.

Whatever the layout, it adds at most `ROOM` characters for every `|` of the
source. `weight` charges the same, so text that was split by weight still fits
after it has been laid out.
"""

from hermes.streaming.markup.inline import parse, text_of
from hermes.streaming.markup.scan import Table
from hermes.streaming.units import width

__all__ = ["ROOM", "lay_out"]

ROOM = 7
"""Characters of padding that one `|` of the source pays for."""
_NARROW = 48
"""Columns that a phone shows without wrapping, roughly."""


def lay_out(table: Table) -> str:
    """Return `table` as lines of text for a fixed-width font."""
    rows = [[_bare(cell) for cell in row] for row in (table.header, *table.rows)]
    room = len(table.source) + ROOM * table.source.count("|")
    aligned, records = _aligned(rows), _records(rows)
    narrow = max(width(line) for line in aligned.split("\n")) <= _NARROW
    for layout in (aligned, records) if narrow else (records, aligned):
        if len(layout) <= room:
            return layout
    return "\n".join("|".join(row) for row in rows)


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
