"""Small tables of the doors: API keys, webhook deliveries, due instants of jobs.

A delivery is known by its route and the sender's id, an instant by its job and time.
"""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from hermes.domain.errors import Conflict
from hermes.domain.jobs import Instant
from hermes.domain.keys import Action, ApiKey
from hermes.domain.webhooks import HookDelivery, HookState
from hermes.domain.wording import clean_text
from hermes.state.sqlite.base import LedgerPart, change, one, transaction
from hermes.state.sqlite.errors import id_taken
from hermes.state.sqlite.rows import columns, dump, reader

read_key = reader(ApiKey, json={"agents": tuple[str, ...], "actions": tuple[Action, ...]})
read_delivery = reader(HookDelivery, json={"target_extra": dict[str, str]})
read_instant = reader(Instant, json={"detail": dict[str, Any]})


class KeyPart(LedgerPart):
    @transaction
    def add_key(self, db: Connection, key: ApiKey) -> None:
        if one(db, "keys.by_id", (key.id,)):
            raise id_taken("API key", key.id)
        if one(db, "keys.by_name", (key.name,)):
            raise id_taken("API key", key.name)
        if one(db, "keys.by_hash", (key.hash,)):
            raise Conflict("This API key exists already.", hint="Make a new key.")
        change(db, "keys.insert", columns(key))

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002 - named by the port
        return await self._get(read_key, "keys.by_hash", (hash,))

    async def keys(self) -> list[ApiKey]:
        return await self._list(read_key, "keys.all")

    @transaction
    def revoke_key(self, db: Connection, reference: str, at: float) -> ApiKey | None:
        good = one(db, "keys.good", {"reference": reference, "at": at})
        row = None if good is None else one(db, "keys.revoke", (at, good["id"]))
        return None if row is None else read_key(row)

    async def touch_key(self, key_id: str, at: float) -> None:
        await self._write(lambda db: change(db, "keys.touch", {"id": key_id, "at": at}))


class HookPart(LedgerPart):
    @transaction
    def recognise_hook(
        self, db: Connection, route: str, proof: str, delivery_id: str, at: float, since: float
    ) -> str:
        values = {"route": route, "proof": proof, "delivery_id": delivery_id}
        row = one(db, "hooks.recognise", {**values, "at": at, "since": since})
        return str(row["delivery_id"]) if row else delivery_id

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

    async def hooks(self, states: Sequence[HookState], *, limit: int = 100) -> list[HookDelivery]:
        values = {"states": dump(list(states)), "limit": limit}
        return await self._list(read_delivery, "hooks.matching", values)

    async def prune_hooks(self, before: float) -> int:
        await self._write(lambda db: change(db, "hooks.prune_proofs", (before,)))
        return await self._write(lambda db: change(db, "hooks.prune", (before,)))


class InstantPart(LedgerPart):
    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        return await self._list(read_instant, "instants.of_job", (job_id, limit))
