"""Doors: the ways into Hermes, and everything a process asks of them.

A door takes messages in at one end (`Gateway.submit`, `Gateway.take`) and shows
what becomes of them at the other. Chats, the API server, webhooks and the
terminal are doors; a door for a scheduler or a console is one more subclass
and one row in `app.doors.DOORS`.

The life of a door, as `app.serve` leads it:

    made      complete: everything it needs is passed to its constructor
    services  work that runs beside it, from now until the end, begun again if it fails
    recover   finish what earlier processes left (see `control.follow`); called before
              and after the gateway resumes turns, at the start and now and then
    open      take messages; raise if that is impossible as configured
    configured  the configuration has changed: take over what can change while running
    drain     take nothing new; what runs may end
    close     the lanes have stopped: give what is under way some seconds, then let go

While a door is attached to the gateway (`Doors.attached`), the turns of its
platforms, and only those, are its own:

    window    how long messages wait for others that belong to them
    fetched   a message with the files that it left with its platform
    context   what the model is told about the place of a session and of a turn
    on_turn   a turn begins, or goes on after a restart: follow its stream
    on_trouble  a message cannot be answered for now
    deliver   send something to a chat that no turn there asked for

Whoever wants to see the turns of all doors, such as the metrics, watches the
registry instead (`Doors.watching`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from hermes.control.follow import Follower
from hermes.control.lanes.batches import NO_BATCHING, BatchWindow
from hermes.control.supervision.services import BackgroundWork
from hermes.control.supervision.supervisor import AdapterHealth
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnJob
from hermes.domain.inbound import InboundMessage, InboxEntry
from hermes.domain.outbound import Target
from hermes.domain.tools import ToolCapabilities
from hermes.domain.turn import Turn, TurnContext

ANY = "*"


class Door:
    """A way in. A subclass names its platforms and overrides what concerns it."""

    name: str = ""
    platforms: Collection[str] = ()
    """What its messages carry as `InboundMessage.platform`; `ANY` for what no other door has."""
    follower: Follower | None = None
    """Sees through what is owed for its turns; it begins, recovers and closes with the door."""
    shows_notices: bool = False
    """What becomes of a background process is said where its conversation takes place."""
    capabilities: ToolCapabilities = ToolCapabilities()
    """What it lends to the tools of all turns, for instance sending to its chats."""

    # -- its life ------------------------------------------------------------

    def services(self) -> Sequence[BackgroundWork]:
        return ()

    async def recover(self) -> None:
        if self.follower is not None:
            await self.follower.recover()

    async def open(self) -> None:
        pass

    def configured(self) -> None:
        pass

    def drain(self) -> None:
        pass

    async def close(self, seconds: float) -> None:
        if self.follower is not None:
            await self.follower.close(seconds)

    def health(self) -> Sequence[AdapterHealth]:
        return ()

    # -- its turns -----------------------------------------------------------

    def window(self, platform: str) -> BatchWindow:  # noqa: ARG002
        return NO_BATCHING

    async def fetched(self, message: InboundMessage) -> InboundMessage:
        return message

    async def context(self, turn: Turn, entry: InboxEntry) -> TurnContext:  # noqa: ARG002
        return TurnContext()

    def on_turn(self, job: TurnJob) -> None:
        if self.follower is not None:
            self.follower.begin(job)

    def on_trouble(self, entry: InboxEntry, error: HermesError) -> None:
        pass

    def account_of(self, platform: str, account: str) -> tuple[str, str]:  # noqa: ARG002
        """Return what an account is called in the configuration, and whose own it is."""
        return "", ""

    # -- what others send through it -----------------------------------------

    async def deliver(self, target: Target, text: str, delivery_id: str) -> None:  # noqa: ARG002
        """Send a text, never twice under one id; raise if it does not get there."""
        raise HermesError(
            f"`{target.platform}` is not a chat platform that this gateway is connected to.",
            hint="See the connected ones with: hermes gateway status",
        )


TurnObserver = Callable[[TurnJob], None]
NOBODY = Door()


class Doors:
    """The doors that are attached to a gateway, by platform."""

    def __init__(self) -> None:
        self._doors: list[Door] = []
        self._observers: list[TurnObserver] = []

    def __iter__(self) -> Iterator[Door]:
        return iter(tuple(self._doors))

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(platform for door in self._doors for platform in door.platforms)

    @property
    def capabilities(self) -> ToolCapabilities:
        """What the attached doors lend to tools, the first one of each kind."""
        lent = ToolCapabilities()
        for door in reversed(self._doors):
            own = door.capabilities
            lent = replace(lent, **{need.value: getattr(own, need.value) for need in own.granted})
        return lent

    def of(self, platform: str) -> Door:
        """Return the door of a platform; one that does nothing if there is none."""
        own = [door for door in self._doors if platform in door.platforms]
        other = [door for door in self._doors if ANY in door.platforms]
        return next(iter(own + other), NOBODY)

    @contextmanager
    def attached(self, *doors: Door) -> Iterator[None]:
        """Give these doors their turns during the body of the `with`."""
        self._doors += doors
        try:
            yield
        finally:
            self._doors = [door for door in self._doors if door not in doors]

    @contextmanager
    def watching(self, observer: TurnObserver) -> Iterator[None]:
        """Tell `observer` of the turns of all doors during the body of the `with`."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def on_turn(self, job: TurnJob) -> None:
        for observer in tuple(self._observers):
            observer(job)
        if job.entry is not None:
            self.of(job.entry.message.platform).on_turn(job)

    def health(self) -> list[AdapterHealth]:
        return [health for door in self._doors for health in door.health()]
