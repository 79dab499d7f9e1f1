"""One budget per chat, and one per account, for everything that a platform counts.

Sends, edits, typing signals and deletes to one chat draw from the same
bucket, because the platform adds them up. A final text goes before a preview
and a preview before a typing signal; a preview that would have to wait may be
dropped, a final never is. After a "too many requests" the whole chat rests
for as long as it was told to and the budget becomes smaller for a while; where the
platform says that it means the account, all of its chats rest.

Pure logic: times come in, waiting times go out. Whoever waits asks again.
"""

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
    """How much one chat takes."""

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


class TokenBucket:
    """Tokens that come back with time."""

    def __init__(self, interval: float, burst: int, now: float) -> None:
        self.interval = interval
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def wait(self, now: float, *, left: int = 0) -> float:
        """Return the seconds until a token can be taken that leaves `left` others."""
        self._refill(now)
        missing = 1 + left - self._tokens
        # Rounding errors must not make somebody wait for a billionth of a second, for ever.
        return 0.0 if missing <= 1e-9 else missing * self.interval

    def take(self, now: float) -> None:
        """Take a token; also one that is not there, so that calls made anyway are counted."""
        self._refill(now)
        self._tokens -= 1

    def empty(self, now: float) -> None:
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)

    def _refill(self, now: float) -> None:
        if now > self._at:
            if self.interval > 0:
                gained = (now - self._at) / self.interval
                self._tokens = min(float(self._burst), self._tokens + gained)
            else:
                self._tokens = float(self._burst)
            self._at = now


class ChatPacer:
    def __init__(self, limits: PacingLimits, now: float) -> None:
        self._limits = limits
        self._bucket = TokenBucket(limits.interval, limits.burst, now)
        self._resting_until = now
        self._slowness = 1.0
        self._penalty_at = now
        self._finals_waiting = 0
        self.last_used = now
        self.penalties = 0

    @property
    def slowness(self) -> float:
        """By how much the interval is widened at the moment."""
        return self._slowness

    def wait(self, urgency: Urgency, now: float) -> float:
        """Return how many seconds to wait before such a call; 0 if it may go now."""
        self._recover(now)
        rest = max(0.0, self._resting_until - now)
        if urgency is Urgency.FINAL:
            return max(rest, self._bucket.wait(now))
        spared = min(self._limits.spared, self._limits.burst - 1) + self._finals_waiting
        return max(rest, self._bucket.wait(now, left=spared))

    def admit(self, urgency: Urgency, now: float) -> float:
        """Take the place of such a call if there is one; return the seconds to wait if not."""
        seconds = self.wait(urgency, now)
        if seconds == 0.0:
            self._bucket.take(now)
            self.last_used = now
        return seconds

    def droppable(self, urgency: Urgency, waited: float, patience: float) -> bool:
        """Return whether a call that has `waited` seconds may be given up."""
        if urgency is Urgency.FINAL:
            return False
        return urgency is Urgency.TYPING or waited >= patience

    def final_waits(self) -> None:
        """Note that a final waits: previews stand back until `final_done`."""
        self._finals_waiting += 1

    def final_done(self) -> None:
        """Note that a final does not wait any more."""
        self._finals_waiting = max(0, self._finals_waiting - 1)

    def penalty(self, retry_after: float, now: float) -> None:
        """Obey a "too many requests": rest, and be slower afterwards."""
        self.penalties += 1
        self._resting_until = max(self._resting_until, now + max(0.0, retry_after))
        self._slowness = min(self._limits.widest, self._slowness * self._limits.widen)
        self._penalty_at = self._resting_until
        self._bucket.empty(now)
        self._bucket.interval = self._limits.interval * self._slowness

    def idle(self, now: float) -> bool:
        """Return whether forgetting this budget would change nothing."""
        self._recover(now)
        return (
            self._slowness == 1.0
            and now >= self._resting_until
            and not self._finals_waiting
            and now - self.last_used >= self._limits.interval * self._limits.burst
        )

    def _recover(self, now: float) -> None:
        while self._slowness > 1.0 and now - self._penalty_at >= self._limits.recover_after:
            self._penalty_at += self._limits.recover_after
            self._slowness = max(1.0, self._slowness / self._limits.widen)
            self._bucket.interval = self._limits.interval * self._slowness


class PacerBook:
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
                self._forget(now)
            pacer = self._pacers[chat] = ChatPacer(limits, now)
        return pacer

    def _forget(self, now: float) -> None:
        self._pacers = {chat: p for chat, p in self._pacers.items() if not p.idle(now)}
        # When all of them are busy, looking again only pays after many more have come.
        self._most = max(self._most, 2 * len(self._pacers))


PATIENCE = 3.0
"""Seconds a preview waits for room before it is dropped."""


class Pacer:
    """The budget of one chat, as something to wait for."""

    def __init__(
        self, book: PacerBook, capabilities: Capabilities, chat: Target, clock: Clock
    ) -> None:
        self._book = book
        self._limits = _limits(capabilities, chat)
        self._account_limits = _account_limits(capabilities)
        self._chat = (chat.platform, chat.account, chat.chat_id)
        self._clock = clock

    async def wait(self, urgency: Urgency, patience: float = PATIENCE) -> bool:
        """Wait for room for a call; False: it is not worth waiting for."""
        waited = 0.0
        final = urgency is Urgency.FINAL
        if final:
            self._budget().final_waits()
        try:
            while (seconds := self._admit(urgency)) > 0:
                if self._budget().droppable(urgency, waited + seconds, patience):
                    return False
                await self._clock.sleep(seconds)
                waited += seconds
        finally:
            if final:
                self._budget().final_done()
        return True

    def penalise(self, seconds: float, scope: LimitScope = LimitScope.CHAT) -> None:
        """Obey the platform's wish for silence."""
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
        return self._book.of(self._chat, self._limits, self._clock.monotonic())

    def _account_budget(self) -> ChatPacer:
        account = (*self._chat[:2], "")
        return self._book.of(account, self._account_limits, self._clock.monotonic())


def _limits(capabilities: Capabilities, target: Target) -> PacingLimits:
    """Return how much the chat takes; an address of unknown kind takes what a group takes."""
    private = target.chat_kind is ChatKind.PRIVATE
    interval = capabilities.private_interval if private else capabilities.group_interval
    return PacingLimits(interval=interval)


def _account_limits(capabilities: Capabilities) -> PacingLimits:
    """Return how much the account takes: at once as much as in a second."""
    interval = capabilities.account_interval
    return PacingLimits(interval=interval, burst=max(3, round(1 / interval)) if interval else 3)
