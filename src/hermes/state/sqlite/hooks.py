"""Webhook deliveries, each known by its route and the sender's id."""

from collections.abc import Sequence

from hermes.domain.webhooks import HookDelivery, HookState
from hermes.state.sqlite.base import LedgerPart, change
from hermes.state.sqlite.rows import columns, dump, reader
from hermes.state.titles import clean_text

read_delivery = reader(HookDelivery, json={"target_extra": dict[str, str]})


class HookPart(LedgerPart):
    """Implements `HookStore`."""

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        return await self._change(read_delivery, "hooks.receive", columns(delivery))

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
        values = {
            "route": route,
            "delivery_id": delivery_id,
            "state": state,
            "at": at,
            "session_id": session_id,
            "error": error and clean_text(error),
        }
        return await self._change(read_delivery, "hooks.update", values)

    async def hook(self, route: str, delivery_id: str) -> HookDelivery | None:
        return await self._get(read_delivery, "hooks.get", (route, delivery_id))

    async def hooks(
        self, states: Sequence[HookState], *, route: str | None = None, limit: int = 100
    ) -> list[HookDelivery]:
        values = {"states": dump(list(states)), "route": route, "limit": limit}
        return await self._list(read_delivery, "hooks.matching", values)

    async def prune_hooks(self, before: float) -> int:
        return await self._write(lambda connection: change(connection, "hooks.prune", (before,)))
