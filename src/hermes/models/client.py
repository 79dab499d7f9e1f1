"""ModelClient: one model call with repairs, key rotation, retries and fallbacks.

On one route: repair the request, use the next key, retry with backoff. What
only compression can cure is raised at once. Then the next route, and at once if
no connection can be made; it answers for the rest of the turn. A route that failed
rests for a while in all turns, then one try shows whether it works again. When
everything failed, one `ModelFailure` says what happened and what to do. After a
rate limit another key is tried before waiting. The wait is what the provider asks
for (`Retry-After` and similar headers) up to a limit, otherwise exponential
backoff with jitter.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import ConfigError
from hermes.domain.messages import AssistantMessage, FinishReason
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.model import (
    CallListener,
    FailureKind,
    ModelFailure,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Withheld,
)
from hermes.models.bounds import CHARS, AnswerTooLarge
from hermes.models.catalog import cost
from hermes.models.credentials import CredentialPool, ProviderKey
from hermes.models.encode_common import LoweredCache, without
from hermes.models.failures import PLANS, classify, explain, mend
from hermes.models.providers import ApiMode
from hermes.models.routes import ModelRoute
from hermes.models.tool_calls import repair_calls
from hermes.models.transport import Transport
from hermes.models.wire import Decoded, Decoder, Repairs, Sink, WireCall, WireFault

_MAX_MENDS = 5
_EXHAUSTED_SECONDS = 60.0
_REFUSED_SECONDS = {FailureKind.AUTH: math.inf, FailureKind.BILLING: 3600.0}
_RESET_HEADERS = (
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = 1_000_000_000
_JITTER = 0.5
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|xai|tvly)-|(?:gsk|hf|sk|rk)_|AIza|[Bb]earer\s+)"
    r"(?=[A-Za-z_./+=-]*[0-9*])[A-Za-z0-9_./+=*-]{6,}"
)
"""What providers quote of a key, often shortened: more is taken for one than in other texts."""
"""Up to this part of a delay is added at random."""
_PROBE_SECONDS = 15.0
"""A route that failed lately has to begin its answer within this time."""
_FIRST_REST = 60.0
_LONGEST_REST = 900.0
_THIS_REQUEST = frozenset(
    {
        FailureKind.POLICY,
        FailureKind.BAD_REQUEST,
        FailureKind.IMAGE_REJECTED,
        FailureKind.REASONING_REJECTED,
        FailureKind.MALFORMED,
        FailureKind.EMPTY,
        FailureKind.OVERSIZED,
    }
)
"""Kinds that say nothing about the next request."""
_RETRIES = {FailureKind.TIMEOUT: 1, FailureKind.MALFORMED: 2, FailureKind.EMPTY: 2}
"""Kinds that are retried less often: waiting is expensive, or another answer is unlikely."""


class WireProtocol(Protocol):
    def encode(
        self, request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
    ) -> WireCall:
        """Return the HTTP request, without the key."""

    def decoder(self, sink: Sink) -> Decoder:
        """Return a decoder for one reply."""


def protocol_for(mode: ApiMode) -> WireProtocol:
    """Return the protocol for a mode: the module of that name in `protocols`."""
    return cast("WireProtocol", import_module(f"hermes.models.protocols.{mode.value}"))


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a call is retried on one route, and after how many seconds."""

    max_retries: int = 3
    base_delay: float = 5.0
    max_delay: float = 120.0
    max_retry_after: float = 120.0
    """After a longer `Retry-After` the next key or route is used instead."""


