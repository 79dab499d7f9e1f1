"""The history of sessions: seats, reading, undoing, compacting, late results.

Messages have seats. An assistant message with k tool calls takes seat n and reserves
n+1 .. n+k for the results, so results stand in call order whatever order they arrive
in. A summary takes the seat of the last message it stands for; its id is larger, so it
sorts right after it.

A turn that hands calls to its client has ended, so the results come with the next turn
of the session; they go into the seats that the calls have reserved. A call that gets no
result then is recorded as not answered.

Long histories are kept in memory, and topped up instead of read again. A history only
grows, except when it is rewound or compacted; the session row counts both
(`message_count`, `rewrites`), also for other processes. So one small read tells whether
a kept history still holds and what is missing. Short histories are not kept: reading
them costs less than the memory.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from sqlite3 import Connection, Row
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.errors import Conflict, SessionBusy
from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    Message,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.session import NewSession, StoredMessage
from hermes.domain.turn import ClientResult
from hermes.domain.wording import clean_text
from hermes.state.sqlite.base import LedgerPart, change, check_session, many, one, sql, transaction
from hermes.state.sqlite.errors import unknown_session
from hermes.state.sqlite.readers import Readers
from hermes.state.sqlite.rows import message_columns, read_calls, read_message
from hermes.state.sqlite.writer import Writer
from hermes.state.titles import preview

SHORT = 6
WORTH_KEEPING = 60
"""Messages from which a history is kept."""
MAX_MESSAGES = 20_000
"""Of all kept histories together."""
MAX_TOP_UP = 200
NOT_ANSWERED = "The client did not answer this call."
NOT_KNOWN = (
    "The result of this call is not known here. It may have been carried out, or may still be. "
    "Check before you repeat it."
)
NEVER = 2**62
"""Larger than the id of any message."""


class MessagePart(LedgerPart):
    def __init__(self, writer: Writer, readers: Readers) -> None:
        super().__init__(writer, readers)
        self._histories = HistoryCache()

    async def history(self, session_id: str) -> list[StoredMessage]:
        kept = self._histories.get(session_id)
        if kept is not None:
            earlier = kept
            kept = await self._quick(lambda db: _topped_up(db, session_id, earlier))
        else:
            kept = await self._quick(lambda db: _short_history(db, session_id))
        if kept is None:
            kept = await self._read(lambda db: _read_history(db, session_id))
        self._histories.put(session_id, kept)
        return list(kept.messages)

    async def transcript(self, session_id: str) -> list[StoredMessage]:
        return await self._list(read_message, "messages.transcript", (session_id,))

    @transaction
    def rewind(self, db: Connection, session_id: str, seq: int) -> int:
        _check_idle(db, session_id, "rewound")
        change(db, "messages.count_rewrite", (session_id,))
        return change(db, "messages.rewind", (session_id, seq))

    @transaction
    def append_messages(
        self, db: Connection, session_id: str, messages: Sequence[Message], at: float
    ) -> list[StoredMessage]:
        _check_idle(db, session_id, "added to")
        return put_all(db, messages, session_id=session_id, turn_id=None, at=at)

    @transaction
    def hide_messages(self, db: Connection, session_id: str, ids: Sequence[int]) -> int:
        _check_idle(db, session_id, "changed")
        change(db, "messages.count_rewrite", (session_id,))
        return sum(change(db, "messages.hide", (session_id, each)) for each in ids)

    @transaction
    def compact(
        self, db: Connection, session_id: str, through_seq: int, summary: UserMessage
    ) -> StoredMessage:
        check_session(db, session_id)
        last = one(db, "messages.last_to_compact", (session_id, through_seq))
        if last is None:
            raise Conflict(
                f"Session `{session_id}` has nothing to compact there.",
                hint="Read the history again; it may have been compacted meanwhile.",
            )
        change(db, "messages.compact", (session_id, through_seq))
        change(db, "messages.count_rewrite", (session_id,))
        seat = Seat(session_id=session_id, seq=last["seq"], timestamp=last["timestamp"])
        return put_late(db, summary, seat)


def _check_idle(db: Connection, session_id: str, done: str) -> None:
    check_session(db, session_id)
    if one(db, "sessions.has_open_turn", (session_id,)):
        raise SessionBusy(
            f"The history of session `{session_id}` cannot be {done} during a turn.",
            hint="Interrupt the turn first.",
        )


# -- seats ---------------------------------------------------------------------


class Seat(Struct, frozen=True, kw_only=True):
    """Where and when a message is written."""

    session_id: str
    turn_id: str | None = None
    seq: int
    timestamp: float


def take_seats(
    db: Connection, session_id: str, at: float, *, seats: int, messages: Sequence[Message]
) -> int:
    """Advance the seats and counters of a session; return the first seat taken."""
    replies = (message for message in messages if isinstance(message, AssistantMessage))
    values = {
        "session_id": session_id,
        "seats": seats,
        "messages": len(messages),
        "calls": sum(len(reply.tool_calls) for reply in replies),
        "at": at,
        "preview": _preview_of(messages),
    }
    row = one(db, "messages.take_seats", values)
    if row is None:
        raise unknown_session(session_id)
    return int(row["next_seq"]) - seats


def put(db: Connection, message: Message, seat: Seat) -> StoredMessage:
    values = message_columns(message) | msgspec.structs.asdict(seat)
    cursor = db.execute(sql("messages.insert"), values)
    assert cursor.lastrowid is not None
    return StoredMessage(
        id=cursor.lastrowid,
        session_id=seat.session_id,
        turn_id=seat.turn_id,
        seq=seat.seq,
        at=seat.timestamp,
        message=message,
    )


def put_late(db: Connection, message: Message, seat: Seat) -> StoredMessage:
    """Write a message into a seat that was taken before, and count it."""
    take_seats(db, seat.session_id, seat.timestamp, seats=0, messages=[message])
    return put(db, message, seat)


def put_all(
    db: Connection, messages: Sequence[Message], *, session_id: str, turn_id: str | None, at: float
) -> list[StoredMessage]:
    """Write messages into the next seats of a session."""
    seq = take_seats(db, session_id, at, seats=len(messages), messages=messages)
    first = Seat(session_id=session_id, turn_id=turn_id, seq=seq, timestamp=at)
    return [
        put(db, message, msgspec.structs.replace(first, seq=seq + offset))
        for offset, message in enumerate(messages)
    ]


def _preview_of(messages: Sequence[Message]) -> str:
    """Return the preview that the first thing a person said gives."""
    for message in messages:
        if isinstance(message, UserMessage) and message.kind is InputKind.USER:
            return preview(clean_text(content_text(message.content)))
    return ""


# -- calls that a turn handed to its client ------------------------------------


def answer_handed(
    db: Connection, session_id: str, results: Sequence[ClientResult], at: float
) -> None:
    """Give every call that waits for a client its result, or say that there is none."""
    for row, call in _seated(many(db, "handed.waiting", (session_id,))):
        turn_id, seq = row["turn_id"], row["seq"]
        seat = Seat(session_id=session_id, turn_id=turn_id, seq=seq, timestamp=at)
        put_late(db, _answer(call, results), seat)
    change(db, "handed.clear", (session_id,))


def waiting_session(db: Connection, call_id: str) -> str | None:
    """Return the session in which a call waits for its client's result."""
    for found in many(db, "handed.sessions", (call_id,)):
        session_id = str(found["session_id"])
        waiting = _seated(many(db, "handed.waiting", (session_id,)))
        if any(call.id == call_id for _, call in waiting):
            return session_id
    return None


