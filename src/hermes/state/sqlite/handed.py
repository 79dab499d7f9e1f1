"""Calls that a turn handed to its client: who waits for them, and their late results.

A turn that hands calls out has ended, so the results come with the next turn
of the session; they go into the seats that the calls have reserved.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from hermes.domain.messages import ToolCall
from hermes.domain.session import NewSession
from hermes.domain.turn import ClientResult
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import change, one, rows
from hermes.state.sqlite.seats import put, take_seats
from hermes.state.unanswered import client_answer, seated_call

__all__ = ["answer_copies", "answer_handed", "answer_in_branch", "waiting_session"]

NEVER = 2**62
"""Larger than the id of any message."""


def answer_handed(
    connection: sqlite3.Connection, session_id: str, results: Sequence[ClientResult], at: float
) -> None:
    """Give every call that waits for a client its result, or say that there is none."""
    for row, call in _seated(rows(connection, "handed.waiting", (session_id,))):
        message = client_answer(call, results)
        take_seats(connection, session_id, at, seats=0, messages=[message])
        put(
            connection,
            message,
            session_id=session_id,
            turn_id=row["turn_id"],
            seq=row["seq"],
            at=at,
        )
    change(connection, "handed.clear", (session_id,))


def waiting_session(connection: sqlite3.Connection, call_id: str) -> str | None:
    """Return the session in which a call waits for its client's result."""
    for found in rows(connection, "handed.sessions", (call_id,)):
        session_id = str(found["session_id"])
        waiting = _seated(rows(connection, "handed.waiting", (session_id,)))
        if any(call.id == call_id for _, call in waiting):
            return session_id
    return None


def answer_in_branch(connection: sqlite3.Connection, origin: str, branch: NewSession) -> None:
    """Say in a branch that the client of the origin did not answer there."""
    if one(connection, "handed.waiting", (origin,)) is None:
        return
    wanted = {"from": origin, "to": branch.id, "handed": 1, "through_id": NEVER}
    answer_copies(connection, wanted, (), branch.started_at)


def answer_copies(
    connection: sqlite3.Connection,
    wanted: dict[str, object],
    results: Sequence[ClientResult],
    at: float,
) -> None:
    """Give the copied calls that `handed.unanswered` finds their results in a branch."""
    branch = str(wanted["to"])
    for row, call in _seated(rows(connection, "handed.unanswered", wanted)):
        message = client_answer(call, results)
        take_seats(connection, branch, at, seats=0, messages=[message])
        put(connection, message, session_id=branch, turn_id=None, seq=row["seq"], at=at)


def _seated(found: list[sqlite3.Row]) -> Iterator[tuple[sqlite3.Row, ToolCall]]:
    """Pair rows with the calls of their replies; without those whose reply is gone."""
    for row in found:
        calls = codec.tool_calls(row["tool_calls"])
        call = seated_call(calls, row["reply_seq"], row["call_id"], row["seq"])
        if call is not None:
            yield row, call
