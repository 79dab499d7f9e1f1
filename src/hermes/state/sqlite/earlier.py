"""Conversations of an earlier Hermes: from its `state.db` into the ledger.

The old file is read without locks and side files. Where part of it is still in a log
beside it, both are copied first and the copy is read; if they change meanwhile the old
program is running and must be stopped. Each session comes over in one transaction, so an
import that is cut off goes on with the next. A session remembers up to which message it
was brought (`imported_through`): a second run adds only what was said since, and nothing
to sessions that went on here.

Brought are sessions (source, model, title, times, counters, origin) and their messages
with tool calls and results; what was undone or compacted stays out of the context. A call
whose result is missing gets one that says so, and a result without its call leaves the
context: a model refuses both.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.domain.errors import NotFound, StoreError, UsageError
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    ImagePart,
    Message,
    Part,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.session import Lineage, NewSession
from hermes.state.sqlite.base import change
from hermes.state.sqlite.database import IMPORTED, is_earlier
from hermes.state.sqlite.errors import store_error
from hermes.state.sqlite.ledger import SqliteLedger, existing_ledger, open_ledger
from hermes.state.sqlite.messages import Seat, put, take_seats
from hermes.state.sqlite.rows import dump
from hermes.state.sqlite.sessions import free_title, insert_session
from hermes.state.titles import clean_title

Old = dict[str, Any]
"""A row of the old database; which columns it has depends on its version."""

THROUGH: Final = "imported_through"
_ENDS: Final = {"compression": Lineage.COMPRESSION, "branched": Lineage.BRANCH}
_COUNTERS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
_STRUCTURED: Final = "\0json:"
_LOGS: Final = ("-wal", "-journal")
NO_RESULT: Final = "The result of this call was not kept."


class ImportReport(Struct):
    sessions: int = 0
    messages: int = 0
    known: int = 0
    """Sessions that were here already, with all their messages."""
    went_on: int = 0
    """Sessions that went on in both places: left as they are here."""
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    """Messages that are not brought, by role."""


class Seated(Struct, kw_only=True):
    """A message from elsewhere in its place."""

    seq: int
    at: float
    message: Message
    active: bool = True
    compacted: bool = False


async def import_earlier(home: HermesHome, source: Path, *, dry_run: bool) -> ImportReport:
    """Bring what is in `source` and not yet here; with `dry_run` only count it."""
    report = ImportReport()
    if not is_earlier(source):
        raise NotFound(
            f"{source} is not a state.db of an earlier Hermes.",
            hint="Name the file or the home that holds it: hermes import PATH",
        )
    async with existing_ledger(home) if dry_run else open_ledger(home) as ledger:
        assert isinstance(ledger, SqliteLedger)
        try:
            with _readable(source) as old:
                sessions = _rows(old, "SELECT * FROM sessions ORDER BY started_at, id")
                for row in sessions:
                    await _bring(ledger, old, row, report, dry_run=dry_run)
        except sqlite3.Error as error:
            raise store_error(error, source) from error
        if not dry_run:
            await ledger._write(lambda db: _link(db, sessions))  # noqa: SLF001
            await ledger.keep(IMPORTED, str(source))
    return report


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the old database so that no byte of it or beside it changes."""
    files = [path, *(log for end in _LOGS if (log := path.with_name(path.name + end)).exists())]
    with ExitStack() as stack:
        mode = "ro&immutable=1"
        if any(file.stat().st_size for file in files[1:]):
            folder = stack.enter_context(TemporaryDirectory(prefix="import-", dir=path.parent))
            before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
            for file in files:
                shutil.copyfile(file, Path(folder) / file.name)
            if before != [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]:
                raise StoreError(
                    f"{path} is being written to.", hint="Stop the earlier Hermes, then try again."
                )
            path, mode = Path(folder) / path.name, "rw"
        address = f"{path.absolute().as_uri()}?mode={mode}"
        old = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
        old.row_factory = sqlite3.Row
        yield old


def _rows(old: sqlite3.Connection, query: str, *values: Any) -> list[Old]:
    return [dict(row) for row in old.execute(query, values)]


async def _bring(
    ledger: SqliteLedger, old: sqlite3.Connection, row: Old, report: ImportReport, *, dry_run: bool
) -> None:
    """Bring one session, or what was said in it since it was brought."""
    present = await ledger.session(row["id"])
    mark = (present.state.get(THROUGH) if present else None) or {"id": 0, "count": 0}
    query = "SELECT * FROM messages WHERE session_id = ? AND id > ? ORDER BY id"
    rows = _rows(old, query, row["id"], mark["id"])
    if present and (not rows or present.message_count != mark["count"]):
        report.known += not rows
        report.went_on += bool(rows)
        return
    seated = list(_seated(rows, report.skipped))
    report.sessions += present is None
    report.messages += len(seated)
    if not dry_run:
        new = None if present else _session(row)
        last = {"id": rows[-1]["id"] if rows else 0, "count": mark["count"] + len(seated)}
        await ledger._write(lambda db: _store(db, new, row, seated, last))  # noqa: SLF001


def _store(
    db: sqlite3.Connection, new: NewSession | None, row: Old, seated: list[Seated], last: Old
) -> None:
    for name in _COUNTERS:
        row[f"{name}_tokens"] = row.get(f"{name}_tokens") or 0
    row["estimated_cost_usd"] = row.get("actual_cost_usd") or row.get("estimated_cost_usd") or 0.0
    store_session(db, new, row, seated)
    change(db, "sessions.set_fact", (row["id"], THROUGH, dump(last)))


