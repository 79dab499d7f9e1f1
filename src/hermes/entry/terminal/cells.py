"""Widths in terminal cells: a CJK character or an emoji takes two."""

from wcwidth import wcswidth, wcwidth

__all__ = ["cut", "pad", "width", "wrap"]


def width(text: str) -> int:
    """Return how many cells `text` takes."""
    cells = wcswidth(text)
    return cells if cells >= 0 else sum(max(0, wcwidth(char)) for char in text)


def cut(text: str, cells: int, *, ellipsis: str = "…") -> str:
    """Return `text`, shortened to at most `cells`."""
    if width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    if room <= 0:
        return ellipsis[: max(0, cells)]
    return _fitting(text, room).rstrip() + ellipsis


def pad(text: str, cells: int) -> str:
    """Return `text` filled with blanks to `cells`."""
    return text + " " * max(0, cells - width(text))


def wrap(text: str, cells: int) -> list[str]:
    """Break text into lines of at most `cells`, between words where possible."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines += _wrap_line(paragraph, max(1, cells))
    return lines


def _wrap_line(line: str, cells: int) -> list[str]:
    lines: list[str] = []
    rest = line
    while width(rest) > cells:
        head = _fitting(rest, cells) or rest[0]
        blank = head.rfind(" ")
        if blank > 0 and len(head) < len(rest) and rest[len(head)] != " ":
            head = head[:blank]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip(" ")
    return [*lines, rest]


def _fitting(text: str, cells: int) -> str:
    """Return the longest beginning of `text` that fits."""
    used = 0
    for position, char in enumerate(text):
        used += max(0, wcwidth(char))
        if used > cells:
            return text[:position]
    return text
