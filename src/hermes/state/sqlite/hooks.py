"""Webhook deliveries, each known by its route and the sender's id."""

import sqlite3
from collections.abc import Sequence

import msgspec

from hermes.domain.webhooks import HookDelivery, HookState
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, one, rows
from hermes.state.titles import clean_text

__all__ = ["HookPart"]

_extra = msgspec.json.Decoder(dict[str, str])


class HookPart(LedgerPart):
    """Implements `HookStore`."""

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        """Commit a delivery; None if it is under way, done or ignored already."""
        columns = msgspec.structs.asdict(delivery)
        columns["state"] = delivery.state.value
        columns["prompt"] = clean_text(delivery.prompt)
        columns["target_extra"] = codec.dump(delivery.target_extra)
        row = await self._write(lambda connection: one(connection, "hooks.receive", columns))
        return None if row is None else _delivery(row)

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
        values = {
            "route": route,
            "delivery_id": delivery_id,
            "state": state.value,
            "at": at,
            "session_id": session_id,
            "error": error and clean_text(error),
        }
        row = await self._write(lambda connection: one(connection, "hooks.update", values))
        return None if row is None else _delivery(row)

    async def hook(self, route: str, delivery_id: str) -> HookDelivery | None:
        """Return one delivery."""
        row = await self._quick(lambda c: one(c, "hooks.get", (route, delivery_id)))
        return None if row is None else _delivery(row)

    async def hooks(
        self, states: Sequence[HookState], *, route: str | None = None, limit: int = 100
    ) -> list[HookDelivery]:
        """List deliveries in these states, oldest first."""
        values = {"states": codec.dump(list(states)), "route": route, "limit": limit}
        found = await self._read(lambda connection: rows(connection, "hooks.matching", values))
        return [_delivery(row) for row in found]

    async def prune_hooks(self, before: float) -> int:
        """Forget deliveries that were over before then; return how many."""
        return await self._write(lambda connection: change(connection, "hooks.prune", (before,)))


def _delivery(row: sqlite3.Row) -> HookDelivery:
    return HookDelivery(
        route=row["route"],
        delivery_id=row["delivery_id"],
        event=row["event"],
        state=HookState(row["state"]),
        attempt=row["attempt"],
        received_at=float(row["received_at"]),
        updated_at=float(row["updated_at"]),
        session_id=row["session_id"],
        prompt=row["prompt"],
        target=row["target"],
        target_extra=_extra.decode(row["target_extra"]),
        deliver_only=bool(row["deliver_only"]),
        error=row["error"],
    )
