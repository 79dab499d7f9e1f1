"""Rate limits: a token bucket per chat, per account and per platform.

Whatever a platform counts (sends, edits, deletes, typing signals, reactions) takes a token
from each of the three buckets of its chat; the figures are data of the platform's manifest
(`Capabilities.limits`). What decides who gets the next token:

- Finals, prompts and deletes are never dropped. They queue per chat, and the one that its
  chat has room for queues at the account: first come, first served, so a chat that must wait
  holds up nobody else and nobody starves.
- Everything else only takes what is left over: while a final queues it gets nothing, and of
  each bucket a reserve is kept, so that an answer finds room in a group where people typed and
  reacted a moment ago. A preview or a reaction waits a moment and is dropped; typing leaves one
  more token and never waits. What is to be done some time (taking
  placeholders away, the last mark) waits however long that takes, and leaves a third of the
  reserve: the next to ask is answered at once.
- A platform counts a call when it arrives, which may be a while after it was begun. So a call
  keeps its place in the burst until it is `done`, and a jam on the way never becomes a flood.
- A "too many requests" rests the bucket it is about for exactly as long as was asked. After
  that there is one token, and the pace is the usual one: nothing stays slower.
"""

import asyncio
from collections import deque
from enum import IntEnum
from math import inf

from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities, Rate
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import LimitScope

PATIENCE = 1.0
"""Seconds that a call that may be dropped waits for room."""
LOOK_AGAIN = 0.2
"""Seconds after which it looks again at the least: hundreds of previews may wait for one token."""

_UNDER_WAY = 2.0
"""Seconds after which a call has certainly arrived, though an upload may take minutes more."""


class Urgency(IntEnum):
    TYPING = 0
    """Dropped when there is no room at once."""
    REACTION = 1
    PREVIEW = 2
    """May be dropped: a newer one or the final will come."""
    SOME_TIME = 3
    """Waits as long as it takes, behind all finals."""
    FINAL = 4
    """Waits as long as it takes: finals, deletes of what must go."""
    PROMPT = 4
    """Somebody is asked: as urgent as a final."""


