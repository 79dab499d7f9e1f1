"""Things that go wrong on the way, scripted one by one or drawn from a seed."""

import math
import random
import time
from collections import deque

from msgspec import Struct, field

from fakes.telegram_world import ApiError

__all__ = ["REAL_LIMITS", "Fault", "FaultRates", "Faults", "RateLimiter", "RateLimits"]


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
        self.outage: Fault | None = None
        """What happens to every call, polls and files included."""
        self.happened: dict[str, int] = {}

    def plan(self, fault: Fault) -> None:
        self._planned.append(fault)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._planned.clear()
        self._rates = self.outage = None

    def draw(self, rates: FaultRates | None) -> None:
        self._rates = rates
        self._random = random.Random(rates.seed if rates else 0)

    def next(self, method: str, chat_id: int | None) -> Fault | None:
        """Return what happens to this call."""
        fault = self.outage or self._from_plan(method, chat_id) or self._from_rates(method)
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
    """How often one chat may be called on, and all of them together."""

    private: float = 1.0
    """Seconds a call costs."""
    group: float = 3.0
    burst: int = 3
    """Calls that may come at once after a rest."""
    group_minute: int = 0
    """Calls in any minute that a group takes, in whatever bursts; 0: a bucket as above."""
    account: int = 0
    """Calls in any second to all chats together; 0: no limit."""


REAL_LIMITS = RateLimits(group_minute=20, account=30)
"""Telegram's own figures."""


class Window:
    """At most so many calls in any span of so many seconds; refused ones do not count."""

    def __init__(self, calls: int, seconds: float) -> None:
        self._calls = calls
        self._seconds = seconds
        self._times: deque[float] = deque()

    def wait(self, now: float) -> float:
        while self._times and self._times[0] <= now - self._seconds:
            self._times.popleft()
        return 0.0 if len(self._times) < self._calls else self._times[0] + self._seconds - now

    def take(self, now: float) -> None:
        self._times.append(now)


class RateLimiter:
    """One bucket a chat, for everything that is sent to it, and a window for the account."""

    def __init__(self, limits: RateLimits | None) -> None:
        self._limits = limits
        self._buckets: dict[int, tuple[float, float]] = {}
        self._groups: dict[int, Window] = {}
        self._account = Window(limits.account, 1.0) if limits and limits.account else None

    def charge(self, chat_id: int | None) -> None:
        """Take one call out of the chat's bucket; 429 if it or the account's is empty."""
        limits = self._limits
        if limits is None or chat_id is None:
            return
        now = time.monotonic()
        windows = [] if self._account is None else [self._account]
        if chat_id < 0 and limits.group_minute:
            windows.append(self._groups.setdefault(chat_id, Window(limits.group_minute, 60.0)))
            refuse_for(max(window.wait(now) for window in windows))
        else:
            refuse_for(max((window.wait(now) for window in windows), default=0.0))
            self._charge_bucket(limits, chat_id, now)
        for window in windows:
            window.take(now)

    def _charge_bucket(self, limits: RateLimits, chat_id: int, now: float) -> None:
        cost = limits.private if chat_id > 0 else limits.group
        tokens, at = self._buckets.get(chat_id, (float(limits.burst), now))
        tokens = min(float(limits.burst), tokens + (now - at) / cost)
        refuse_for((1 - tokens) * cost)
        self._buckets[chat_id] = (tokens - 1, now)


def refuse_for(seconds: float) -> None:
    """Say 429, in whole seconds, if there is anything to wait for."""
    if seconds > 1e-9:
        wait = math.ceil(seconds)
        raise ApiError(429, f"Too Many Requests: retry after {wait}", retry_after=wait)
