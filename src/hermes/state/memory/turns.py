"""Turns and what they write."""

from collections.abc import Sequence

import msgspec

from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage
from hermes.domain.ports.state import BegunTurn
from hermes.domain.session import StoredMessage
from hermes.domain.turn import NewTurn, Turn, TurnError, TurnState
from hermes.domain.usage import UsageRecord
from hermes.state.memory.handed import HandedPart
from hermes.state.memory.inbox import InboxPart
from hermes.state.memory.tables import Seat
from hermes.state.memory.usage import UsagePart
from hermes.state.refusals import (
    call_started,
    duplicate_call,
    has_result,
    id_taken,
    session_busy,
    unknown_call,
)

__all__ = ["TurnPart"]


class TurnPart(HandedPart, InboxPart, UsagePart):
    """Implements `TurnStore`."""

    async def begin_turn(self, new: NewTurn) -> BegunTurn:
        """Commit the turn, its inputs and the taking of its inbox entries together."""
        session = self._session(new.session_id)
        if self._open_turn_of(new.session_id) is not None:
            raise session_busy(new.session_id)
        if new.id in self._tables.turns:
            raise id_taken("turn", new.id)
        self._check_takeable(new.session_id, new.inbox_ids)
        turn = Turn(
            id=new.id,
            session_id=new.session_id,
            agent_id=session.agent_id,
            owner=new.owner,
            state=TurnState.RUNNING,
            started_at=new.at,
            updated_at=new.at,
        )
        self._tables.turns[turn.id] = turn
        self._change_session(new.session_id, ended_at=None, end_reason=None)
        self._take(turn.id, new.inbox_ids)
        self._answer_handed(turn.session_id, new.results, new.at)
        inputs = self._put_inputs(turn, new.inputs, new.at)
        return BegunTurn(turn=turn, inputs=tuple(inputs))

    async def add_inputs(
        self, turn_id: str, inputs: Sequence[UserMessage], inbox_ids: Sequence[int], at: float
    ) -> list[StoredMessage]:
        """Append steering text or a notice to a running turn."""
        turn = self._open_turn(turn_id)
        self._check_takeable(turn.session_id, inbox_ids)
        self._touch(turn, at)
        self._take(turn_id, inbox_ids)
        return self._put_inputs(turn, inputs, at)

    async def record_reply(
        self, turn_id: str, message: AssistantMessage, usage: UsageRecord | None, at: float
    ) -> StoredMessage:
        """Commit an assistant message and its usage; seats its calls' results."""
        turn = self._open_turn(turn_id)
        calls = message.tool_calls
        seen: set[str] = set()
        for call in calls:
            if call.id in seen or (turn_id, call.id) in self._tables.seats:
                raise duplicate_call(call.id)
            seen.add(call.id)
        self._touch(turn, at)
        seq = self._take_seats(turn.session_id, at, seats=1 + len(calls), messages=[message])
        before = self._session(turn.session_id).tool_call_count
        self._change_session(turn.session_id, tool_call_count=before + len(calls))
        for offset, call in enumerate(calls, start=1):
            self._tables.seats[turn_id, call.id] = Seat(seq + offset)
        if usage is not None:
            self._add_usage(msgspec.structs.replace(usage, session_id=turn.session_id))
        return self._put(message, session_id=turn.session_id, turn_id=turn_id, seq=seq, at=at)

    async def start_call(self, turn_id: str, call_id: str, at: float) -> None:
        """Record that a call is about to have its effect. Called at most once a call."""
        turn = self._open_turn(turn_id)
        seat = self._tables.seats.get((turn_id, call_id))
        if seat is None:
            raise unknown_call(call_id)
        if seat.started:
            raise call_started(call_id)
        self._touch(turn, at)
        seat.started = True

    async def started_calls(self, turn_id: str) -> frozenset[str]:
        """Return the calls of the turn that were started."""
        seats = self._tables.seats.items()
        return frozenset(call for (turn, call), seat in seats if turn == turn_id and seat.started)

    async def record_result(self, turn_id: str, message: ToolMessage, at: float) -> StoredMessage:
        """Commit a tool result in its reserved seat; `Conflict` if it has one already."""
        turn = self._open_turn(turn_id)
        seat = self._tables.seats.get((turn_id, message.call_id))
        if seat is None:
            raise unknown_call(message.call_id)
        for stored in self._tables.messages.values():
            if (
                stored.turn_id == turn_id
                and isinstance(stored.message, ToolMessage)
                and stored.message.call_id == message.call_id
            ):
                raise has_result(message.call_id)
        self._touch(turn, at)
        self._take_seats(turn.session_id, at, seats=0, messages=[message])
        return self._put(message, session_id=turn.session_id, turn_id=turn_id, seq=seat.seq, at=at)

    async def set_waiting(self, turn_id: str, *, waiting: bool, at: float) -> None:
        """Switch between running and waiting on a person."""
        turn = self._open_turn(turn_id)
        state = TurnState.WAITING if waiting else TurnState.RUNNING
        self._tables.turns[turn_id] = msgspec.structs.replace(
            turn, state=state, updated_at=max(turn.updated_at, at)
        )

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
        turn = self._open_turn(turn_id)
        self._tables.turns[turn_id] = msgspec.structs.replace(
            turn,
            state=state,
            error=error,
            finished_at=at,
            updated_at=max(turn.updated_at, at),
        )
        self._tables.turn_ends[turn_id] = self._end_of_session(turn.session_id)
        if handed:
            self._tables.handed.add(turn_id)
        updated_at = max(self._session(turn.session_id).updated_at, at)
        self._change_session(turn.session_id, updated_at=updated_at)

    async def turn(self, turn_id: str) -> Turn | None:
        """Return one turn."""
        return self._tables.turns.get(turn_id)

    async def open_turns(self, session_id: str | None = None) -> list[Turn]:
        """Return turns that have not ended, oldest first."""
        found = [
            turn
            for turn in self._tables.turns.values()
            if turn.finished_at is None and session_id in (None, turn.session_id)
        ]
        return sorted(found, key=lambda turn: turn.started_at)

    async def release_turn(self, turn_id: str, at: float) -> None:
        """Note that its owner lays an open turn down in good order, to be picked up later."""
        turn = self._tables.turns.get(turn_id)
        if turn is not None and turn.finished_at is None:
            self._tables.turns[turn_id] = msgspec.structs.replace(
                turn, releases=turn.releases + 1, updated_at=max(turn.updated_at, at)
            )

    async def claim_turn(
        self, turn_id: str, *, owner: str, previous: str, at: float
    ) -> Turn | None:
        """Take over an open turn of a dead owner and count the resume."""
        turn = self._tables.turns.get(turn_id)
        if turn is None or turn.finished_at is not None or turn.owner != previous:
            return None
        claimed = msgspec.structs.replace(
            turn, owner=owner, resumes=turn.resumes + 1, updated_at=max(turn.updated_at, at)
        )
        self._tables.turns[turn_id] = claimed
        return claimed

    def _put_inputs(
        self, turn: Turn, inputs: Sequence[UserMessage], at: float
    ) -> list[StoredMessage]:
        first = self._take_seats(turn.session_id, at, seats=len(inputs), messages=inputs)
        return [
            self._put(message, session_id=turn.session_id, turn_id=turn.id, seq=seq, at=at)
            for seq, message in enumerate(inputs, start=first)
        ]
