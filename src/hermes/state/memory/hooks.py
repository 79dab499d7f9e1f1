"""Webhook deliveries, each known by its route and the sender's id."""

from collections.abc import Sequence

import msgspec

from hermes.domain.webhooks import HookDelivery, HookState
from hermes.state.memory.tables import MemoryPart

__all__ = ["HookPart"]


class HookPart(MemoryPart):
    """Implements `HookStore`."""

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        """Commit a delivery; None if it is under way, done or ignored already."""
        name = (delivery.route, delivery.delivery_id)
        known = self._tables.hooks.get(name)
        if known is not None:
            if known.state is not HookState.FAILED:
                return None
            delivery = msgspec.structs.replace(delivery, attempt=known.attempt + 1)
        self._tables.hooks[name] = delivery
        return delivery

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
        known = self._tables.hooks.get((route, delivery_id))
        if known is None:
            return None
        changed = msgspec.structs.replace(
            known,
            state=state,
            updated_at=max(known.updated_at, at),
            session_id=known.session_id if session_id is None else session_id,
            error=known.error if error is None else error,
        )
        self._tables.hooks[route, delivery_id] = changed
        return changed

    async def hook(self, route: str, delivery_id: str) -> HookDelivery | None:
        """Return one delivery."""
        return self._tables.hooks.get((route, delivery_id))

    async def hooks(
        self, states: Sequence[HookState], *, route: str | None = None, limit: int = 100
    ) -> list[HookDelivery]:
        """List deliveries in these states, oldest first."""
        found = [
            delivery
            for delivery in self._tables.hooks.values()
            if delivery.state in states and route in (None, delivery.route)
        ]
        return sorted(found, key=lambda delivery: delivery.received_at)[:limit]

    async def prune_hooks(self, before: float) -> int:
        """Forget deliveries that were over before then; return how many."""
        over = [
            name
            for name, delivery in self._tables.hooks.items()
            if delivery.state.over and delivery.updated_at < before
        ]
        for name in over:
            del self._tables.hooks[name]
        return len(over)
