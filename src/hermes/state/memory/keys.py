"""API keys: their hashes and what they allow."""

import msgspec

from hermes.domain.keys import ApiKey
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import id_taken, key_hash_taken

__all__ = ["KeyPart"]


class KeyPart(MemoryPart):
    """Implements `KeyStore`."""

    async def add_key(self, key: ApiKey) -> None:
        """Commit a new key; `Conflict` if the id, the name or the hash is taken."""
        known = self._tables.api_keys
        if key.id in known:
            raise id_taken("API key", key.id)
        if any(other.name == key.name for other in known.values()):
            raise id_taken("API key", key.name)
        if any(other.hash == key.hash for other in known.values()):
            raise key_hash_taken()
        known[key.id] = key

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002 - named by the port
        """Return the key with this hash, also if it is revoked or expired."""
        return next((key for key in self._tables.api_keys.values() if key.hash == hash), None)

    async def keys(self) -> list[ApiKey]:
        """List all keys, oldest first."""
        return sorted(self._tables.api_keys.values(), key=lambda key: key.created_at)

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        """Revoke by id or name; None if there is no such key that is still good."""
        good = [
            key
            for key in self._tables.api_keys.values()
            if reference in (key.id, key.name)
            and key.revoked_at is None
            and (key.expires_at is None or key.expires_at > at)
        ]
        if not good:
            return None
        chosen = next((key for key in good if key.id == reference), good[0])
        revoked = msgspec.structs.replace(chosen, revoked_at=at)
        self._tables.api_keys[chosen.id] = revoked
        return revoked

    async def touch_key(self, key_id: str, at: float) -> None:
        """Note that a key was used."""
        key = self._tables.api_keys.get(key_id)
        if key is not None:
            used = at if key.last_used_at is None else max(key.last_used_at, at)
            self._tables.api_keys[key_id] = msgspec.structs.replace(key, last_used_at=used)
