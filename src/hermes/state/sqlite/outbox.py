"""The outbox: what is to be sent, and what became of it."""

import sqlite3
from collections.abc import Sequence

from hermes.domain.outbound import OutboxEntry, OutboxState
from hermes.state.refusals import unknown_outbox
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, one, rows
from hermes.state.titles import clean_text

__all__ = ["OutboxPart"]


class OutboxPart(LedgerPart):
    """Implements `OutboxStore`."""

    async def enqueue(self, entry: OutboxEntry) -> OutboxEntry:
        """Commit an entry; an id that exists already returns the existing one."""

        def work(connection: sqlite3.Connection) -> OutboxEntry:
            change(connection, "outbox.insert", codec.outbox_columns(entry))
            row = one(connection, "outbox.get", (entry.id,))
            assert row is not None
            return codec.outbox_entry(row)

        return await self._write(work)

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None:
        """Return one entry."""
        row = await self._read(lambda connection: one(connection, "outbox.get", (entry_id,)))
        return None if row is None else codec.outbox_entry(row)

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        """Move pending to sending, counting the attempt; None if it is not pending."""
        values = {"id": entry_id, "at": at}
        row = await self._write(lambda connection: one(connection, "outbox.claim", values))
        return None if row is None else codec.outbox_entry(row)

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
        values = {
            "id": entry_id,
            "state": state.value,
            "at": at,
            "native_id": native_id,
            "content": None if content is None else clean_text(content),
            "error": None if error is None else clean_text(error),
        }

        def work(connection: sqlite3.Connection) -> OutboxEntry:
            row = one(connection, "outbox.update", values)
            if row is None:
                raise unknown_outbox(entry_id)
            return codec.outbox_entry(row)

        return await self._write(work)

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        """Return everything that a turn has sent or wants to send, in order."""
        found = await self._quick(lambda c: rows(c, "outbox.of_turn", (turn_id,)))
        return [codec.outbox_entry(row) for row in found]

    async def outbox(
        self, states: Sequence[OutboxState], *, platform: str | None = None, limit: int = 100
    ) -> list[OutboxEntry]:
        """List entries in these states, oldest first and in order within a turn."""
        wanted = codec.dump([state.value for state in states])
        values = {"states": wanted, "platform": platform, "limit": limit}
        found = await self._read(lambda connection: rows(connection, "outbox.in_states", values))
        return [codec.outbox_entry(row) for row in found]
