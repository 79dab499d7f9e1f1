"""The outbox, as the ledger keeps it."""

from collections.abc import Sequence
from typing import Protocol

from hermes.domain.outbound import OutboxEntry, OutboxState

__all__ = ["OutboxStore"]


class OutboxStore(Protocol):
    """What is to be sent, and what became of it."""

    async def enqueue(self, entry: OutboxEntry) -> OutboxEntry:
        """Commit an entry; an id that exists already returns the existing one."""
        ...

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None:
        """Return one entry."""
        ...

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        """Move pending to sending, counting the attempt; None if it is not pending."""
        ...

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
        ...

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        """Return everything that a turn has sent or wants to send, in order."""
        ...

    async def outbox(
        self, states: Sequence[OutboxState], *, platform: str | None = None, limit: int = 100
    ) -> list[OutboxEntry]:
        """List entries in these states, oldest first and in order within a turn."""
        ...
