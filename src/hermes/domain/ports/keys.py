"""API keys, as the ledger keeps them."""

from typing import Protocol

from hermes.domain.keys import ApiKey

__all__ = ["KeyStore"]


class KeyStore(Protocol):
    """Keys that were made; a revoked one is kept, so that it stays known as revoked."""

    async def add_key(self, key: ApiKey) -> None:
        """Commit a new key; `Conflict` if the id, the name or the hash is taken."""
        ...

    async def key_by_hash(self, hash: str) -> ApiKey | None:  # noqa: A002
        """Return the key with this hash, also if it is revoked or expired."""
        ...

    async def keys(self) -> list[ApiKey]:
        """List all keys, oldest first."""
        ...

    async def revoke_key(self, reference: str, at: float) -> ApiKey | None:
        """Revoke by id or name; None if there is no such key that is still good."""
        ...

    async def touch_key(self, key_id: str, at: float) -> None:
        """Note that a key was used."""
        ...