def answer_in_branch(db: Connection, origin: str, branch: NewSession) -> None:
    """Say in a branch that the client of the origin did not answer there."""
    if one(db, "handed.waiting", (origin,)) is None:
        return
    wanted = {"from": origin, "to": branch.id, "handed": 1, "through_id": NEVER}
    answer_copies(db, wanted, (), branch.started_at)


def answer_copies(
    db: Connection,
    wanted: dict[str, Any],
    results: Sequence[ClientResult],
    at: float,
    *,
    asked: bool = False,
) -> None:
    """Give the copied calls that `handed.unanswered` finds their results in a branch.

    `asked`: the branch begins where a person was asked. The calls were carried out or refused
    after that, and what came of them is true in the branch as well.
    """
    given = {each.call_id for each in results}
    for row, call in _seated(many(db, "handed.unanswered", wanted)):
        answer: Message = _answer(call, results)
        if asked and call.id not in given:
            since = one(db, "handed.result_of", (row["turn_id"], call.id))
            answer = _not_known(call) if since is None else read_message(since).message
        seat = Seat(session_id=wanted["to"], seq=row["seq"], timestamp=at)
        put_late(db, answer, seat)


def _not_known(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=NOT_KNOWN, outcome=ToolOutcome.UNKNOWN
    )


