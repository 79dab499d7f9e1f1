"""Calls that a turn handed to its client: who waits for them, and their late results."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from hermes.domain.messages import AssistantMessage, ToolCall, ToolMessage
from hermes.domain.turn import ClientResult
from hermes.state.memory.tables import MemoryPart
from hermes.state.unanswered import client_answer, seated_call

__all__ = ["HandedPart", "SeatedCall"]


class SeatedCall(Struct, frozen=True):
    """A call without a result, and the seat that waits for it."""

    turn_id: str
    call_id: str
    seq: int


class HandedPart(MemoryPart):
    """Implements `handed_call`, and gives late results their seats."""

    async def handed_call(self, call_id: str) -> str | None:
        """Return the session in which this call waits for its client's result."""
        turns = [t for t in reversed(self._tables.turns.values()) if t.id in self._tables.handed]
        turns.sort(key=lambda turn: -(turn.finished_at or 0.0))
        for turn in turns:
            for seated in self._waiting_calls(turn.session_id):
                if seated.call_id == call_id:
                    return turn.session_id
        return None

    def _answer_handed(self, session_id: str, results: Sequence[ClientResult], at: float) -> None:
        """Give every call that waits for a client its result, or say that there is none."""
        for seated in self._waiting_calls(session_id):
            call = self._reply_call(session_id, seated)
            if call is not None:
                self._put_late(
                    session_id, seated.turn_id, seated.seq, client_answer(call, results), at
                )
        turns = self._tables.turns.values()
        self._tables.handed -= {turn.id for turn in turns if turn.session_id == session_id}

    def _answer_copies(
        self,
        branch_id: str,
        unanswered: Iterable[SeatedCall],
        results: Sequence[ClientResult],
        at: float,
    ) -> None:
        """Give copied calls of a branch their results, as far as their reply was copied."""
        for seated in unanswered:
            call = self._reply_call(branch_id, seated)
            if call is not None:
                self._put_late(branch_id, None, seated.seq, client_answer(call, results), at)

    def _waiting_calls(self, session_id: str) -> list[SeatedCall]:
        """Return the handed calls of a session that have no result, in order."""
        if not self._tables.handed:
            return []
        return [
            seated
            for seated in self._unanswered(session_id)
            if seated.turn_id in self._tables.handed
            and self._reply_call(session_id, seated, seated.turn_id) is not None
        ]

    def _unanswered(self, session_id: str, through_id: int | None = None) -> list[SeatedCall]:
        """Return the calls of a session without a result, or without one up to a message."""
        tables = self._tables
        answered = {
            (m.turn_id, m.message.call_id)
            for m in tables.messages.values()
            if isinstance(m.message, ToolMessage) and (through_id is None or m.id <= through_id)
        }
        found = [
            SeatedCall(turn_id, call_id, seat.seq)
            for (turn_id, call_id), seat in tables.seats.items()
            if tables.turns[turn_id].session_id == session_id and (turn_id, call_id) not in answered
        ]
        return sorted(found, key=lambda seated: seated.seq)

    def _reply_call(
        self, session_id: str, seated: SeatedCall, turn_id: str | None = None
    ) -> ToolCall | None:
        """Return the call as the active reply right before its seat made it."""
        replies = [
            (m, m.message)
            for m in self._messages_of(session_id)
            if m.active and m.seq < seated.seq and isinstance(m.message, AssistantMessage)
        ]
        if not replies:
            return None
        stored, reply = replies[-1]
        if turn_id is not None and stored.turn_id != turn_id:
            return None
        return seated_call(reply.tool_calls, stored.seq, seated.call_id, seated.seq)

    def _put_late(
        self, session_id: str, turn_id: str | None, seq: int, message: ToolMessage, at: float
    ) -> None:
        self._take_seats(session_id, at, seats=0, messages=[message])
        self._put(message, session_id=session_id, turn_id=turn_id, seq=seq, at=at)
