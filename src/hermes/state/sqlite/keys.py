"""API keys: their hashes and what they allow."""

import sqlite3

import msgspec

from hermes.domain.keys import Action, ApiKey
from hermes.state.refusals import id_taken, key_hash_taken
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, one, rows

__all__ = ["KeyPart"]

_agents = msgspec.json.Decoder(tuple[str, ...])
_actions = msgspec.json.Decoder(tuple[Action, ...])


class KeyPart(LedgerPart):
    """Implements `KeyStore`."""

    async def add_key(self, key: ApiKey) -> None:
        """Commit a new key; `Conflict` if the id, the name or the hash is taken."""
        columns = msgspec.structs.asdict(key)
        columns["agents"] = codec.dump(key.agents)
        columns["actions"] = codec.dump(key.actions)

        def work(connection: sqlite3.Connection) -> None:
            if one(connection, "keys.by_id", (key.id,)):
                raise id_taken("API key", key.id)
            if one(connection, "keys.by_name", (key.name,)):
                raise id_taken("API key", key.name)
            if one(connection, "keys.by_hash", (key.hash,)):
                raise key_hash_taken()
            change(connection, "keys.insert", columns)

        await self._write(work)

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002 - named by the port
        """Return the key with this hash, also if it is revoked or expired."""
        row = await self._quick(lambda connection: one(connection, "keys.by_hash", (hash,)))
        return None if row is None else _key(row)

    async def keys(self) -> list[ApiKey]:
        """List all keys, oldest first."""
        found = await self._read(lambda connection: rows(connection, "keys.all"))
        return [_key(row) for row in found]

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        """Revoke by id or name; None if there is no such key that is still good."""

        def work(connection: sqlite3.Connection) -> ApiKey | None:
            good = one(connection, "keys.good", {"reference": reference, "at": at})
            if good is None:
                return None
            row = one(connection, "keys.revoke", (at, good["id"]))
            return None if row is None else _key(row)

        return await self._write(work)

    async def touch_key(self, key_id: str, at: float) -> None:
        """Note that a key was used."""
        await self._write(lambda c: change(c, "keys.touch", {"id": key_id, "at": at}))


def _key(row: sqlite3.Row) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        hash=row["hash"],
        hint=row["hint"],
        agents=_agents.decode(row["agents"]),
        actions=_actions.decode(row["actions"]),
        created_at=float(row["created_at"]),
        expires_at=codec.time(row["expires_at"]),
        revoked_at=codec.time(row["revoked_at"]),
        last_used_at=codec.time(row["last_used_at"]),
    )
