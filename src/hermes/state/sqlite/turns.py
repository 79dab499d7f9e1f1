"""Turns and what they write, each step one transaction."""

import sqlite3
from collections.abc import Sequence

from hermes.domain.errors import HermesError
from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage
from hermes.domain.ports.ledger import BegunTurn
from hermes.domain.session import StoredMessage
from hermes.domain.turn import NewTurn, Turn, TurnError, TurnState
from hermes.domain.usage import UsageRecord
from hermes.state.refusals import (
    call_started,
    duplicate_call,
    has_result,
    id_taken,
    session_busy,
    turn_ended,
    unknown_call,
    unknown_session,
    unknown_turn,
)
from hermes.state.sqlite import codec
from hermes.state.sqlite.handed import answer_handed
from hermes.state.sqlite.inbox import take_entries
from hermes.state.sqlite.part import LedgerPart, change, one, rows
from hermes.state.sqlite.seats import put, take_seats
from hermes.state.sqlite.usage import add_usage

__all__ = ["TurnPart"]


class TurnPart(LedgerPart):
    """Implements `TurnStore`."""

    async def begin_turn(self, new: NewTurn) -> BegunTurn:
        """Commit the turn, its inputs and the taking of its inbox entries together."""

        def work(connection: sqlite3.Connection) -> BegunTurn:
            turn = _insert(connection, new)
            change(connection, "turns.reopen_session", (new.session_id,))
            take_entries(connection, new.session_id, new.id, new.inbox_ids)
            answer_handed(connection, turn.session_id, new.results, new.at)
            inputs = _put_inputs(connection, turn.session_id, turn.id, new.inputs, new.at)
            return BegunTurn(turn=turn, inputs=tuple(inputs))

        return await self._write(work)

    async def add_inputs(
        self, turn_id: str, inputs: Sequence[UserMessage], inbox_ids: Sequence[int], at: float
    ) -> list[StoredMessage]:
        """Append steering text or a notice to a running turn."""

        def work(connection: sqlite3.Connection) -> list[StoredMessage]:
            session_id = _touch(connection, turn_id, at)
            take_entries(connection, session_id, turn_id, inbox_ids)
            return _put_inputs(connection, session_id, turn_id, inputs, at)

        return await self._write(work)

    async def record_reply(
        self, turn_id: str, message: AssistantMessage, usage: UsageRecord | None, at: float
    ) -> StoredMessage:
        """Commit an assistant message and its usage; seats its calls' results."""
        calls = message.tool_calls

        def work(connection: sqlite3.Connection) -> StoredMessage:
            session_id = _touch(connection, turn_id, at)
            seq = take_seats(connection, session_id, at, seats=1 + len(calls), messages=[message])
            for offset, call in enumerate(calls, start=1):
                try:
                    change(connection, "turns.seat_call", (turn_id, call.id, seq + offset))
                except sqlite3.IntegrityError as error:
                    raise duplicate_call(call.id) from error
            if usage is not None:
                add_usage(connection, usage, session_id)
            return put(connection, message, session_id=session_id, turn_id=turn_id, seq=seq, at=at)

        return await self._write(work)

    async def start_call(self, turn_id: str, call_id: str, at: float) -> None:
        """Record that a call is about to have its effect. Called at most once a call."""

        def work(connection: sqlite3.Connection) -> None:
            _touch(connection, turn_id, at)
            if change(connection, "turns.start_call", (at, turn_id, call_id)):
                return
            known = one(connection, "turns.call", (turn_id, call_id))
            raise unknown_call(call_id) if known is None else call_started(call_id)

        await self._write(work)

    async def started_calls(self, turn_id: str) -> frozenset[str]:
        """Return the calls of the turn that were started."""
        found = await self._quick(lambda c: rows(c, "turns.started_calls", (turn_id,)))
        return frozenset(row["call_id"] for row in found)

    async def record_result(self, turn_id: str, message: ToolMessage, at: float) -> StoredMessage:
        """Commit a tool result in its reserved seat; `Conflict` if it has one already."""

        def work(connection: sqlite3.Connection) -> StoredMessage:
            session_id = _touch(connection, turn_id, at)
            call = one(connection, "turns.call", (turn_id, message.call_id))
            if call is None:
                raise unknown_call(message.call_id)
            take_seats(connection, session_id, at, seats=0, messages=[message])
            seq = int(call["seq"])
            try:
                return put(
                    connection, message, session_id=session_id, turn_id=turn_id, seq=seq, at=at
                )
            except sqlite3.IntegrityError as error:
                raise has_result(message.call_id) from error

        return await self._write(work)

    async def set_waiting(self, turn_id: str, *, waiting: bool, at: float) -> None:
        """Switch between running and waiting on a person."""
        state = TurnState.WAITING if waiting else TurnState.RUNNING

        def work(connection: sqlite3.Connection) -> None:
            values = {"id": turn_id, "state": state.value, "at": at}
            if one(connection, "turns.set_state", values) is None:
                raise _not_open(connection, turn_id)

        await self._write(work)

    async def finish_turn(
        self,
        turn_id: str,
        state: TurnState,
        error: TurnError | None,
        at: float,
        *,
        handed: bool = False,
    ) -> None:
        """End the turn. Ending it again is a `Conflict`."""
        if state.open:
            raise ValueError(f"a turn cannot end as {state.value}")
        text = None if error is None else codec.dump(error)

        def work(connection: sqlite3.Connection) -> None:
            values = {
                "id": turn_id,
                "state": state.value,
                "error": text,
                "at": at,
                "handed": handed,
            }
            row = one(connection, "turns.finish", values)
            if row is None:
                raise _not_open(connection, turn_id)
            change(connection, "turns.touch_session", {"id": row["session_id"], "at": at})

        await self._write(work)

    async def turn(self, turn_id: str) -> Turn | None:
        """Return one turn."""
        row = await self._quick(lambda connection: one(connection, "turns.get", (turn_id,)))
        return None if row is None else codec.turn(row)

    async def open_turns(self, session_id: str | None = None) -> list[Turn]:
        """Return turns that have not ended, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Turn]:
            found = (
                rows(connection, "turns.open")
                if session_id is None
                else rows(connection, "turns.open_in_session", (session_id,))
            )
            return [codec.turn(row) for row in found]

        return await self._read(work)

    async def release_turn(self, turn_id: str, at: float) -> None:
        """Note that its owner lays an open turn down in good order, to be picked up later."""
        values = {"id": turn_id, "at": at}
        await self._write(lambda connection: change(connection, "turns.release", values))

    async def claim_turn(
        self, turn_id: str, *, owner: str, previous: str, at: float
    ) -> Turn | None:
        """Take over an open turn of a dead owner and count the resume."""
        values = {"id": turn_id, "owner": owner, "previous": previous, "at": at}
        row = await self._write(lambda connection: one(connection, "turns.claim", values))
        return None if row is None else codec.turn(row)


def _insert(connection: sqlite3.Connection, new: NewTurn) -> Turn:
    values = {"id": new.id, "session_id": new.session_id, "owner": new.owner, "at": new.at}
    try:
        row = one(connection, "turns.insert", values)
    except sqlite3.IntegrityError as error:
        if one(connection, "turns.open_in_session", (new.session_id,)):
            raise session_busy(new.session_id) from error
        raise id_taken("turn", new.id) from error
    if row is None:
        raise unknown_session(new.session_id)
    return codec.turn(row)


def _put_inputs(
    connection: sqlite3.Connection,
    session_id: str,
    turn_id: str,
    inputs: Sequence[UserMessage],
    at: float,
) -> list[StoredMessage]:
    first = take_seats(connection, session_id, at, seats=len(inputs), messages=inputs)
    return [
        put(connection, message, session_id=session_id, turn_id=turn_id, seq=seq, at=at)
        for seq, message in enumerate(inputs, start=first)
    ]


def _touch(connection: sqlite3.Connection, turn_id: str, at: float) -> str:
    """Check that the turn is open and return its session."""
    row = one(connection, "turns.touch", {"id": turn_id, "at": at})
    if row is None:
        raise _not_open(connection, turn_id)
    return str(row["session_id"])


def _not_open(connection: sqlite3.Connection, turn_id: str) -> HermesError:
    known = one(connection, "turns.exists", (turn_id,))
    return unknown_turn(turn_id) if known is None else turn_ended(turn_id)
