"""Who makes a request: the key in its header, checked anew each time.

The work is the same whatever comes of it: the presented key is hashed, compared
with every configured key and looked up in the ledger, also if it is missing or
was recognised already. A key that is wrong, revoked, expired or missing gives
one and the same answer. Keys in the configuration are read through a function
and keys in the ledger are not cached, so a change counts with the next request.
"""

import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address

from hermes.domain.errors import StoreError
from hermes.domain.keys import OWNER, Action, ApiKey, Caller
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import KeyStore
from hermes.entry.http.asgi import Headers
from hermes.entry.http.errors import Problem

__all__ = ["ANYBODY", "FailureLimit", "KeyRing", "presented_key"]

log = logging.getLogger(__name__)

ANYBODY = Caller(key_id="", name="anybody")
"""Who calls an endpoint that needs no key."""
_OWNER = Caller(key_id=OWNER, name="owner", actions=frozenset(Action))
_TOUCH_SECONDS = 60.0
_NO_HASH = "0" * 64
_WINDOW_SECONDS = 60.0
_MAX_ADDRESSES = 4096


def presented_key(heads: Headers) -> bytes:
    """Return the key a request brings: as a bearer token, or as `x-api-key`."""
    scheme, _, token = heads.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and token.strip():
        return token.strip()
    return heads.get(b"x-api-key", b"").strip()


class KeyRing:
    """Knows which keys are good, and for what."""

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        configured: Callable[[], Sequence[str]],
        *,
        digest: Callable[[bytes], str] = lambda key: hashlib.sha256(key).hexdigest(),
    ) -> None:
        self._store = store
        self._clock = clock
        self._configured = configured
        self._digest = digest
        self._owner_keys: tuple[str, ...] = ()
        self._owner_hashes: tuple[str, ...] = ()
        self._touched: dict[str, float] = {}

    async def caller(self, presented: bytes) -> Caller | None:
        """Return who presents this key; None if nobody does."""
        now = self._clock.now()
        given = self._digest(presented)
        owner = False
        for known in self._hashes():
            owner |= hmac.compare_digest(given, known)
        key = await self._store.key_by_hash(given)
        good = self._is_good(key, given, now)
        if not presented:
            return None
        if owner:
            return _OWNER
        if key is None or not good:
            return None
        await self._touch(key, now)
        return Caller(
            key_id=key.id, name=key.name, agents=key.agents, actions=frozenset(key.actions)
        )

    def _hashes(self) -> tuple[str, ...]:
        keys = tuple(key for key in self._configured() if key)
        if keys != self._owner_keys:
            self._owner_hashes = tuple(self._digest(key.encode()) for key in keys)
            self._owner_keys = keys
        return self._owner_hashes

    @staticmethod
    def _is_good(key: ApiKey | None, given: str, now: float) -> bool:
        same = hmac.compare_digest(key.hash if key else _NO_HASH, given)
        revoked = key is not None and key.revoked_at is not None
        expired = key is not None and key.expires_at is not None and key.expires_at <= now
        return same & (not revoked) & (not expired)

    async def _touch(self, key: ApiKey, now: float) -> None:
        last = self._touched.get(key.id, key.last_used_at or 0.0)
        if 0 <= now - last < _TOUCH_SECONDS:
            return
        self._touched[key.id] = now
        try:
            await self._store.touch_key(key.id, now)
        except StoreError as error:
            log.warning("the use of key %s could not be noted: %s", key.id, error.message)


class FailureLimit:
    """Counts wrong keys by address; whoever has a good key is never held up by it."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def refusal(self, address: str) -> Problem:
        """Count a failure and return how it is answered."""
        now, place = self._clock.monotonic(), _network(address)
        since, count = self._counts.pop(place, (now, 0))
        if now - since >= _WINDOW_SECONDS:
            since, count = now, 0
        self._counts[place] = (since, count + 1)
        if len(self._counts) > _MAX_ADDRESSES:
            self._counts.popitem(last=False)
        if count < self._most:
            return _unauthorized()
        wait = max(1, int(since + _WINDOW_SECONDS - now + 0.999))
        return Problem(
            429,
            "Too many requests without a good key from this address; wait a little.",
            code="too_many_failures",
            headers={"retry-after": str(wait)},
        )


def _unauthorized() -> Problem:
    return Problem(
        401,
        "A good API key is needed: Authorization: Bearer <key>.",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def _network(address: str) -> str:
    """Return the address, or the /64 that one household or server has of IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return parsed.exploded[:19]
    return address
