"""Turns and what they write, each step one transaction."""

from collections.abc import Sequence
from sqlite3 import Connection, IntegrityError

from hermes.domain.errors import Conflict, HermesError, NotFound
from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage
from hermes.domain.ports.ledger import BegunTurn
from hermes.domain.session import StoredMessage
from hermes.domain.turn import NewTurn, Turn, TurnError, TurnState
from hermes.domain.usage import UsageRecord
from hermes.state.sqlite.base import LedgerPart, change, many, one
from hermes.state.sqlite.client_calls import answer_handed
from hermes.state.sqlite.errors import id_taken, session_busy, unknown_call, unknown_session
from hermes.state.sqlite.inbox import take_entries
from hermes.state.sqlite.messages import put, put_all, put_late, take_seats
from hermes.state.sqlite.rows import dump, reader
from hermes.state.sqlite.usage import add_usage

read_turn = reader(Turn, json={"error": TurnError})


class TurnPart(LedgerPart):
    """Implements `TurnStore`."""

    async def begin_turn(self, new: NewTurn) -> BegunTurn:
        def work(connection: Connection) -> BegunTurn:
            turn = _insert(connection, new)
            change(connection, "turns.reopen_session", (new.session_id,))
            take_entries(connection, new.session_id, new.id, new.inbox_ids)
            answer_handed(connection, turn.session_id, new.results, new.at)
            inputs = put_all(
                connection, new.inputs, session_id=turn.session_id, turn_id=turn.id, at=new.at
            )
            return BegunTurn(turn=turn, inputs=tuple(inputs))

        return await self._write(work)

    async def add_inputs(
        self, turn_id: str, inputs: Sequence[UserMessage], inbox_ids: Sequence[int], at: float
    ) -> list[StoredMessage]:
        def work(connection: Connection) -> list[StoredMessage]:
            session_id = _touch(connection, turn_id, at)
            take_entries(connection, session_id, turn_id, inbox_ids)
            return put_all(connection, inputs, session_id=session_id, turn_id=turn_id, at=at)

        return await self._write(work)

    async def record_reply(
        self, turn_id: str, message: AssistantMessage, usage: UsageRecord | None, at: float
    ) -> StoredMessage:
        calls = message.tool_calls

        def work(connection: Connection) -> StoredMessage:
            session_id = _touch(connection, turn_id, at)
            seq = take_seats(connection, session_id, at, seats=1 + len(calls), messages=[message])
            for offset, call in enumerate(calls, start=1):
                try:
                    change(connection, "turns.seat_call", (turn_id, call.id, seq + offset))
                except IntegrityError as error:
                    raise Conflict(
                        f"Two tool calls of one turn have the id `{call.id}`.",
                        hint="Give each call its own id.",
                    ) from error
            if usage is not None:
                add_usage(connection, usage, session_id)
            return put(connection, message, session_id=session_id, turn_id=turn_id, seq=seq, at=at)

        return await self._write(work)

    async def start_call(self, turn_id: str, call_id: str, at: float) -> None:
        def work(connection: Connection) -> None:
            _touch(connection, turn_id, at)
            if change(connection, "turns.start_call", (at, turn_id, call_id)):
                return
            if one(connection, "turns.call", (turn_id, call_id)) is None:
                raise unknown_call(call_id)
            raise Conflict(
                f"Tool call `{call_id}` was already started.", hint="Its effect may have happened."
            )

        await self._write(work)

    async def started_calls(self, turn_id: str) -> frozenset[str]:
        found = await self._quick(lambda c: many(c, "turns.started_calls", (turn_id,)))
        return frozenset(row["call_id"] for row in found)

    async def record_result(self, turn_id: str, message: ToolMessage, at: float) -> StoredMessage:
        def work(connection: Connection) -> StoredMessage:
            session_id = _touch(connection, turn_id, at)
            call = one(connection, "turns.call", (turn_id, message.call_id))
            if call is None:
                raise unknown_call(message.call_id)
            seq = int(call["seq"])
            try:
                return put_late(
                    connection, message, session_id=session_id, turn_id=turn_id, seq=seq, at=at
                )
            except IntegrityError as error:
                raise Conflict(
                    f"Tool call `{message.call_id}` already has a result.",
                    hint="Read it from history.",
                ) from error

        return await self._write(work)

    async def set_waiting(self, turn_id: str, *, waiting: bool, at: float) -> None:
        state = TurnState.WAITING if waiting else TurnState.RUNNING

        def work(connection: Connection) -> None:
            values = {"id": turn_id, "state": state, "at": at}
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
        if state.open:
            raise ValueError(f"a turn cannot end as {state.value}")
        text = None if error is None else dump(error)
        values = {"id": turn_id, "state": state, "error": text, "at": at, "handed": handed}

        def work(connection: Connection) -> None:
            row = one(connection, "turns.finish", values)
            if row is None:
                raise _not_open(connection, turn_id)
            change(connection, "turns.touch_session", {"id": row["session_id"], "at": at})

        await self._write(work)

    async def turn(self, turn_id: str) -> Turn | None:
        return await self._get(read_turn, "turns.get", (turn_id,))

    async def open_turns(self, session_id: str | None = None) -> list[Turn]:
        if session_id is None:
            return await self._list(read_turn, "turns.open")
        return await self._list(read_turn, "turns.open_in_session", (session_id,))

    async def release_turn(self, turn_id: str, at: float) -> None:
        await self._write(lambda c: change(c, "turns.release", {"id": turn_id, "at": at}))

    async def claim_turn(
        self, turn_id: str, *, owner: str, previous: str, at: float
    ) -> Turn | None:
        values = {"id": turn_id, "owner": owner, "previous": previous, "at": at}
        return await self._change(read_turn, "turns.claim", values)


def _insert(connection: Connection, new: NewTurn) -> Turn:
    values = {"id": new.id, "session_id": new.session_id, "owner": new.owner, "at": new.at}
    try:
        row = one(connection, "turns.insert", values)
    except IntegrityError as error:
        if one(connection, "turns.open_in_session", (new.session_id,)):
            raise session_busy(new.session_id) from error
        raise id_taken("turn", new.id) from error
    if row is None:
        raise unknown_session(new.session_id)
    return read_turn(row)


def _touch(connection: Connection, turn_id: str, at: float) -> str:
    """Check that the turn is open and return its session."""
    row = one(connection, "turns.touch", {"id": turn_id, "at": at})
    if row is None:
        raise _not_open(connection, turn_id)
    return str(row["session_id"])


def _not_open(connection: Connection, turn_id: str) -> HermesError:
    if one(connection, "turns.exists", (turn_id,)) is None:
        return NotFound(f"There is no turn `{turn_id}`.", hint="Its session may have been deleted.")
    return Conflict(f"Turn `{turn_id}` has already ended.", hint="Begin a new turn.")
