"""patch: changes to files, all of them or none.

Both modes first compute everything in memory and write only when every change
has its place. If a write fails, the files written before are restored. A patch
may change several files:

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

import asyncio
import contextlib
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.file_read import not_found
from hermes.agent.tools.fuzzy import (
    FuzzyMatch,
    bounded,
    find,
    find_lines,
    nearest_line,
    occurrences,
    reindent,
    unescape,
)
from hermes.agent.tools.text_file import (
    MAX_EDITABLE,
    TextFile,
    count_changes,
    load,
    load_if_there,
    syntax_problem,
    unified_diff,
    until_settled,
)
from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.domain.ports.execution import NOTHING, Environment, digest
from hermes.domain.tools import Intent, Parallel, ToolContext, ToolResult, ToolSpec

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


def added_text(change: FileChange) -> str:
    lines = [text for hunk in change.hunks for _, text in hunk.lines]
    return "\n".join(lines) + "\n" if lines else ""


def apply_hunks(path: str, text: str, hunks: list[Hunk]) -> str:
    """Return `text` with all hunks applied, in order; `UsageError` if one has no clear place."""
    closed = text.endswith("\n") or not text
    lines = text.split("\n")
    if closed:
        lines.pop()
    cursor = 0
    for number, hunk in enumerate(hunks, 1):
        label = f"hunk {number} of {path}"
        start, clear = _after_anchors(lines, hunk, cursor, label)
        old = hunk.old
        at = _place(lines, hunk, start, label, clear=clear)
        new = _replacement(hunk, lines[at : at + len(old)])
        lines[at : at + len(old)] = new
        cursor = at + len(new)
    return "\n".join(lines) + ("\n" if closed and lines else "")


def _after_anchors(lines: list[str], hunk: Hunk, cursor: int, label: str) -> tuple[int, bool]:
    """Return where to look, and whether the anchors name one place only."""
    start, clear = cursor, False
    for number, anchor in enumerate(hunk.anchors):
        _, hits = find_lines(lines, [anchor], start)
        if not hits:
            hits = [i for i in range(start, len(lines)) if anchor in lines[i]]
        if not hits:
            raise UsageError(f"{label}: there is no line `{anchor}`{_near(lines, anchor)}.")
        start = hits[0] + 1
        if number == 0:
            clear = len(hits) == 1
    # The anchor may itself be the first kept line of the hunk.
    if hunk.anchors and hunk.old and hunk.old[0].strip() == hunk.anchors[-1].strip():
        start -= 1
    return start, clear


def _place(lines: list[str], hunk: Hunk, start: int, label: str, *, clear: bool) -> int:
    old = hunk.old
    if not old:
        return start if hunk.anchors and not hunk.at_end else len(lines)
    hits = _hits(lines, old, start)
    if not hits and not hunk.anchors:
        hits = _hits(lines, old, 0)  # hunks in another order than the file's
    if hunk.at_end:
        hits = [hit for hit in hits if hit + len(old) == len(lines)]
    if not hits:
        raise UsageError(
            f"{label}: the kept and removed lines are not in the file as given"
            f"{_near(lines, next((o for o in old if o.strip()), ''))}.",
            hint="Read the file again and quote it exactly.",
        )
    if len(hits) > 1 and not clear:
        places = ", ".join(str(hit + 1) for hit in hits[:8])
        raise UsageError(
            f"{label} fits in {len(hits)} places (lines {places}).",
            hint="Add kept lines around it, or name the place with @@.",
        )
    return hits[0]


def _hits(lines: list[str], old: list[str], start: int) -> list[int]:
    exact = [start + hit for hit in occurrences(lines[start:], old)]
    return exact or find_lines(lines, old, start)[1]


def _replacement(hunk: Hunk, matched: list[str]) -> list[str]:
    """Return the new lines: kept ones as the file has them, added ones shifted to fit."""
    added = iter(reindent([t for m, t in hunk.lines if m == "+"], hunk.old, matched))
    kept = iter(matched)
    result: list[str] = []
    for mark, _ in hunk.lines:
        if mark == "+":
            result.append(next(added))
            continue
        line = next(kept)
        if mark == " ":
            result.append(line)
    return result


def _near(lines: list[str], wanted: str) -> str:
    near = nearest_line("\n".join(lines), wanted)
    return f" (nearest: line {near[0]}: `{near[1].strip()[:120]}`)" if near else ""


class PatchArgs(Struct, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["replace", "patch"],
        Meta(description="replace: old_string by new_string in path; patch: several changes"),
    ] = "replace"
    path: str = ""
    old_string: Annotated[
        str, Meta(description="Text as in the file, with enough around it to be unique")
    ] = ""
    new_string: str | None = None
    replace_all: bool = False
    patch: Annotated[
        str,
        Meta(
            description="*** Begin Patch / *** Update File: p (or Add, Delete) / @@ anchor /"
            " lines marked ' ', '-', '+' / *** End Patch"
        ),
    ] = ""


class _Edit(Struct, frozen=True, kw_only=True):
    path: str
    before: TextFile | None
    after: str | None
    """None: the file goes away."""
    style: TextFile
    """The file whose line endings and byte order mark it gets."""


async def patch(args: PatchArgs, context: ToolContext) -> ToolResult:
    """Change files by quoting text (mode replace) or with a multi-file patch (mode patch)."""
    edits, note = await until_settled(lambda: _applied(context.environment, args))
    reviews = await asyncio.to_thread(lambda: [_review(edit) for edit in edits])
    diff = "\n".join(diff for diff, _ in reviews if diff)
    text = "\n".join(summary for _, summary in reviews)
    if note:
        text = f"{text}\n{note}\n{diff}"
    return ToolResult(content=text, diff=diff or None)


async def _applied(environment: Environment, args: PatchArgs) -> tuple[list[_Edit], str]:
    note = ""
    if args.mode == "patch":
        edits = await _plan(environment, parse_patch(args.patch))
    else:
        edit, note = await _replace(environment, args)
        edits = [edit]
    await _commit(environment, edits)
    return edits, note


def intent(arguments: dict[str, Any]) -> Intent:
    if arguments.get("mode") != "patch":
        return Intent(writes=(str(arguments.get("path", "")),))
    try:
        changes = parse_patch(str(arguments.get("patch", "")))
    except UsageError:
        return Intent()  # such a call changes nothing
    paths = [path for c in changes for path in (c.path, c.move_to) if path]
    return Intent(writes=tuple(dict.fromkeys(paths)))


async def _replace(environment: Environment, args: PatchArgs) -> tuple[_Edit, str]:
    if not args.path or args.new_string is None:
        raise UsageError(
            "mode replace needs path, old_string and new_string.",
            hint='An empty new_string ("") removes the text.',
        )
    if not args.old_string:
        raise UsageError("old_string is empty.", hint="Use write_file for a whole file.")
    try:
        file = await load(environment, args.path)
    except NotFound as error:
        raise await not_found(environment, args.path) from error
    wanted, new = args.old_string, args.new_string
    if file.crlf:
        wanted, new = wanted.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    after, strategy = await asyncio.to_thread(
        bounded, _replaced, file.text, wanted, new, replace_all=args.replace_all
    )
    note = "" if strategy == "exact" else f"Matched approximately ({strategy}); check the diff:"
    path = environment.resolve(args.path)
    return _Edit(path=path, before=file, after=after, style=file), note


def _replaced(text: str, wanted: str, new: str, *, replace_all: bool) -> tuple[str, str]:
    if wanted == new:
        raise UsageError("old_string and new_string are the same.")
    found = find(text, wanted)
    if found is None:
        near = nearest_line(text, wanted)
        hint = f"The nearest line is {near[0]}: `{near[1].strip()[:120]}`." if near else ""
        raise UsageError("old_string is not in the file.", hint=hint)
    if len(found.spans) > 1 and not replace_all:
        raise UsageError(
            f"old_string is in {len(found.spans)} places:\n{_places(text, found)}",
            hint="Quote more lines around the one you mean, or set replace_all.",
        )
    pieces: list[str] = []
    position, size = 0, len(text)
    for start, end in found.spans:
        if start < position:
            continue  # overlaps the one just replaced
        pieces += [text[position:start], _fitted(text[start:end], wanted, new, found.strategy)]
        position = end
        size += len(pieces[-1])
        if size > MAX_EDITABLE:
            raise UsageError("The file would become too large.", hint="Use the terminal.")
    after = "".join(pieces) + text[position:]
    if after == text:
        raise UsageError("The file already has that text; nothing was changed.")
    return after, found.strategy


def _fitted(matched: str, wanted: str, new: str, strategy: str) -> str:
    if strategy == "exact":
        return new
    if strategy == "escapes":
        return new if "\n" in new else unescape(new)
    shifted = reindent(new.split("\n"), wanted.split("\n"), matched.split("\n"))
    return "\n".join(shifted)


def _places(text: str, found: FuzzyMatch) -> str:
    shown: list[str] = []
    for start, end in found.spans[:6]:
        number = text.count("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line = text[text.rfind("\n", 0, start) + 1 : line_end if line_end >= 0 else len(text)]
        shown.append(f"line {number}: {line.strip()[:120] or repr(text[start:end][:40])}")
    return "\n".join(shown)


async def _plan(environment: Environment, changes: list[FileChange]) -> list[_Edit]:
    """Work out the state after the patch, file by file; a file may come up twice."""
    before: dict[str, TextFile | None] = {}
    after: dict[str, str | None] = {}
    styles: dict[str, TextFile] = {}

    async def current(path: str) -> str | None:
        if path not in before:
            before[path] = file = await load_if_there(environment, path)
            after[path] = file.text if file else None
            styles[path] = file or TextFile(text="")
        return after[path]

    for change in changes:
        path = environment.resolve(change.path)
        text = await current(path)
        if change.kind is Kind.ADD:
            if text is not None:
                raise UsageError(f"{change.path} exists already.", hint="Update it instead.")
            after[path] = added_text(change)
            continue
        if text is None:
            raise await not_found(environment, change.path)
        after[path] = None
        if change.kind is Kind.UPDATE:
            target = environment.resolve(change.move_to) if change.move_to else path
            if target != path and await current(target) is not None:
                raise UsageError(f"{change.move_to} exists already; nothing was changed.")
            after[target] = await asyncio.to_thread(
                bounded, apply_hunks, change.path, text, change.hunks
            )
            styles[target] = styles[path]
    edits = [
        _Edit(path=path, before=before[path], after=after[path], style=styles[path])
        for path in before
    ]
    return [edit for edit in edits if _changed(edit)]


def _changed(edit: _Edit) -> bool:
    return edit.after != (edit.before.text if edit.before else None)


async def _commit(environment: Environment, edits: list[_Edit]) -> None:
    if not edits:
        raise UsageError("The files already have that text; nothing was changed.")
    done: list[_Edit] = []
    try:
        for edit in edits:
            done.append(edit)
            if edit.after is None:
                await environment.remove(edit.path)
            else:
                was = edit.before.digest if edit.before else NOTHING
                await environment.write(edit.path, edit.style.encode(edit.after), was)
    except HermesError:
        for edit in reversed(done):
            with contextlib.suppress(HermesError):
                await _put_back(environment, edit)
        raise


async def _put_back(environment: Environment, edit: _Edit) -> None:
    """Undo an edit, unless somebody else has changed the file since, or it was not made."""
    made = NOTHING if edit.after is None else digest(edit.style.encode(edit.after))
    if edit.before is not None:
        await environment.write(edit.path, edit.before.encode(edit.before.text), made)
    elif digest(await environment.read(edit.path)) == made:
        await environment.remove(edit.path)


def _review(edit: _Edit) -> tuple[str, str]:
    diff = unified_diff(edit.path, edit.before.text if edit.before else None, edit.after)
    if edit.after is None:
        return diff, f"Deleted {edit.path}."
    added, removed = count_changes(diff)
    summary = f"{'Changed' if edit.before else 'Added'} {edit.path} (+{added} -{removed})."
    problem = syntax_problem(edit.path, edit.after)
    return diff, f"{summary} It does not parse: {problem}." if problem else summary


TOOL = tool(
    patch,
    ToolSpec(
        name="patch",
        toolset="file",
        emoji="🩹",
        verb="patch",
        label_field="path",
        parallel=Parallel.BY_PATH,
        path_fields=("path",),
        intent=intent,
    ),
)
