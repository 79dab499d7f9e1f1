"""Reads what the search scripts print.

A file name ends with NUL and may itself hold newlines; it always starts with
the root of the search, which tells it apart from separators and messages.
A grep that knows no NUL separates by colons, which is read as well as can be.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

__all__ = ["Hit", "parse_counts", "parse_lines", "parse_names", "render"]

_MAX_LINE = 400

_LINE = re.compile(r"([^\0]+)\0(\d+)([:-])([^\n]*)(?:\n|\Z)")
_COUNT = re.compile(r"([^\0]+)\0(\d+)(?:\n|\Z)")
_PLAIN_LINE = re.compile(r"^(/.*?):(\d+)(:)(.*)$", re.MULTILINE)
_PLAIN_COUNT = re.compile(r"^(/.*):(\d+)$", re.MULTILINE)


class Hit(Struct, frozen=True, kw_only=True):
    """A matching line, a line beside one, or a file."""

    path: str
    number: int = 0
    text: str = ""
    is_match: bool = True


def parse_lines(output: str, root: str) -> list[Hit]:
    """Return matching lines and their context."""
    found = (_LINE if "\0" in output else _PLAIN_LINE).findall(output)
    return [
        Hit(path=_from_root(name, root), number=int(number), text=text, is_match=mark == ":")
        for name, number, mark, text in found
    ]


def parse_counts(output: str, root: str) -> list[Hit]:
    """Return files with the number of matching lines, leaving out those with none."""
    found = (_COUNT if "\0" in output else _PLAIN_COUNT).findall(output)
    return [Hit(path=f"{_from_root(name, root)}: {count}") for name, count in found if count != "0"]


def parse_names(output: str, root: str) -> list[str]:
    """Return file names."""
    names = output.split("\0" if "\0" in output else "\n")
    return [_from_root(name, root) for name in names if root in name]


def render(found: Iterable[Hit], page: list[Hit], context: int, cwd: str) -> str:
    """Return the hits of `page` and the context lines around them, file by file."""
    wanted = {
        (hit.path, number)
        for hit in page
        for number in range(hit.number - context, hit.number + context + 1)
    }
    lines: list[str] = []
    last_path = None
    for hit in found:
        if (hit.path, hit.number) not in wanted:
            continue
        if hit.path != last_path:
            lines.append(hit.path.removeprefix(cwd.rstrip("/") + "/"))
            last_path = hit.path
        if hit.number:
            mark = ":" if hit.is_match else "-"
            lines.append(f"{hit.number}{mark}{_shortened(hit.text)}")
    return "\n".join(lines)


def _from_root(name: str, root: str) -> str:
    return name[max(0, name.find(root)) :]


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} [...]"