def _answer(call: ToolCall, results: Sequence[ClientResult]) -> ToolMessage:
    given = next((result for result in results if result.call_id == call.id), None)
    return ToolMessage(
        call_id=call.id,
        name=call.name,
        content=NOT_ANSWERED if given is None else given.content,
        outcome=ToolOutcome.SKIPPED if given is None else ToolOutcome.OK,
    )


def _seated(found: list[Row]) -> Iterator[tuple[Row, ToolCall]]:
    """Pair rows with the calls of their replies; without those whose reply is gone."""
    for row in found:
        calls = read_calls(row["tool_calls"])
        place = row["seq"] - row["reply_seq"] - 1
        if 0 <= place < len(calls) and calls[place].id == row["call_id"]:
            yield row, calls[place]


# -- kept histories ------------------------------------------------------------


class KeptHistory(Struct, frozen=True):
    messages: list[StoredMessage]
    count: int
    rewrites: int
    last_id: int


class HistoryCache:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptHistory] = OrderedDict()
        self._messages = 0

    def get(self, session_id: str) -> KeptHistory | None:
        found = self._kept.get(session_id)
        if found is not None:
            self._kept.move_to_end(session_id)
        return found

    def put(self, session_id: str, kept: KeptHistory) -> None:
        """Keep a history if it is long enough, dropping others."""
        self.drop(session_id)
        if len(kept.messages) < WORTH_KEEPING:
            return
        self._kept[session_id] = kept
        self._messages += len(kept.messages)
        while self._messages > MAX_MESSAGES and len(self._kept) > 1:
            self.drop(next(iter(self._kept)))

    def drop(self, session_id: str) -> None:
        gone = self._kept.pop(session_id, None)
        if gone is not None:
            self._messages -= len(gone.messages)


def _short_history(db: Connection, session_id: str) -> KeptHistory | None:
    """Return a history of few messages, which takes less time than going to a thread."""
    state = one(db, "messages.history_state", (session_id,))
    short = state is not None and state["message_count"] <= SHORT
    return _read_history(db, session_id) if short else None


def _read_history(db: Connection, session_id: str) -> KeptHistory:
    state = one(db, "messages.history_state", (session_id,))
    messages = [read_message(row) for row in many(db, "messages.history", (session_id,))]
    return KeptHistory(
        messages,
        state["message_count"] if state else 0,
        state["rewrites"] if state else 0,
        max((stored.id for stored in messages), default=0),
    )


def _topped_up(db: Connection, session_id: str, kept: KeptHistory) -> KeptHistory | None:
    """Return the kept history with what is missing; None if it has to be read again."""
    state = one(db, "messages.history_state", (session_id,))
    if state is None or state["rewrites"] != kept.rewrites:
        return None
    missing = state["message_count"] - kept.count
    if missing == 0:
        return kept
    if missing < 0 or missing > MAX_TOP_UP:
        return None
    after = many(db, "messages.history_after", (session_id, kept.last_id))
    if len(after) != missing:
        return None
    new = [read_message(row) for row in after]
    messages = sorted([*kept.messages, *new], key=lambda stored: (stored.seq, stored.id))
    last_id = max(stored.id for stored in new)
    return KeptHistory(messages, state["message_count"], kept.rewrites, last_id)