class RouteRests:
    """Routes that failed lately, shared by all clients of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[tuple[str, str], tuple[float, float]] = {}
        """Address and model -> when it is tried again, and how long it rests."""

    def resting(self, route: ModelRoute) -> bool:
        until, _ = self._rests.get((route.base_url, route.model), (0.0, 0.0))
        return until > self._clock.monotonic()

    def doubtful(self, route: ModelRoute) -> bool:
        """Whether the route failed when it was last used."""
        return (route.base_url, route.model) in self._rests

    def failed(self, route: ModelRoute, failure: ModelFailure) -> None:
        if failure.kind in _THIS_REQUEST:
            return
        name = (route.base_url, route.model)
        _, last = self._rests.get(name, (0.0, 0.0))
        rest = min(max(_FIRST_REST, 2 * last, failure.retry_after or 0.0), _LONGEST_REST)
        self._rests[name] = (self._clock.monotonic() + rest, rest)

    def worked(self, route: ModelRoute) -> None:
        self._rests.pop((route.base_url, route.model), None)


class _Path(Struct, frozen=True):
    """A route with what its calls share."""

    route: ModelRoute
    protocol: WireProtocol
    pool: CredentialPool


class ModelClient:
    def __init__(
        self,
        routes: Sequence[ModelRoute],
        *,
        clock: Clock,
        transport: Transport,
        policy: RetryPolicy | None = None,
        cache: LoweredCache | None = None,
        rests: RouteRests | None = None,
    ) -> None:
        if not routes:
            raise ConfigError("No model is chosen.", hint="Choose one with `hermes model`.")
        self.clock = clock
        self.transport = transport
        self.policy = policy or RetryPolicy()
        self.cache = cache or LoweredCache()
        self.rests = rests or RouteRests(clock)
        self.random = random.Random()  # noqa: S311 - jitter, not security
        self.paths = tuple(
            _Path(
                route,
                protocol_for(route.api_mode),
                CredentialPool(route.keys, route.strategy, clock),
            )
            for route in routes
        )

    @property
    def info(self) -> ModelInfo:
        return self.paths[0].route.info

    def for_turn(self) -> "TurnModel":
        return TurnModel(self)

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        return await TurnModel(self).complete(request, listener)

    async def warm(self) -> None:
        """Load what the first call would otherwise wait for."""
        await self.transport.warm(self.paths[0].route.base_url)


class TurnModel:
    """A client for the length of one turn: the route that answered goes on answering."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self._current = client.paths[0]

    @property
    def info(self) -> ModelInfo:
        return self._client.info

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        client, rests = self._client, self._client.rests
        sink = Sink(listener, logprobs=bool(request.logprobs))
        failures: list[ModelFailure] = []
        # The one in use first, those that rest last.
        order = sorted(
            client.paths, key=lambda path: (rests.resting(path.route), path is not self._current)
        )
        for path in order:
            route = path.route
            if failures:
                sink.restart()
            if path is not self._current:
                why = failures[-1].message if failures else self._why_not_first()
                sink.notice("fallback", f"{why} Using {route.provider} ({route.model}) instead.")
            try:
                call = _RouteCall(client, path, (request, sink), others=len(order) > 1)
                reply = await call.run()
            except ModelFailure as failure:
                if sink.final or not PLANS[failure.kind].fallback:
                    raise
                rests.failed(route, failure)
                failures.append(failure)
            else:
                rests.worked(route)
                self._current = path
                return reply
        raise _summary(failures)

    def _why_not_first(self) -> str:
        route = self._current.route
        return f"{route.provider} ({route.model}) failed a moment ago."


