"""Reads the multi-file patch format.

*** Begin Patch
*** Update File: path        (optionally followed by *** Move to: path)
@@ a line to look for first
 kept line
-removed line
+added line
*** Add File: path           (every line with +)
*** Delete File: path
*** End Patch
"""

import re
from enum import StrEnum

from msgspec import Struct

from hermes.domain.errors import UsageError

_SECTION = re.compile(r"\*\*\* (Update|Add|Delete) File: *(.+?)\s*\Z")
_MOVE = re.compile(r"\*\*\* Move to: *(.+?)\s*\Z")
_LINE_NUMBERS = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")
_END_OF_FILE = "*** End of File"


class Kind(StrEnum):
    UPDATE = "Update"
    ADD = "Add"
    DELETE = "Delete"


class Hunk(Struct, kw_only=True):
    """One change in a file: lines marked kept (space), removed or added."""

    anchors: list[str]
    lines: list[tuple[str, str]]
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for mark, text in self.lines if mark != "+"]


class FileChange(Struct, kw_only=True):
    kind: Kind
    path: str
    move_to: str | None = None
    hunks: list[Hunk]


def parse_patch(text: str) -> list[FileChange]:
    """Return the changes in `text`; `UsageError` names the line that is wrong."""
    changes: list[FileChange] = []
    for number, line in _body(text):
        section = _SECTION.match(line)
        if section:
            changes.append(FileChange(kind=Kind(section[1]), path=section[2], hunks=[]))
        elif not changes:
            if line.strip():
                raise UsageError(
                    f"Line {number} of the patch comes before any `*** Update File: path`."
                )
        else:
            _take(changes[-1], line, number)
    if not changes:
        raise UsageError("The patch changes no file.", hint="Name one: `*** Update File: path`.")
    for change in changes:
        _finish(change)
    return changes


def _body(text: str) -> list[tuple[int, str]]:
    lines = list(enumerate(text.replace("\r\n", "\n").split("\n"), 1))
    starts = [index for index, (_, line) in enumerate(lines) if line.strip() == "*** Begin Patch"]
    ends = [index for index, (_, line) in enumerate(lines) if line.strip() == "*** End Patch"]
    body = lines[starts[0] + 1 if starts else 0 : ends[-1] if ends else len(lines)]
    while body and not body[-1][1].strip():
        body.pop()
    return body


def _take(change: FileChange, line: str, number: int) -> None:
    move = _MOVE.match(line)
    if move and change.kind is Kind.UPDATE and not change.hunks:
        change.move_to = move[1]
    elif line.startswith("@@") and change.kind is Kind.UPDATE:
        _start_hunk(
            change, _LINE_NUMBERS.sub("", line).removeprefix("@@").removesuffix(" @@").strip()
        )
    elif line.strip() == _END_OF_FILE and change.hunks:
        change.hunks[-1].at_end = True
    elif line.startswith("***"):
        raise UsageError(f"Line {number} of the patch is not understood: {line!r}.")
    elif change.kind is Kind.DELETE:
        if line.strip():
            raise UsageError(f"Line {number}: nothing may follow `*** Delete File`.")
    else:
        _add_line(change, line, number)


def _start_hunk(change: FileChange, anchor: str) -> None:
    # Several @@ lines in a row narrow the place down, e.g. class, then method.
    if not (change.hunks and not change.hunks[-1].lines and change.hunks[-1].anchors):
        change.hunks.append(Hunk(anchors=[], lines=[]))
    if anchor:
        change.hunks[-1].anchors.append(anchor)


def _add_line(change: FileChange, line: str, number: int) -> None:
    mark, rest = line[:1], line[1:]
    if change.kind is Kind.ADD and mark != "+":
        if not line:
            mark, rest = "+", ""
        else:
            raise UsageError(f"Line {number}: every line of an added file starts with +.")
    if not line:
        mark, rest = " ", ""  # models drop the space of an empty kept line
    if mark not in (" ", "-", "+"):
        raise UsageError(
            f"Line {number} of the patch must start with a space, + or -: {line[:80]!r}."
        )
    if not change.hunks:
        change.hunks.append(Hunk(anchors=[], lines=[]))
    change.hunks[-1].lines.append((mark, rest))


def _finish(change: FileChange) -> None:
    for hunk in change.hunks:
        # Empty lines between sections are layout, not content.
        while hunk.lines and hunk.lines[-1] == (" ", ""):
            hunk.lines.pop()
    change.hunks = [hunk for hunk in change.hunks if hunk.lines]
    if change.kind is Kind.UPDATE and not change.hunks and change.move_to is None:
        raise UsageError(f"The patch says nothing about what to change in {change.path}.")
