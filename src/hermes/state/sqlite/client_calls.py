"""Calls that a turn handed to its client: who waits for them, and their late results.

A turn that hands calls out has ended, so the results come with the next turn of the
session; they go into the seats that the calls have reserved. A call that gets no result
then is recorded as not answered.
"""

from collections.abc import Iterator, Sequence
from sqlite3 import Connection, Row
from typing import Any

from hermes.domain.messages import ToolCall, ToolMessage, ToolOutcome
from hermes.domain.session import NewSession
from hermes.domain.turn import ClientResult
from hermes.state.sqlite.base import change, many, one
from hermes.state.sqlite.messages import Seat, put_late
from hermes.state.sqlite.rows import read_calls

NOT_ANSWERED = "The client did not answer this call."
NEVER = 2**62
"""Larger than the id of any message."""


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
    db: Connection, wanted: dict[str, Any], results: Sequence[ClientResult], at: float
) -> None:
    """Give the copied calls that `handed.unanswered` finds their results in a branch."""
    for row, call in _seated(many(db, "handed.unanswered", wanted)):
        seat = Seat(session_id=wanted["to"], seq=row["seq"], timestamp=at)
        put_late(db, _answer(call, results), seat)


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
