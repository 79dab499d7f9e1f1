"""Budgets: one per chat and one per account, for everything that a platform counts.

Sends, edits, typing signals and deletes to one chat draw from the same
bucket, because the platform adds them up. A final text goes before a preview
and a preview before a typing signal; a preview that would have to wait may be
dropped, a final never is. After a "too many requests" the whole chat rests
for as long as it was told to and the budget becomes smaller for a while; where the
platform says that it means the account, all of its chats rest.

Pure logic: times come in, waiting times go out. Whoever waits asks again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import IntEnum

from msgspec import Struct

from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import LimitScope


class Urgency(IntEnum):
    """How much a call matters; the higher goes first."""

    TYPING = 0
    """Dropped when there is no room at once."""
    PREVIEW = 1
    """May be dropped: a newer one or the final will come."""
    FINAL = 2
    """Waits as long as it takes: finals, prompts, deletes of what must go."""


class PacingLimits(Struct, frozen=True, kw_only=True):
    interval: float
    """Seconds between two calls in the long run."""
    burst: int = 3
    """Calls that may follow each other at once after a quiet time."""
    spared: int = 1
    """Of those, how many previews leave for finals."""
    widen: float = 2.0
    """How much slower it gets after a penalty."""
    widest: float = 16.0
    """How much slower at most."""
    recover_after: float = 120.0
    """Seconds without a penalty after which it gets faster again by one step."""


class ChatPacer:
    """Tokens that come back with time, fewer of them after a penalty."""

    def __init__(self, limits: PacingLimits, now: float) -> None:
        self._limits = limits
        self._tokens = float(limits.burst)
        self._refilled_at = now
        self._resting_until = now
        self._penalty_at = now
        self._finals_waiting = 0
        self._last_used = now
        self.slowness = 1.0
        """By how much the interval is widened at the moment."""

    @property
    def _interval(self) -> float:
        return self._limits.interval * self.slowness

    def wait(self, urgency: Urgency, now: float) -> float:
        """Return how many seconds to wait before such a call; 0 if it may go now."""
        self._refill(now)
        spared = 0
        if urgency is not Urgency.FINAL:
            spared = min(self._limits.spared, self._limits.burst - 1) + self._finals_waiting
        missing = 1 + spared - self._tokens
        # Rounding errors must not make somebody wait for a billionth of a second, for ever.
        seconds = 0.0 if missing <= 1e-9 else missing * self._interval
        return max(0.0, self._resting_until - now, seconds)

    def admit(self, urgency: Urgency, now: float) -> float:
        """Take the place of such a call if there is one; return the seconds to wait if not."""
        seconds = self.wait(urgency, now)
        if seconds == 0.0:
            self._tokens -= 1
            self._last_used = now
        return seconds

    @contextmanager
    def final_waiting(self) -> Iterator[None]:
        """Let previews stand back while a final waits."""
        self._finals_waiting += 1
        try:
            yield
        finally:
            self._finals_waiting -= 1

    def penalty(self, retry_after: float, now: float) -> None:
        """Obey a "too many requests": rest, and be slower afterwards."""
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)
        self._resting_until = max(self._resting_until, now + max(0.0, retry_after))
        self._penalty_at = self._resting_until
        self.slowness = min(self._limits.widest, self.slowness * self._limits.widen)

    def idle(self, now: float) -> bool:
        """Return whether forgetting this budget would change nothing."""
        self._refill(now)
        return (
            self.slowness == 1.0
            and now >= self._resting_until
            and not self._finals_waiting
            and now - self._last_used >= self._limits.interval * self._limits.burst
        )

    def _refill(self, now: float) -> None:
        while self.slowness > 1.0 and now - self._penalty_at >= self._limits.recover_after:
            self._penalty_at += self._limits.recover_after
            self.slowness = max(1.0, self.slowness / self._limits.widen)
        if now > self._refilled_at:
            burst = float(self._limits.burst)
            gained = (now - self._refilled_at) / self._interval if self._interval else burst
            self._tokens = min(burst, self._tokens + gained)
            self._refilled_at = now


class Pacers:
    """The budgets of all chats; those that no longer matter are forgotten."""

    def __init__(self, most: int = 2_000) -> None:
        self._pacers: dict[tuple[str, str, str], ChatPacer] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._pacers)

    def of(self, chat: tuple[str, str, str], limits: PacingLimits, now: float) -> ChatPacer:
        """Return the budget of `chat` (platform, account, chat id); ask again for each call."""
        pacer = self._pacers.get(chat)
        if pacer is None:
            if len(self._pacers) >= self._most:
                self._pacers = {
                    key: each for key, each in self._pacers.items() if not each.idle(now)
                }
                # When all of them are busy, looking again only pays after many more have come.
                self._most = max(self._most, 2 * len(self._pacers))
            pacer = self._pacers[chat] = ChatPacer(limits, now)
        return pacer


PATIENCE = 3.0
"""Seconds a preview waits for room before it is dropped."""


class Pacer:
    """The budget of one chat, as something to wait for."""

    def __init__(
        self, pacers: Pacers, capabilities: Capabilities, chat: Target, clock: Clock
    ) -> None:
        self._pacers = pacers
        # An address of unknown kind takes what a group takes.
        private = chat.chat_kind is ChatKind.PRIVATE
        interval = capabilities.private_interval if private else capabilities.group_interval
        self._limits = PacingLimits(interval=interval)
        # An account takes at once as much as in a second.
        interval = capabilities.account_interval
        burst = max(3, round(1 / interval)) if interval else 3
        self._account_limits = PacingLimits(interval=interval, burst=burst)
        self._chat = (chat.platform, chat.account, chat.chat_id)
        self._clock = clock

    async def wait(self, urgency: Urgency, patience: float = PATIENCE) -> bool:
        """Wait for room for a call; False: it is not worth waiting for."""
        waited = 0.0
        final = urgency is Urgency.FINAL
        with self._budget().final_waiting() if final else nullcontext():
            while (seconds := self._admit(urgency)) > 0:
                waited += seconds
                if urgency is Urgency.TYPING or (not final and waited >= patience):
                    return False
                await self._clock.sleep(seconds)
        return True

    def penalise(self, seconds: float, scope: LimitScope = LimitScope.CHAT) -> None:
        budget = self._budget() if scope is LimitScope.CHAT else self._account_budget()
        budget.penalty(seconds, self._clock.monotonic())

    def _admit(self, urgency: Urgency) -> float:
        """Take the place of a call with the chat and the account, or return how long to wait."""
        now, account = self._clock.monotonic(), self._account_budget()
        seconds = account.wait(urgency, now)
        if seconds == 0.0 and (seconds := self._budget().admit(urgency, now)) == 0.0:
            account.admit(urgency, now)
        return seconds

    def _budget(self) -> ChatPacer:
        return self._pacers.of(self._chat, self._limits, self._clock.monotonic())

    def _account_budget(self) -> ChatPacer:
        account = (*self._chat[:2], "")
        return self._pacers.of(account, self._account_limits, self._clock.monotonic())
