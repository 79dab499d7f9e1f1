"""Things that go wrong on the way, scripted one by one or drawn from a seed."""

import math
import random
import time

from msgspec import Struct, field

from fakes.telegram_world import ApiError

__all__ = ["Fault", "FaultRates", "Faults", "RateLimiter", "RateLimits"]


class Fault(Struct, kw_only=True):
    """One kind of trouble for the next matching calls."""

    kind: str
    """`429`, `502`, `504`, `error`, `garbage`, `slow`, `hang`, `reset_before`, `reset_after`."""
    method: str = ""
    """The method it happens to; empty: any but getUpdates."""
    chat_id: int | None = None
    times: int = 1
    skip: int = 0
    """Let so many matching calls pass first."""
    seconds: float = 0.0
    """`retry_after` of a 429, or how long a slow call takes."""
    code: int = 400
    description: str = ""


class FaultRates(Struct, kw_only=True):
    """How often each kind happens by itself."""

    seed: int
    rates: dict[str, float]
    methods: list[str] = field(default_factory=list)
    """Empty: all methods."""
    seconds: float = 0.0


class Faults:
    """Decides which call fails."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self._rates: FaultRates | None = None
        self._random = random.Random(0)
        self.happened: dict[str, int] = {}

    def plan(self, fault: Fault) -> None:
        self._planned.append(fault)

    def draw(self, rates: FaultRates | None) -> None:
        self._rates = rates
        self._random = random.Random(rates.seed if rates else 0)

    def next(self, method: str, chat_id: int | None) -> Fault | None:
        """Return what happens to this call."""
        fault = self._from_plan(method, chat_id) or self._from_rates(method)
        if fault is not None:
            self.happened[fault.kind] = self.happened.get(fault.kind, 0) + 1
        return fault

    def _from_plan(self, method: str, chat_id: int | None) -> Fault | None:
        for fault in self._planned:
            wanted = fault.method.lower() or (method if method != "getupdates" else "")
            if wanted != method or fault.chat_id not in {None, chat_id}:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            if fault.times <= 0:
                self._planned.remove(fault)
            return fault
        return None

    def _from_rates(self, method: str) -> Fault | None:
        rates = self._rates
        if rates is None:
            return None
        if rates.methods and method not in [name.lower() for name in rates.methods]:
            return None
        drawn = self._random.random()
        for kind, rate in rates.rates.items():
            if drawn < rate:
                return Fault(kind=kind, seconds=rates.seconds)
            drawn -= rate
        return None


class RateLimits(Struct, kw_only=True):
    """How often one chat may be called on."""

    private: float = 1.0
    """Seconds a call costs."""
    group: float = 3.0
    burst: int = 3
    """Calls that may come at once after a rest."""


class RateLimiter:
    """One bucket a chat, for sends, edits and deletes together."""

    def __init__(self, limits: RateLimits | None) -> None:
        self._limits = limits
        self._buckets: dict[int, tuple[float, float]] = {}

    def charge(self, chat_id: int | None) -> None:
        """Take one call out of the chat's bucket; 429 if it is empty."""
        limits = self._limits
        if limits is None or chat_id is None:
            return
        cost = limits.private if chat_id > 0 else limits.group
        now = time.monotonic()
        tokens, at = self._buckets.get(chat_id, (float(limits.burst), now))
        tokens = min(float(limits.burst), tokens + (now - at) / cost)
        if tokens < 1:
            wait = max(1, math.ceil((1 - tokens) * cost))
            raise ApiError(429, f"Too Many Requests: retry after {wait}", retry_after=wait)
        self._buckets[chat_id] = (tokens - 1, now)
