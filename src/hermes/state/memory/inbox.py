"""The inbox: messages that arrived, each admitted once."""

from collections.abc import Sequence

import msgspec

from hermes.domain.inbound import InboxEntry, InboxState
from hermes.domain.ports.state import Admission, Arrival
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import inbox_gone

__all__ = ["InboxPart"]


class InboxPart(MemoryPart):
    """Implements `InboxStore`."""

    async def admit(self, arrival: Arrival) -> Admission:
        """Commit a message under (platform, account, native id), once."""
        return self._admit(arrival)

    def _admit(self, arrival: Arrival) -> Admission:
        message = arrival.message
        native = (message.platform, message.account, message.native_id)
        known = self._tables.by_native.get(native)
        if known is not None:
            return Admission(entry=self._tables.inbox[known], duplicate=True)
        self._session(arrival.session_id)
        entry = InboxEntry(
            id=next(self._tables.inbox_ids),
            agent_id=arrival.agent_id,
            session_key=arrival.session_key,
            session_id=arrival.session_id,
            message=message,
            admitted_at=arrival.at,
            state=InboxState.DROPPED if arrival.handled_as else InboxState.WAITING,
            drop_reason=arrival.handled_as,
        )
        self._tables.inbox[entry.id] = entry
        self._tables.by_native[native] = entry.id
        return Admission(entry=entry, duplicate=False)

    async def waiting(self, session_id: str) -> list[InboxEntry]:
        """Return what no turn has taken yet, in order of admission."""
        return [entry for entry in self._waiting() if entry.session_id == session_id]

    async def sessions_waiting(self) -> list[str]:
        """Return the sessions that have something waiting, the longest wait first."""
        return list(dict.fromkeys(entry.session_id for entry in self._waiting()))

    async def mark_answered(self, turn_id: str) -> int:
        """Record that the outcome of a turn has been delivered; return for how many entries."""
        taken = [entry for entry in self._taken() if entry.turn_id == turn_id]
        for entry in taken:
            self._tables.inbox[entry.id] = msgspec.structs.replace(entry, state=InboxState.ANSWERED)
        return len(taken)

    async def unanswered(self, platforms: Sequence[str]) -> list[InboxEntry]:
        """Return what a turn has taken whose outcome was not delivered yet, oldest first."""
        return [entry for entry in self._taken() if entry.message.platform in platforms]

    async def entries_of_turn(self, turn_id: str) -> list[InboxEntry]:
        """Return what a turn has taken, in order of admission."""
        return [entry for entry in self._tables.inbox.values() if entry.turn_id == turn_id]

    def _taken(self) -> list[InboxEntry]:
        return [e for e in self._tables.inbox.values() if e.state is InboxState.TAKEN]

    async def drop(self, inbox_ids: Sequence[int], reason: str) -> None:
        """Record that these will deliberately not be answered.

        What a turn has taken already stays taken.
        """
        for entry in self._waiting():
            if entry.id in inbox_ids:
                self._tables.inbox[entry.id] = msgspec.structs.replace(
                    entry, state=InboxState.DROPPED, drop_reason=reason
                )

    def _waiting(self) -> list[InboxEntry]:
        entries = self._tables.inbox.values()
        return [entry for entry in entries if entry.state is InboxState.WAITING]

    def _check_takeable(self, session_id: str, inbox_ids: Sequence[int]) -> None:
        there = {entry.id for entry in self._waiting() if entry.session_id == session_id}
        seen: set[int] = set()
        gone: list[int] = []
        for inbox_id in inbox_ids:
            if inbox_id not in there or inbox_id in seen:
                gone.append(inbox_id)
            seen.add(inbox_id)
        if gone:
            raise inbox_gone(gone)

    def _take(self, turn_id: str, inbox_ids: Sequence[int]) -> None:
        for inbox_id in inbox_ids:
            self._tables.inbox[inbox_id] = msgspec.structs.replace(
                self._tables.inbox[inbox_id], state=InboxState.TAKEN, turn_id=turn_id
            )