class Bucket:
    """Tokens that come back with time; pure logic but for the queue of finals."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._counted_at = now
        """In the future while it rests."""
        self._under_way: deque[float] = deque()
        """When the calls that are not done were begun."""
        self.queue = asyncio.Lock()
        """Held by the final that gets the next token; the others wait for it in order."""

    def wait(self, urgency: Urgency, now: float) -> float:
        """Return the seconds until there would be room for such a call; 0: there is."""
        while self._under_way and self._under_way[0] <= now - _UNDER_WAY:
            self._under_way.popleft()
        if now > self._counted_at:
            gained = (now - self._counted_at) * self._rate.per_second
            room = float(self._rate.burst - len(self._under_way))
            self._tokens = min(room, self._tokens + gained)
            self._counted_at = now
        missing = 1 + self._spared(urgency) - self._tokens
        # Rounding errors must not make somebody wait for a billionth of a second, for ever.
        refill = missing / self._rate.per_second if missing > 1e-9 else 0.0
        return max(0.0, self._counted_at - now) + refill

    def take(self, now: float) -> None:
        self._tokens -= 1
        self._under_way.append(now)

    def done(self) -> None:
        if self._under_way:
            self._under_way.popleft()

    def rest(self, seconds: float, now: float) -> None:
        self.wait(Urgency.FINAL, now)
        self._counted_at = max(self._counted_at, now + max(0.0, seconds))
        # The platform's word beats the count: when the time is over, one call may go.
        self._tokens = 1.0 if seconds > 0 else min(self._tokens, 1.0)

    def idle(self, now: float) -> bool:
        """Return whether forgetting it would change nothing."""
        full = self.wait(Urgency.FINAL, now) == 0 and self._tokens == self._rate.burst
        return full and not self.queue.locked()

    def _spared(self, urgency: Urgency) -> int:
        if urgency is Urgency.FINAL:
            return 0
        if urgency is Urgency.SOME_TIME:
            return min(max(1, self._rate.reserve // 3), self._rate.burst - 1)
        more = int(urgency is Urgency.TYPING)
        return min(self._rate.reserve + more, self._rate.burst - 1)


class Pacers:
    """The buckets of all chats, accounts and platforms; full ones are forgotten."""

    def __init__(self, most: int = 2_000) -> None:
        self._buckets: dict[tuple[str, ...], Bucket] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, place: tuple[str, ...], rate: Rate, now: float) -> Bucket:
        """Return the bucket of a chat (platform, account, chat id), account or platform."""
        bucket = self._buckets.get(place)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._buckets = {k: each for k, each in self._buckets.items() if not each.idle(now)}
                # When all of them are busy, looking again only pays after many more have come.
                self._most = max(self._most, 2 * len(self._buckets))
            bucket = self._buckets[place] = Bucket(rate, now)
        return bucket


class Pacer:
    """The buckets of one chat, as something to wait for."""

    def __init__(
        self, pacers: Pacers, capabilities: Capabilities, chat: Target, clock: Clock
    ) -> None:
        self._pacers = pacers
        self._clock = clock
        limits = capabilities.limits
        # An address of unknown kind takes what a group takes.
        private = chat.chat_kind is ChatKind.PRIVATE
        place = (chat.platform, chat.account, chat.chat_id)
        self._places = {
            LimitScope.CHAT: (place, limits.private if private else limits.group),
            LimitScope.ACCOUNT: (place[:2], limits.account),
            LimitScope.PLATFORM: (place[:1], limits.platform),
        }

    async def wait(self, urgency: Urgency, patience: float = PATIENCE) -> bool:
        """Wait for room for a call; False: it is not worth waiting for."""
        if urgency is Urgency.FINAL:
            await self._queue()
            return True
        end = self._clock.monotonic() + (inf if urgency is Urgency.SOME_TIME else patience)
        while (seconds := self._take(urgency)) > 0:
            if urgency is Urgency.TYPING or self._clock.monotonic() + seconds > end:
                return False
            await self._clock.sleep(max(seconds, LOOK_AGAIN))
        return True

    def done(self) -> None:
        """Note that a call for which there was room has ended."""
        for scope in LimitScope:
            self._bucket(scope).done()

    def penalise(self, seconds: float, scope: LimitScope = LimitScope.CHAT) -> None:
        """Obey a "too many requests"."""
        self._bucket(scope).rest(seconds, self._clock.monotonic())

    async def _queue(self) -> None:
        chat, account, platform = map(self._bucket, LimitScope)
        async with chat.queue:
            while True:
                await self._ready(chat)
                async with account.queue:
                    await self._ready(account)
                    async with platform.queue:
                        await self._ready(platform)
                        # One of the others may have been told to rest meanwhile.
                        if self._take(Urgency.FINAL) == 0:
                            return

    async def _ready(self, bucket: Bucket) -> None:
        while (seconds := bucket.wait(Urgency.FINAL, self._clock.monotonic())) > 0:
            await self._clock.sleep(seconds)

    def _take(self, urgency: Urgency) -> float:
        """Take a token from each bucket, or return the seconds to wait if one has none."""
        # A bucket that is new begins now, so the time is looked at after it.
        buckets, now = [self._bucket(scope) for scope in LimitScope], self._clock.monotonic()
        if urgency is not Urgency.FINAL and any(each.queue.locked() for each in buckets):
            return LOOK_AGAIN
        seconds = max(each.wait(urgency, now) for each in buckets)
        if seconds == 0:
            for each in buckets:
                each.take(now)
        return seconds

    def _bucket(self, scope: LimitScope) -> Bucket:
        place, rate = self._places[scope]
        return self._pacers.of(place, rate, self._clock.monotonic())
