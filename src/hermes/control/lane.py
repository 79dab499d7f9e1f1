"""Lane: the turns of one session, one at a time and in order.

A lane exists while its session has something to do. It takes waiting inbox
entries one by one, begins a turn for each and runs it; when nothing waits it
is gone. Lanes never wait for each other, and a lane that waits for a model or
a person holds no thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from hermes.control.ticket import Ticket
from hermes.domain.errors import HermesError, SessionBusy
from hermes.domain.ids import new_id
from hermes.domain.inbound import InboundMessage, InboxEntry
from hermes.domain.messages import Content, FilePart, ImagePart, InputKind, TextPart, UserMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.state import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.turn import NewTurn, Turn, TurnControl
from hermes.domain.turn_stream import TurnStream

__all__ = ["Lane", "LaneContext", "TurnRunnerPort", "user_message"]

log = logging.getLogger(__name__)

BUSY_POLL_SECONDS = 1.0


class TurnRunnerPort(Protocol):
    """The agent core as a lane sees it."""

    async def run(
        self,
        profile: AgentProfile,
        turn: Turn,
        stream: TurnStream,
        control: TurnControl,
        ephemeral: str = "",
    ) -> None:
        """Bring a turn to its end."""
        ...

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Do what may wait until the answer is out."""
        ...


class LaneContext(Protocol):
    """What a lane needs from the gateway around it."""

    ledger: Ledger
    runner: TurnRunnerPort
    clock: Clock
    owner: str

    def on_turn(self, stream: TurnStream, entry: InboxEntry | None) -> None:
        """A turn starts; doors that want to follow it are told."""
        ...

    def spawn_after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Run after-turn work beside the lanes."""
        ...

    async def orphan(self, session_id: str) -> Turn | None:
        """Claim the session's open turn if its owner is dead; raise SessionBusy if it lives."""
        ...


class Lane:
    """One live session."""

    def __init__(
        self,
        session_id: str,
        profile: AgentProfile,
        context: LaneContext,
        on_idle: Callable[["Lane"], None],
    ) -> None:
        self.session_id = session_id
        self.profile = profile
        self._context = context
        self._on_idle = on_idle
        self.gone = asyncio.Event()
        """Set when the lane has ended."""
        self._tickets: dict[int, Ticket] = {}
        self._awake = True
        self._held = False
        self._control: TurnControl | None = None
        self._current: TurnStream | None = None
        self._claimed: Turn | None = None

    @property
    def busy(self) -> bool:
        """True while a turn is running."""
        return self._control is not None

    @property
    def current(self) -> TurnStream | None:
        """The events of the turn that is running."""
        return self._current

    def wake(self, ticket: Ticket | None = None) -> None:
        """Say that something waits in the inbox, with the ticket of who waits for it."""
        self._awake = True
        if ticket is not None:
            self._tickets[ticket.entry.id] = ticket

    def hold(self) -> None:
        """Take nothing more: what waits stays in the inbox."""
        self._held = True

    def resume(self, turn: Turn) -> None:
        """Continue a turn claimed from a dead process before anything else."""
        self._claimed = turn
        self._awake = True

    def interrupt(self) -> bool:
        """Stop the running turn; False if there is none."""
        if self._control is None:
            return False
        self._control.interrupt()
        return True

    def steer(self, ticket: Ticket) -> bool:
        """Offer a message to the running turn; False if there is none."""
        if self._control is None or self._current is None:
            return False
        entry = ticket.entry
        self._control.steering.put(entry.id, user_message(entry.message, InputKind.STEER))
        ticket.resolve(self._current)
        return True

    async def run(self) -> None:
        """Work until nothing waits any more."""
        while self._awake and not self._held:
            self._awake = False
            if self._claimed is not None:
                turn, self._claimed = self._claimed, None
                await self._run_turn(turn, None)
            waiting = await self._context.ledger.waiting(self.session_id)
            # What is admitted from here on wakes the lane itself.
            if waiting and await self._answer(waiting[0]) and len(waiting) > 1:
                self._awake = True
        self._on_idle(self)

    async def _answer(self, entry: InboxEntry) -> bool:
        """Run the turn that answers `entry`; False if it has to wait."""
        ticket = self._tickets.pop(entry.id, None)
        new = NewTurn(
            id=new_id("turn"),
            session_id=self.session_id,
            owner=self._context.owner,
            inputs=(user_message(entry.message),),
            inbox_ids=(entry.id,),
            at=self._context.clock.now(),
        )
        try:
            begun = await self._context.ledger.begin_turn(new)
        except SessionBusy as busy:
            await self._wait_for_other(entry, ticket, busy)
            return True
        except HermesError as error:
            log.error("no turn for inbox entry %s: %s", entry.id, error.message)
            if ticket:
                ticket.fail(error)
            return False
        await self._run_turn(begun.turn, entry, ticket)
        return True

    async def _wait_for_other(
        self, entry: InboxEntry, ticket: Ticket | None, busy: SessionBusy
    ) -> None:
        """Take over the turn that is in the way if its owner died; else wait a little."""
        self._awake = True
        try:
            orphan = await self._context.orphan(self.session_id)
        except SessionBusy:
            log.warning("session %s: %s", self.session_id, busy.message)
            await self._context.clock.sleep(BUSY_POLL_SECONDS)
        else:
            if orphan is not None:
                await self._run_turn(orphan, None)
        if ticket:
            self._tickets[entry.id] = ticket

    async def _run_turn(
        self, turn: Turn, entry: InboxEntry | None, ticket: Ticket | None = None
    ) -> None:
        stream = TurnStream(turn.id, self.session_id)
        self._control, self._current = TurnControl(), stream
        if ticket:
            ticket.resolve(stream)
        self._context.on_turn(stream, entry)
        try:
            await self._context.runner.run(self.profile, turn, stream, self._control)
        finally:
            self._control = self._current = None
        self._context.spawn_after_turn(self.profile, self.session_id)

    def abandon(self, error: HermesError) -> None:
        """Fail every ticket that still waits."""
        for ticket in self._tickets.values():
            ticket.fail(error)
        self._tickets.clear()


def user_message(message: InboundMessage, kind: InputKind = InputKind.USER) -> UserMessage:
    """Turn what a door delivered into what the model is told."""
    content: Content = message.text
    if message.attachments:
        parts: list[TextPart | ImagePart | FilePart] = (
            [TextPart(message.text)] if message.text else []
        )
        parts += [
            FilePart(path=item.path, name=item.name, media_type=item.media_type)
            for item in message.attachments
        ]
        content = tuple(parts)
    return UserMessage(content=content, kind=kind)
