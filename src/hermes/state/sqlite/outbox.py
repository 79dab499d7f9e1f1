"""The outbox: what is to be sent, and what became of it."""

from collections.abc import Sequence
from sqlite3 import Connection

from hermes.domain.errors import NotFound
from hermes.domain.outbound import OutboxEntry, OutboxState
from hermes.state.sqlite.base import LedgerPart, change, one
from hermes.state.sqlite.rows import columns, dump, reader
from hermes.state.titles import clean_text

read_entry = reader(OutboxEntry, inner=("target",))


class OutboxPart(LedgerPart):
    """Implements `OutboxStore`."""

    async def enqueue(self, entry: OutboxEntry) -> OutboxEntry:
        values = columns(entry) | columns(entry.target)

        def work(connection: Connection) -> OutboxEntry:
            change(connection, "outbox.insert", values)
            row = one(connection, "outbox.get", (entry.id,))
            assert row is not None
            return read_entry(row)

        return await self._write(work)

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None:
        return await self._get(read_entry, "outbox.get", (entry_id,))

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        return await self._change(read_entry, "outbox.claim", {"id": entry_id, "at": at})

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
        values = {
            "id": entry_id,
            "state": state,
            "at": at,
            "native_id": native_id,
            "content": content and clean_text(content),
            "error": error and clean_text(error),
        }
        found = await self._change(read_entry, "outbox.update", values)
        if found is None:
            raise NotFound(
                f"There is no outbox entry `{entry_id}`.", hint="Its session may have been deleted."
            )
        return found

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        return await self._few(read_entry, "outbox.of_turn", (turn_id,))

    async def outbox(
        self, states: Sequence[OutboxState], *, platform: str | None = None, limit: int = 100
    ) -> list[OutboxEntry]:
        values = {"states": dump(list(states)), "platform": platform, "limit": limit}
        return await self._list(read_entry, "outbox.in_states", values)
