"""Webhook deliveries, as the ledger keeps them."""

from collections.abc import Sequence
from typing import Protocol

from hermes.domain.webhooks import HookDelivery, HookState

__all__ = ["HookStore"]


class HookStore(Protocol):
    """Deliveries by route and sender's id."""

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        """Commit a delivery; None if it is under way, done or ignored already.

        One that failed before is taken again, with its attempt counted up.
        """
        ...

    async def update_hook(
        self,
        route: str,
        delivery_id: str,
        *,
        state: HookState,
        at: float,
        session_id: str | None = None,
        error: str | None = None,
    ) -> HookDelivery | None:
        """Record how far a delivery has come; unset fields stay as they are. None: unknown."""
        ...

    async def hook(self, route: str, delivery_id: str) -> HookDelivery | None:
        """Return one delivery."""
        ...

    async def hooks(
        self, states: Sequence[HookState], *, route: str | None = None, limit: int = 100
    ) -> list[HookDelivery]:
        """List deliveries in these states, oldest first."""
        ...

    async def prune_hooks(self, before: float) -> int:
        """Forget deliveries that were over before then; return how many."""
        ...
