"""One chat as deliveries see it: its connection, its pace, and the record of what was sent."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct

from hermes.control.delivery.rate_limit import LOOK_AGAIN, PATIENCE, Pacer, Pacers, Urgency
from hermes.domain.outbound import OutboxEntry, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.clock import Clock, wait_at_most
from hermes.domain.ports.ledger import OutboxStore
from hermes.domain.ports.platform import Adapter, FailureAction, PlatformFailure
from hermes.domain.ports.surface import Shown

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
LATEST = 3600.0
"""So long something that may be done some time waits for its chance."""
SIGNS = (Urgency.TYPING, Urgency.REACTION)
SIGN_SECONDS = 2.0
"""So long a sign may take: the answer waits behind it."""
PASSING = (FailureAction.UNKNOWN, FailureAction.RETRY, FailureAction.FATAL)


class Line(Struct, frozen=True, kw_only=True):
    """A connection to one platform account."""

    adapter: Adapter
    sent: Callable[[], None] = lambda: None
    """Told after each successful call, for liveness."""


class Connections:
    """The connected accounts as deliveries see them, and what all deliveries to a chat share."""

    def __init__(
        self,
        line: Callable[[str, str], Line | None],
        capabilities: Mapping[str, Capabilities],
        clock: Clock,
        beside: Callable[[Coroutine[Any, Any, None]], object] | None = None,
    ) -> None:
        self._line_of = line
        self.beside = beside
        """Does what nobody has to wait for; without it, it is done at once."""
        self.capabilities = capabilities
        self.clock = clock
        self.pacers = Pacers()
        self._woken = asyncio.Event()
        self._orders: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    def line(self, target: Target) -> Line | None:
        return self._line_of(target.platform, target.account)

    async def connected(self, target: Target) -> Line:
        while (line := self.line(target)) is None:
            await self.pause(LONGEST_PAUSE)
        return line

    def order(self, target: Target) -> asyncio.Lock:
        """Return what the urgent pieces of a chat queue for."""
        chat = (target.platform, target.account, target.chat_id)
        return self._orders.setdefault(chat, asyncio.Lock())

    def wake(self) -> None:
        """Have everything tried again now: an account has connected."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        await wait_at_most(self._woken, self.clock, seconds)


Call = Callable[[Line], Awaitable[None]]


class Slot:
    def __init__(self, entry: OutboxEntry) -> None:
        self.entry = entry
        self.look: Shown | None = None
        """How this process last wanted it to look."""
        self.visible: tuple[str, object] | None = None
        """How this process last made it look: text and buttons."""
        self.gone = ""
        """Added to its key when its message was deleted: the key still names that one."""
        self.plain_only = False
        self.pause = FIRST_PAUSE
        self.alarm = logging.ERROR
        """How loudly it is said that the account is refused: once."""
        self.mark: str | None = None
        """The placeholder that shows where the ids stood when its fate was looked into."""
        self.strays = 0
        """Placeholders of which nobody knows whether they are there."""
        self.suspects: list[str] = []
        """Ids that the lost message may have."""
        self.halves: list[str] = []
        """Messages of it that could not be edited any more; they go when a new one is there."""
        self.litter: list[str] = []
        """Placeholders that have to go."""

    @property
    def over(self) -> bool:
        return self.entry.state in (OutboxState.SENT, OutboxState.FAILED, OutboxState.UNKNOWN)

    @property
    def lost(self) -> bool:
        """Whether a send was begun of which nobody knows what became of it."""
        return self.entry.state is OutboxState.SENDING and self.entry.native_id is None


class ReplyPlace:
    """Where the pieces of one reply go."""

    def __init__(self, outbox: OutboxStore, connections: Connections, target: Target) -> None:
        self.outbox = outbox
        self.connections = connections
        self.clock = connections.clock
        self.target = target
        self.pacer = Pacer(connections.pacers, self.capabilities, target, self.clock)
        self._rests: dict[Urgency, float] = {}
        """Until when signs of a kind are not wanted."""

    @property
    def capabilities(self) -> Capabilities:
        return self.connections.capabilities[self.target.platform]

    def aim(self, target: Target) -> bool:
        """Send to another address from now on; False if it is the same."""
        changed, self.target = target != self.target, target
        return changed

    async def aside(
        self, urgency: Urgency, call: Call, patience: float = PATIENCE
    ) -> FailureAction | None:
        """Make a call once, if there is room for it soon enough; return why it did not work."""
        apart = urgency in SIGNS and self.capabilities.signs_apart
        if self.clock.monotonic() < self._rests.get(urgency, 0.0):
            return FailureAction.WAIT
        if not await self.pacer.wait(urgency, patience):
            return FailureAction.WAIT
        line = self.connections.line(self.target)
        if line is None:
            self.pacer.done()
            return FailureAction.RETRY
        try:
            async with asyncio.timeout(SIGN_SECONDS if apart else None):
                await call(line)
        except TimeoutError:
            self._rests[urgency] = self.clock.monotonic() + self.capabilities.typing_seconds
            return FailureAction.WAIT
        except PlatformFailure as failure:
            if failure.action is FailureAction.WAIT and apart:
                self._rests[urgency] = self.clock.monotonic() + failure.retry_after
            elif failure.action is FailureAction.WAIT:
                self.pacer.penalise(failure.retry_after, failure.scope)
            return failure.action
        finally:
            self.pacer.done()
        return None

    async def take_away(self, native_id: str) -> None:
        for _ in range(5):
            if await self.aside(Urgency.FINAL, self.deletion(native_id)) is None:
                return
            await self.connections.pause(FIRST_PAUSE)

    def deletion(self, native_id: str) -> Call:
        return lambda line: line.adapter.delete(self.target, native_id)

    async def some_time(self, call: Call) -> None:
        """Make a call when nobody waits for anything else in the chat, until it works."""
        order, end = self.connections.order(self.target), self.clock.monotonic() + LATEST
        pause = FIRST_PAUSE
        while self.clock.monotonic() < end:
            await self.connections.connected(self.target)
            while order.locked():
                await self.clock.sleep(LOOK_AGAIN)
            # Those who asked at the same time come first.
            action = await self.aside(Urgency.PREVIEW, call, LONGEST_PAUSE)
            if action is FailureAction.WAIT:
                action = await self.aside(Urgency.SOME_TIME, call)
            if action not in (*PASSING, FailureAction.WAIT):
                return
            if action is not FailureAction.WAIT:
                await self.connections.pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def claim(self, known: Slot) -> bool:
        """Write down that a send is about to begin; False if one was begun before."""
        claimed = await self.outbox.claim_send(known.entry.id, self.clock.now())
        known.entry = claimed or known.entry
        return claimed is not None

    async def record(self, known: Slot, state: OutboxState, **more: str) -> None:
        now, entry_id = self.clock.now(), known.entry.id
        known.entry = await self.outbox.update_outbox(entry_id, state=state, at=now, **more)

    async def note_lost(self, known: Slot, failure: PlatformFailure) -> None:
        """Note why the fate is unknown; the time stays that of the claim, which is looked from."""
        entry = known.entry
        known.entry = await self.outbox.update_outbox(
            entry.id, state=OutboxState.SENDING, at=entry.updated_at, error=failure.message
        )

    async def end(self, known: Slot, state: OutboxState, error: str) -> None:
        """Give a piece up, and say so."""
        await self.record(known, state, error=error)
        chat = f"{self.target.platform} chat {self.target.chat_id}"
        log.warning("%s for %s was not delivered: %s", known.entry.id, chat, error)
