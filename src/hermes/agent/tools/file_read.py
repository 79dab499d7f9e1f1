"""read_file: a text file, a page of lines at a time.

Reads only as much of the file as the page needs. When the same page is read
again unchanged in the same turn, the answer is a note; the next time it is the
text again, because the first copy may no longer be in the context.
"""

import asyncio
import difflib
from collections import OrderedDict
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ports.execution import Environment
from hermes.domain.tools import Intent, Parallel, ToolContext, ToolResult, ToolSpec

MAX_LINES = 2000
MAX_CHARS = 99_000

_CHUNK = 1024 * 1024
_MAX_LINE = 4 * MAX_CHARS
_MAX_SCANNED = 512 * 1024 * 1024
_MAX_COMPARED = 1000
_PROBE = 8192
_PAGES_REMEMBERED = 2048


class ReadFileArgs(Struct, frozen=True, kw_only=True):
    path: str
    offset: Annotated[int, Meta(description="First line, from 1")] = 1
    limit: Annotated[int, Meta(description="Lines, at most 2000; default 500")] = 500


class _Page(Struct, kw_only=True):
    first: int
    lines: list[str]
    more: bool
    total: int | None
    other: bool
    """Some of it is not UTF-8."""


class ReadFile:
    """Read a text file as numbered lines `LINE|text`."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], int] = OrderedDict()

    async def __call__(self, args: ReadFileArgs, context: ToolContext) -> ToolResult:
        environment = context.environment
        first, limit = max(1, args.offset), min(max(1, args.limit), MAX_LINES)
        try:
            page = await _read_page(context, args.path, first, limit)
        except NotFound as error:
            raise await not_found(environment, args.path) from error
        text = _render(page, args.path)
        key = (
            context.session_id,
            context.turn_id,
            environment.resolve(args.path),
            f"{first}+{limit}",
        )
        # A script needs the text each time.
        if not context.within and self._already_told(key, text):
            return ToolResult(
                content="Unchanged since you read it earlier in this turn."
                " Read it once more if you no longer have the text."
            )
        return ToolResult(content=text)

    def _already_told(self, key: tuple[str, ...], text: str) -> bool:
        told = self._seen.pop(key, None) == hash(text) and len(text) > 200
        if not told:
            self._seen[key] = hash(text)
        if len(self._seen) > _PAGES_REMEMBERED:
            self._seen.popitem(last=False)
        return told


async def _read_page(context: ToolContext, path: str, first: int, limit: int) -> _Page:
    """Read chunks until the wanted lines are there."""
    environment = context.environment
    scan, position, at_end = _Scan(first - 1, limit + 1), 0, False
    while not at_end and len(scan.lines) <= limit:
        if position > _MAX_SCANNED:
            raise UsageError(f"{path} is too large to page through.", hint="Use the terminal.")
        chunk = await environment.read(path, offset=position, limit=_CHUNK)
        if position == 0:
            _refuse_binary(path, chunk)
        position += len(chunk)
        at_end = len(chunk) < _CHUNK
        if len(chunk) < _PROBE:
            scan.feed(chunk, at_end=at_end)
        else:
            await asyncio.to_thread(scan.feed, chunk, at_end=at_end)
    # Just under the cap on results, so that a page is never filed.
    kept = _within_cap(scan.lines[:limit], min(MAX_CHARS, context.max_result_chars - 1000))
    return _Page(
        first=first,
        lines=kept,
        more=len(scan.lines) > len(kept),
        total=scan.passed if at_end else None,
        other=not all(map(_is_utf8, scan.lines[: len(kept)])),
    )


class _Scan:
    """Lines of a file that comes in chunks, without keeping more of it than a page."""

    def __init__(self, skipped: int, wanted: int) -> None:
        self._skipped = skipped
        self._wanted = wanted
        self._rest = b""
        self._open = False
        """There is text after the last line feed."""
        self.lines: list[bytes] = []
        self.passed = 0

    def feed(self, chunk: bytes, *, at_end: bool) -> None:
        start = 0
        while start < len(chunk) and len(self.lines) < self._wanted:
            end = chunk.find(b"\n", start)
            self._take(chunk[start : len(chunk) if end < 0 else end])
            if end < 0:
                break
            self._close()
            start = end + 1
        else:
            self.passed += chunk.count(b"\n", start)
            self._open = self._open or (start < len(chunk) and not chunk.endswith(b"\n"))
        if at_end and self._open:
            self._close()

    def _take(self, piece: bytes) -> None:
        self._open = self._open or bool(piece)
        if self.passed >= self._skipped and len(self._rest) <= _MAX_LINE:
            self._rest += piece[: _MAX_LINE + 1]

    def _close(self) -> None:
        if self.passed >= self._skipped and len(self.lines) < self._wanted:
            self.lines.append(self._rest)
        self.passed += 1
        self._rest, self._open = b"", False


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return len(line) > _MAX_LINE  # cut, perhaps within a character
    return True


def _within_cap(lines: list[bytes], cap: int) -> list[str]:
    kept: list[str] = []
    room = cap
    for raw in lines:
        line = raw.decode("utf-8", "replace").removesuffix("\r")
        room -= len(line) + 8
        if room < 0 and kept:
            break
        if room < 0:
            size = f"more than {cap}" if len(raw) > _MAX_LINE else str(len(line))
            line = f"{line[: cap - 200]} [line cut: it has {size} characters]"
        kept.append(line)
    return kept


def _render(page: _Page, path: str) -> str:
    if page.total == 0:
        return f"{path} is empty."
    if not page.lines:
        raise UsageError(
            f"{path} has only {page.total} lines; offset {page.first} is past its end."
        )
    if page.first == 1:
        page.lines[0] = page.lines[0].removeprefix("\ufeff")
    text = "\n".join(f"{number}|{line}" for number, line in enumerate(page.lines, page.first))
    if page.other:
        text += "\n[The file is not UTF-8: � stands for what is not. patch leaves it as it is.]"
    if not page.more:
        return text
    last = page.first + len(page.lines) - 1
    total = f" of {page.total}" if page.total is not None else ""
    return f"{text}\n[Lines {page.first}-{last}{total}. Continue with offset={last + 1}.]"


def _refuse_binary(path: str, chunk: bytes) -> None:
    if b"\0" in chunk[:_PROBE]:
        raise UsageError(
            f"{path} is a binary file.", hint="Look at it with a program in the terminal."
        )


def hidden_place(environment: Environment, path: str) -> NotFound:
    """Return an error about a place behind walls: the same whether or not there is something."""
    asks = "A command with `escalate` can ask for it." if environment.can_leave else ""
    return NotFound(f"The sandbox does not show the place where {path} is.", hint=asks)


async def not_found(environment: Environment, path: str) -> NotFound:
    """Return an error that names files which `path` may have meant."""
    if environment.hides(path):
        return hidden_place(environment, path)
    parent, _, name = environment.resolve(path).rpartition("/")
    try:
        names = [entry.name for entry in await environment.list_dir(parent or "/")]
    except (NotFound, UsageError):
        return NotFound(f"There is no file at {path}, and no directory {parent or '/'}.")
    if name in names:
        return NotFound(f"{path} is a link that leads nowhere here.")
    near = await asyncio.to_thread(_similar, name.lower(), names)
    hint = f"Similar names there: {', '.join(near)}." if near else ""
    return NotFound(f"There is no file at {path}.", hint=hint)


TOOL = tool(
    ReadFile,
    ToolSpec(
        name="read_file",
        toolset="file",
        emoji="📖",
        verb="read",
        label_field="path",
        parallel=Parallel.ALWAYS,
        path_fields=("path",),
        replay_safe=True,
        intent=lambda arguments: Intent(reads=(str(arguments.get("path") or "."),)),
    ),
)


def _similar(name: str, names: list[str]) -> list[str]:
    """Return the names most like `name`; only some of a great many are compared."""
    stem = name.rpartition(".")[0] or name
    lowered = {entry.lower(): entry for entry in names}
    likely = (each for each in lowered if each[:2] == name[:2] or stem in each or each in name)
    compared = lowered if len(lowered) <= _MAX_COMPARED else islice(likely, _MAX_COMPARED)
    found = difflib.get_close_matches(name, compared, n=3, cutoff=0.6)
    return [lowered[match] for match in found]
