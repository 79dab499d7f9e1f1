"""API keys: their hashes and what they allow."""

from sqlite3 import Connection

from hermes.domain.errors import Conflict
from hermes.domain.keys import Action, ApiKey
from hermes.state.sqlite.base import LedgerPart, change, one
from hermes.state.sqlite.errors import id_taken
from hermes.state.sqlite.rows import columns, reader

read_key = reader(ApiKey, json={"agents": tuple[str, ...], "actions": tuple[Action, ...]})


class KeyPart(LedgerPart):
    """Implements `KeyStore`."""

    async def add_key(self, key: ApiKey) -> None:
        def work(connection: Connection) -> None:
            if one(connection, "keys.by_id", (key.id,)):
                raise id_taken("API key", key.id)
            if one(connection, "keys.by_name", (key.name,)):
                raise id_taken("API key", key.name)
            if one(connection, "keys.by_hash", (key.hash,)):
                raise Conflict("This API key exists already.", hint="Make a new key.")
            change(connection, "keys.insert", columns(key))

        await self._write(work)

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002 - named by the port
        return await self._get(read_key, "keys.by_hash", (hash,))

    async def keys(self) -> list[ApiKey]:
        return await self._list(read_key, "keys.all")

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        def work(connection: Connection) -> ApiKey | None:
            good = one(connection, "keys.good", {"reference": reference, "at": at})
            row = None if good is None else one(connection, "keys.revoke", (at, good["id"]))
            return None if row is None else read_key(row)

        return await self._write(work)

    async def touch_key(self, key_id: str, at: float) -> None:
        await self._write(lambda c: change(c, "keys.touch", {"id": key_id, "at": at}))
