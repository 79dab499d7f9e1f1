"""API keys: making them, listing them, taking them back.

A key is `hk_` and 43 characters that nobody can guess. It is shown once to
whoever makes it; the ledger keeps its SHA-256, which is enough because a key
has 256 bits of its own. Revoking takes effect with the next request, also when
another process does it: keys are looked up each time they are used.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence

from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ids import new_id
from hermes.domain.keys import OWNER, Action, ApiKey
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import KeyStore

USUAL_ACTIONS = (Action.RUN, Action.SESSIONS, Action.APPROVE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_MAX_SECONDS = 100 * 365 * 86400.0


def key_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeys:
    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(
        self,
        name: str,
        agents: Sequence[str] = (),
        actions: Sequence[Action] = USUAL_ACTIONS,
        expires_in: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key and return it with its secret, which is not kept anywhere.

        `Conflict` if a key has this name; `expires_in` is in seconds from now.
        """
        if not _NAME.match(name) or name == OWNER:
            raise UsageError(
                f"“{name}” is not a valid name for a key.",
                hint="Use letters, digits, dots, dashes and underscores; `owner` is taken.",
            )
        if expires_in is not None and not 0 < expires_in <= _MAX_SECONDS:
            raise UsageError("A key must be valid for more than 0 seconds and at most 100 years.")
        secret = f"hk_{secrets.token_urlsafe(32)}"
        now = self._clock.now()
        key = ApiKey(
            id=new_id("key"),
            name=name,
            hash=key_hash(secret),
            hint=secret[-4:],
            agents=tuple(dict.fromkeys(agents)),
            actions=tuple(dict.fromkeys(actions)),
            created_at=now,
            expires_at=now + expires_in if expires_in is not None else None,
        )
        await self._store.add_key(key)
        return key, secret

    async def keys(self) -> list[ApiKey]:
        """Return all keys, oldest first; also those that are no longer good."""
        return await self._store.keys()

    async def revoke(self, reference: str) -> ApiKey:
        """Make a key worthless, by its name or id; `NotFound` if there is no such good key."""
        key = await self._store.revoke_key(reference, self._clock.now())
        if key is None:
            raise NotFound(
                f"There is no valid key “{reference}”.",
                hint="List the keys with: hermes keys list",
            )
        return key