class _RouteCall:
    def __init__(
        self,
        client: ModelClient,
        path: _Path,
        asked: tuple[ModelRequest, Sink],
        *,
        others: bool,
    ) -> None:
        self._client = client
        self._route = path.route
        self._protocol = path.protocol
        self._pool = path.pool
        self._request, self._sink = asked
        self._others = others
        """Another route could answer."""
        self._probe = others and client.rests.doubtful(path.route)
        self._repairs = Repairs()
        self._mends = 0
        self._rotations = 0
        self._tries: Counter[FailureKind] = Counter()
        self._key = self._first_key()

    async def run(self) -> ModelReply:
        while True:
            try:
                decoded = await self._attempt()
            except WireFault as fault:
                await self._recover(self._redacted(fault))
                self._sink.restart()
                continue
            if self._key is not None:
                self._pool.revive(self._key)
            return self._reply(decoded)

    async def _attempt(self) -> Decoded:
        route = self._route
        request = without(self._request, self._repairs.drop_fields)
        call = self._protocol.encode(request, route, self._repairs, self._client.cache)
        decoder = self._protocol.decoder(self._sink)
        for name, value in _auth_headers(route, self._key).items():
            joined = name == "anthropic-beta" and name in call.headers
            call.headers[name] = f"{call.headers[name]},{value}" if joined else value
        timeouts = route.timeouts
        if self._probe:
            timeouts = replace(timeouts, first_byte=min(timeouts.first_byte, _PROBE_SECONDS))
        try:
            await self._client.transport.exchange(
                call, decoder, timeouts, self._still_waiting, route.notice, self._sink
            )
            decoded = decoder.finish()
            _check(decoded)
        except AnswerTooLarge as error:
            raise WireFault(str(error), kind=FailureKind.OVERSIZED) from error
        return decoded

    def _still_waiting(self, seconds: float) -> None:
        route = self._route
        self._sink.notice(
            "waiting",
            f"Still waiting for {route.provider} ({route.model}), {seconds:.0f} s so far.",
        )

    async def _recover(self, fault: WireFault) -> None:
        """Prepare the next try, or raise the failure."""
        kind = classify(fault)
        if self._sink.final:
            raise self._failure(kind, fault)
        mended = mend(kind, fault, self._request, self._repairs)
        if mended is not None and self._mends < _MAX_MENDS:
            self._mends += 1
            self._repairs, what = mended
            self._sink.notice("repair", f"{self._route.provider} refused the request; {what}.")
            return
        plan = PLANS[kind]
        if plan.compress:
            raise self._failure(FailureKind.CONTEXT_OVERFLOW, fault)
        if plan.rotate and self._rotate(kind, fault):
            return
        if plan.retry and await self._wait(kind, fault):
            return
        raise self._failure(kind, fault)

    def _rotate(self, kind: FailureKind, fault: WireFault) -> bool:
        """Set the key aside and take another one, if there is one."""
        self._rotations += 1
        if self._key is None or self._rotations > len(self._pool):
            return False
        seconds = _REFUSED_SECONDS.get(kind)
        if seconds is None and len(self._pool) == 1:
            return False
        self._pool.exhaust(self._key, seconds or self._asked_wait(fault) or _EXHAUSTED_SECONDS)
        key = self._pool.acquire()
        if key is None:
            return False
        self._key = key
        self._sink.notice("credential", f"{self._route.provider}: using another key.")
        return True

    async def _wait(self, kind: FailureKind, fault: WireFault) -> bool:
        """Wait before the next try; False if there is none."""
        client, policy = self._client, self._client.policy
        if self._probe or (self._others and not fault.connected):
            return False
        self._tries[kind] += 1
        number = self._tries[kind]
        limit = min(_RETRIES.get(kind, policy.max_retries), policy.max_retries)
        if number > limit or self._tries.total() > policy.max_retries:
            return False
        asked = self._asked_wait(fault)
        if asked is not None and asked > policy.max_retry_after:
            return False
        delay = backoff(number, policy, client.random) if asked is None else asked
        said = self._failure(kind, fault).message
        self._sink.notice("retry", f"{said} Trying again in {delay:.0f} s ({number}/{limit}).")
        await client.clock.sleep(delay)
        return True

    def _asked_wait(self, fault: WireFault) -> float | None:
        return retry_after(fault.headers, self._client.clock.now())

    def _first_key(self) -> ProviderKey | None:
        key = self._pool.acquire()
        if key is None and len(self._pool):
            # Every key failed lately; one request tells whether that is still so.
            self._pool.reset()
            key = self._pool.acquire()
        return key

    def _redacted(self, fault: WireFault) -> WireFault:
        for key in self._route.keys:
            fault.message = fault.message.replace(key.secret, "[redacted]")
        fault.message = _KEY.sub("[redacted]", fault.message)
        return fault

    def _failure(self, kind: FailureKind, fault: WireFault) -> ModelFailure:
        route = self._route
        key_name = route.key_names[0] if route.key_names else "the key"
        names = {"provider": route.provider, "model": route.model, "base_url": route.base_url}
        return explain(kind, fault, {**names, "key_name": key_name}, self._asked_wait(fault))

    def _reply(self, decoded: Decoded) -> ModelReply:
        message = decoded.message
        if message.tool_calls:
            message = replace(message, tool_calls=repair_calls(message.tool_calls))
        dollars = decoded.cost_usd
        if dollars is None:
            dollars = cost(decoded.usage, self._route.facts.price)
        return ModelReply(
            message=message,
            usage=decoded.usage,
            provider=self._route.provider,
            model=decoded.model or self._route.model,
            cost_usd=dollars,
            logprobs=decoded.logprobs,
        )


