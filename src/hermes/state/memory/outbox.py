"""The outbox: what is to be sent, and what became of it."""

from collections.abc import Sequence

import msgspec

from hermes.domain.outbound import OutboxEntry, OutboxState
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import unknown_outbox

__all__ = ["OutboxPart"]


class OutboxPart(MemoryPart):
    """Implements `OutboxStore`."""

    async def enqueue(self, entry: OutboxEntry) -> OutboxEntry:
        """Commit an entry; an id that exists already returns the existing one."""
        return self._tables.outbox.setdefault(entry.id, entry)

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None:
        """Return one entry."""
        return self._tables.outbox.get(entry_id)

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        """Move pending to sending, counting the attempt; None if it is not pending."""
        entry = self._tables.outbox.get(entry_id)
        if entry is None or entry.state is not OutboxState.PENDING:
            return None
        return self._change_entry(
            entry, state=OutboxState.SENDING, attempts=entry.attempts + 1, updated_at=at
        )

    async def update_outbox(
        self,
        entry_id: str,
        *,
        state: OutboxState,
        at: float,
        native_id: str | None = None,
        content: str | None = None,
        error: str | None = None,
    ) -> OutboxEntry:
        """Record the outcome of a send or an edit. Unset fields stay as they are."""
        entry = self._tables.outbox.get(entry_id)
        if entry is None:
            raise unknown_outbox(entry_id)
        given = {"native_id": native_id, "content": content, "error": error}
        known = {name: value for name, value in given.items() if value is not None}
        return self._change_entry(entry, state=state, updated_at=at, **known)

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        """Return everything that a turn has sent or wants to send, in order."""
        found = [e for e in self._tables.outbox.values() if e.turn_id == turn_id]
        return sorted(found, key=lambda entry: entry.part)

    async def outbox(
        self, states: Sequence[OutboxState], *, platform: str | None = None, limit: int = 100
    ) -> list[OutboxEntry]:
        """List entries in these states, oldest first and in order within a turn."""
        found = [
            entry
            for entry in self._tables.outbox.values()
            if entry.state in states and platform in (None, entry.target.platform)
        ]
        since: dict[str, float] = {}
        for entry in found:
            group = entry.turn_id or entry.id
            since[group] = min(entry.created_at, since.get(group, entry.created_at))

        def order(entry: OutboxEntry) -> tuple[float, str, int]:
            group = entry.turn_id or entry.id
            return since[group], group, entry.part

        return sorted(found, key=order)[:limit]

    def _change_entry(self, entry: OutboxEntry, **values: object) -> OutboxEntry:
        changed = msgspec.structs.replace(entry, **values)
        self._tables.outbox[entry.id] = changed
        return changed