def store_session(
    db: sqlite3.Connection, new: NewSession | None, row: Old, seated: Sequence[Seated]
) -> None:
    """Open a session, if it is new, with what its origin had counted, and seat its messages."""
    if new is not None:
        title = None if new.title is None else free_title(db, new, new.title)
        insert_session(db, msgspec.structs.replace(new, title=title))
    change(db, "sessions.imported", {"ended_at": None, "end_reason": None} | row)
    if seated:
        at = max(each.at for each in seated)
        messages = [each.message for each in seated]
        seats = max(each.seq for each in seated) + 1
        first = take_seats(db, row["id"], at, seats=seats, messages=messages)
        for each in seated:
            seat = Seat(session_id=row["id"], seq=first + each.seq, timestamp=each.at)
            stored = put(db, each.message, seat)
            if not each.active:
                change(db, "messages.retire", {"id": stored.id, "compacted": each.compacted})


def _link(db: sqlite3.Connection, sessions: list[Old]) -> None:
    """Point sessions at those they came from, once all are here."""
    ends = {row["id"]: row.get("end_reason") for row in sessions}
    for row in sessions:
        if parent := row.get("parent_session_id"):
            lineage = _ENDS.get(ends.get(parent) or "")
            change(
                db,
                "sessions.imported_parent",
                {"id": row["id"], "parent": parent, "lineage": lineage},
            )


def _session(row: Old) -> NewSession:
    title: str | None = None
    with suppress(UsageError):  # nothing that could be seen
        title = clean_title(str(row.get("title") or ""))
    return NewSession(
        title=title,
        id=row["id"],
        agent_id=DEFAULT_AGENT,
        source=row.get("source") or "cli",
        user_id=row.get("user_id"),
        model=row.get("model") or "",
        provider=row.get("billing_provider") or "",
        cwd=row.get("cwd"),
        started_at=row.get("started_at") or 0.0,
    )


def _seated(rows: list[Old], skipped: Counter[str]) -> Iterator[Seated]:
    """Read messages in order; results go to the seats behind their calls, as everywhere here."""
    following = 0
    waiting: dict[str, tuple[int, ToolCall]] = {}
    at = 0.0
    for row in rows:
        active = bool(row.get("active", 1))
        message = _message(row, {key: call.name for key, (_, call) in waiting.items()})
        if message is None:
            skipped[str(row["role"])] += 1
            continue
        if not isinstance(message, ToolMessage):
            yield from _unanswered(waiting, at)
        at = float(row["timestamp"] or at)
        seat, known = following, True
        if isinstance(message, ToolMessage):
            known = active and message.call_id in waiting
            seat = waiting.pop(message.call_id)[0] if known else following
        if seat == following:
            following += 1
        if isinstance(message, AssistantMessage):
            calls = message.tool_calls
            if active:
                waiting = {call.id: (following + i, call) for i, call in enumerate(calls)}
            following += len(calls)
        compacted = bool(row.get("compacted", 0))
        yield Seated(seq=seat, at=at, message=message, active=active and known, compacted=compacted)
    yield from _unanswered(waiting, at)


def _unanswered(waiting: dict[str, tuple[int, ToolCall]], at: float) -> Iterator[Seated]:
    for seat, call in waiting.values():
        yield Seated(seq=seat, at=at, message=without_result(call))
    waiting.clear()


def without_result(call: ToolCall) -> ToolMessage:
    """Return what stands for the result of a call that was not kept."""
    return ToolMessage(
        call_id=call.id, name=call.name, content=NO_RESULT, outcome=ToolOutcome.UNKNOWN
    )


def _message(row: Old, names: dict[str, str]) -> Message | None:
    content = _content(row["content"])
    match row["role"]:
        case "user":
            return UserMessage(content=content)
        case "assistant":
            text = content if isinstance(content, str) else _plain(content)
            calls = tuple(_calls(row.get("tool_calls")))
            thought = row.get("reasoning") or row.get("reasoning_content")
            return AssistantMessage(
                text=text,
                tool_calls=calls,
                reasoning=Reasoning(text=str(thought)) if thought else None,
                finish=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
            )
        case "tool":
            key = row.get("tool_call_id") or ""
            name = row.get("tool_name") or names.get(key) or "tool"
            return ToolMessage(call_id=key, name=name, content=content)
        case _:
            return None


def _content(stored: Any) -> Content:
    text = "" if stored is None else str(stored)
    if not text.startswith(_STRUCTURED):
        return text
    value = _decoded(text.removeprefix(_STRUCTURED))
    return tuple(_part(each) for each in value) if isinstance(value, list) else dump(value)


def _part(value: Any) -> Part:
    match value:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImagePart(url=url)
        case str(text):
            return TextPart(text)
        case _:
            return TextPart(dump(value))


def _plain(content: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _calls(stored: Any) -> Iterator[ToolCall]:
    found = _decoded(stored) if stored else []
    for number, call in enumerate(found if isinstance(found, list) else []):
        match call:
            case {"function": {"name": str(name), "arguments": arguments}}:
                given = arguments if isinstance(arguments, str) else dump(arguments)
                key = call.get("id") or call.get("call_id") or f"call_{number}"
                yield ToolCall(id=str(key), name=name, arguments=given)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