def _auth_headers(route: ModelRoute, key: ProviderKey | None) -> dict[str, str]:
    if key is None or route.auth == "none":
        return {}
    if route.auth == "x-api-key":
        if key.secret.startswith("sk-ant-oat"):
            bearer = f"Bearer {key.secret}"
            return {"authorization": bearer, "anthropic-beta": "oauth-2025-04-20"}
        if route.provider == "anthropic":
            return {"x-api-key": key.secret}
        # Servers that imitate the Messages API take the key in one or the other.
        return {"x-api-key": key.secret, "authorization": f"Bearer {key.secret}"}
    if route.auth == "api-key":
        return {"api-key": key.secret}
    return {"authorization": f"Bearer {key.secret}"}


def _check(decoded: Decoded) -> None:
    message = decoded.message
    if not decoded.complete:
        raise WireFault("the answer was cut off before its end", kind=FailureKind.MALFORMED)
    _measure(message)
    if message.text.strip() or message.tool_calls or message.finish is FinishReason.LENGTH:
        return
    if message.finish is FinishReason.CONTENT_FILTER:
        text = "the answer was withheld"
        raise WireFault(text, kind=FailureKind.POLICY, code=Withheld.code)
    raise WireFault("", kind=FailureKind.EMPTY)


def _measure(message: AssistantMessage) -> None:
    """Bound what came in one piece, too."""
    thought = message.reasoning.text if message.reasoning is not None else ""
    calls = sum(len(call.id) + len(call.arguments) for call in message.tool_calls)
    CHARS.hold(len(message.text) + len(thought) + calls)


def _summary(failures: list[ModelFailure]) -> ModelFailure:
    first = failures[0]
    if len(failures) == 1:
        return first
    others = "; ".join(f"{f.provider}: {f.kind.value}" for f in failures[1:])
    return type(first)(
        first.kind,
        f"{first.message} The fallbacks failed too ({others}).",
        hint=first.hint,
        status=first.status,
        retry_after=first.retry_after,
        provider=first.provider,
    )


def backoff(attempt: int, policy: RetryPolicy, rng: random.Random) -> float:
    delay: float = min(policy.base_delay * 2 ** (attempt - 1), policy.max_delay)
    return delay * (1 + _JITTER * rng.random())


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds the provider asks to wait, None if it does not say."""
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    if (value := lowered.get("retry-after-ms")) and _number(value) is not None:
        return max(0.0, float(value) / 1000)
    if value := lowered.get("retry-after"):
        return _seconds(value, now)
    for name in _RESET_HEADERS:
        if (value := lowered.get(name)) and (seconds := _seconds(value, now)) is not None:
            return seconds
    return None


def _seconds(value: str, now: float) -> float | None:
    """Read seconds, an epoch, `1m30s`, or a date in HTTP or ISO form."""
    number = _number(value)
    if number is not None:
        if number > _EPOCH * 1000:
            number /= 1000
        return max(0.0, number - now) if number > _EPOCH else max(0.0, number)
    if "".join("".join(pair) for pair in _DURATION.findall(value)) == value:
        return sum(float(amount) * _UNITS[unit] for amount, unit in _DURATION.findall(value))
    return _date(value, now)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


def _date(value: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 9 ms, and rarely needed

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
        except (ValueError, TypeError, IndexError):
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now)
    return None
