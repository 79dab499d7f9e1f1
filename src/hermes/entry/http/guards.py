"""Guards: hosts and web pages from which our servers may be addressed, and keys.

A web page can make a browser send requests here, also under a name of its own
that it points at this machine (DNS rebinding). Two checks stop that:

* Host: the loopback names, the host we listen on and `allowed_hosts` (`*` for
  any). If others than this machine can connect, also addresses, names without
  a dot and names below `.internal`: none of these can be registered, so no
  stranger's page can be served under them.
* Origin: a browser says which page a request comes from. It has to be in
  `cors_origins` (of the API; the webhook receiver has none), or be a page of
  this server. Programs send none.

Credentials (cookies) are never allowed across origins: there are none here.
"""

import hashlib
import hmac
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv6Address, ip_address

from hermes.config.environment import is_loopback
from hermes.domain.errors import StoreError
from hermes.domain.keys import OWNER, Action, ApiKey, Caller
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import KeyStore
from hermes.entry.http.errors import Problem
from hermes.entry.http.request import Headers
from hermes.entry.http.settings import HttpSettings, WebhookSettings

_EXPOSED = (
    b"x-request-id, x-hermes-session-id, x-hermes-session-key, x-hermes-run-id, "
    b"x-hermes-completed, x-hermes-partial, x-hermes-error, retry-after, location"
)
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9, _-]{1,2048}\Z")
_USUAL_HEADERS = b"authorization, content-type, x-api-key, idempotency-key, last-event-id"
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+(%[0-9a-z]+)?\]|[a-z0-9._-]+)(:[0-9]{1,5})?\Z")
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to

Pairs = list[tuple[bytes, bytes]]


def host_name(text: str) -> str | None:
    """Return the name in a Host header without its port; None if it is none."""
    found = _HOST.match(text.strip().lower())
    return found["name"].strip("[]").rstrip(".") if found else None


class Guards:
    def __init__(self, settings: HttpSettings | WebhookSettings) -> None:
        self._section = settings.section
        bound = settings.host.strip("[]").lower()
        self._open = not is_loopback(settings.host)
        self._any_host = "*" in settings.allowed_hosts
        names = {host_name(item) or item for item in settings.allowed_hosts}
        self._hosts = frozenset(names | ({bound} if bound not in _WILDCARDS else set()))
        origins = settings.cors_origins if isinstance(settings, HttpSettings) else ()
        self._any_origin = "*" in origins
        self._origins = frozenset(origins)

    def cors(self, heads: Headers) -> Pairs:
        """Return what a browser must read to show our answer to its page."""
        origin = heads.get(b"origin")
        if origin is None:
            return []
        vary = (b"vary", b"origin")
        if _text(origin).lower() in self._origins:
            allowed = origin
        elif self._any_origin:
            allowed = b"*"
        else:
            return [vary]
        return [
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
            vary,
        ]

    def check(self, heads: Headers, http_version: str) -> None:
        """Raise the `Problem` of a request that must not be here."""
        host = heads.get(b"host")
        if host is None:
            # Health checks of load balancers speak HTTP/1.0; browsers always name a host.
            if http_version != "1.0":
                raise Problem(400, "The request has no Host header.", code="host_missing")
        elif not self._host_allowed(host_name(_text(host))):
            raise Problem(
                403,
                "This server does not answer under that host name. Its owner can add the name to "
                f"{self._section}.allowed_hosts.",
                code="host_not_allowed",
            )
        origin = heads.get(b"origin")
        if origin is not None and not self._origin_allowed(_text(origin).lower(), host):
            remedy = f" Its owner can add the origin to {HttpSettings.section}.cors_origins."
            message = "Pages of this origin may not use this server."
            if self._section == HttpSettings.section:
                message += remedy
            raise Problem(403, message, code="origin_not_allowed")

    def preflight(self, heads: Headers, methods: Iterable[str]) -> Pairs:
        """Return what a browser wants to know before it sends the real request."""
        allow = ", ".join(methods).encode()
        if b"access-control-request-method" not in heads or b"origin" not in heads:
            return [(b"allow", allow)]
        asked = heads.get(b"access-control-request-headers", b"")
        headers = asked if _HEADER_NAMES.match(asked) else _USUAL_HEADERS
        pairs = [
            (b"allow", allow),
            (b"access-control-allow-methods", allow),
            (b"access-control-allow-headers", headers),
            (b"access-control-max-age", b"600"),
        ]
        named = _text(heads[b"origin"]).lower() in self._origins
        if named and heads.get(b"access-control-request-private-network") == b"true":
            pairs.append((b"access-control-allow-private-network", b"true"))
        return pairs

    def _host_allowed(self, name: str | None) -> bool:
        if name is None:
            return False
        if self._any_host or name in self._hosts or is_loopback(name):
            return True
        if not self._open:
            return False
        return "." not in name or name.endswith(".internal") or _is_address(name)

    def _origin_allowed(self, origin: str, host: bytes | None) -> bool:
        if self._any_origin or origin in self._origins:
            return True
        own = _text(host).lower() if host else ""
        return bool(own) and origin in {f"http://{own}", f"https://{own}"}


_NEED_NO_PREFLIGHT = {b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"}
_FORWARDED = re.compile(
    rb"forwarded|via|(x-)?forwarded-.*|(x-)?(real|client|true-client|original|cluster-client)-.*"
    rb"|cf-.*|cdn-.*|ngrok-.*|fastly-.*|fly-.*|tailscale-.*"
)
"""Headers that proxies and tunnels add, whatever they do to the host."""


def local_program(heads: Headers) -> bool:
    """Tell whether a request was made on this machine, and by nothing that a web page can use.

    What was forwarded was made elsewhere. A page of a stranger can make a browser here send forms
    and plain text without asking first.
    """
    kind = heads.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return (
        is_loopback(host_name(_text(heads.get(b"host", b"localhost"))) or "")
        and b"origin" not in heads
        and heads.get(b"sec-fetch-site", b"none") in {b"none", b"same-origin"}
        and kind not in _NEED_NO_PREFLIGHT
        and not any(_FORWARDED.fullmatch(name) for name in heads)
    )


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


log = logging.getLogger(__name__)

ANYBODY = Caller(key_id="", name="anybody")
"""Who calls an endpoint that needs no key."""
_OWNER = Caller(key_id=OWNER, name="owner", actions=frozenset(Action))
_KEY_NEEDED = "A valid API key is needed: Authorization: Bearer <key>."
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
            message, headers = _KEY_NEEDED, {"www-authenticate": "Bearer"}
            return Problem(401, message, code="invalid_api_key", headers=headers)
        wait = max(1, int(since + _WINDOW_SECONDS - now + 0.999))
        message = "Too many requests without a good key from this address; wait a little."
        return Problem(429, message, code="too_many_failures", headers={"retry-after": str(wait)})


def _network(address: str) -> str:
    """Return the address, or the /64 that one household or server has of IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return parsed.exploded[:19]
    return address
