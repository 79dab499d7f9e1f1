"""Lane: the turns of one session, one at a time and in order.

A lane exists while its session has something to do. It takes waiting inbox
entries one by one, begins a turn for each and runs it; when nothing waits it
is gone. Lanes never wait for each other, and a lane that waits for a model or
a person holds no thread.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from hermes.control.lanes.batches import (
    batch_entry,
    batch_inputs,
    batch_options,
    first_batch,
    user_message,
)
from hermes.domain.errors import HermesError, SessionBusy
from hermes.domain.events import TurnFinished, TurnJob, TurnStream
from hermes.domain.ids import new_turn_id
from hermes.domain.inbound import InboxEntry
from hermes.domain.messages import InputKind
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import Opening
from hermes.domain.turn import (
    NewTurn,
    Turn,
    TurnBrief,
    TurnContext,
    TurnControl,
    TurnError,
    TurnState,
)
from hermes.domain.usage import Usage

if TYPE_CHECKING:
    from hermes.control.lanes.gateway import Gateway


class Ticket:
    """A claim on the turn that will take an admitted message."""

    def __init__(self, entry: InboxEntry, *, duplicate: bool = False) -> None:
        self.entry = entry
        self.duplicate = duplicate
        self._job: asyncio.Future[TurnJob] = asyncio.get_running_loop().create_future()

    @property
    def session_id(self) -> str:
        return self.entry.session_id

    @property
    def settled(self) -> bool:
        """True once a turn has the message, or none will have it."""
        return self._job.done()

    @property
    def begun(self) -> TurnJob | None:
        """The turn that has the message, if there is one by now."""
        if not self._job.done() or self._job.exception() is not None:
            return None
        return self._job.result()

    async def job(self) -> TurnJob:
        """Return the turn that takes this message, once it starts; raise what kept it from that."""
        return await asyncio.shield(self._job)

    async def stream(self) -> TurnStream:
        return (await self.job()).stream

    def resolve(self, job: TurnJob) -> None:
        if not self._job.done():
            self._job.set_result(job)

    def fail(self, error: HermesError) -> None:
        if not self._job.done():
            self._job.set_exception(error)
            self._job.exception()


log = logging.getLogger(__name__)

BUSY_POLL_SECONDS = 1.0


class TurnRunnerPort(Protocol):
    """The agent core as a lane sees it."""

    async def run(self, job: TurnJob) -> None: ...

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Do what may wait until the answer is out."""
        ...


class Lane:
    def __init__(self, session_id: str, profile: AgentProfile, gateway: "Gateway") -> None:
        self.session_id = session_id
        self.profile = profile
        self._gateway = gateway
        self.gone = asyncio.Event()
        """Set when the lane has ended."""
        self._tickets: dict[int, Ticket] = {}
        self._taken: dict[int, TurnJob] = {}
        """Entries of the last turn, for tickets that come late."""
        self._awake = True
        self._held = False
        self._control: TurnControl | None = None
        self.current: TurnStream | None = None
        """The events of the running turn."""
        self._job: TurnJob | None = None
        self._begun: tuple[Turn, list[InboxEntry], Opening | None] | None = None
        """A turn that is in the ledger already, with what it has taken as far as that is known."""

    def wake(self, ticket: Ticket | None = None) -> None:
        """Say that something waits in the inbox, with the ticket of who waits for it."""
        self._awake = True
        if ticket is None:
            return
        taken = self._taken.get(ticket.entry.id)
        if taken is not None:
            # The lane saw the entry in the ledger before it heard of the ticket.
            ticket.resolve(taken)
        else:
            self._tickets[ticket.entry.id] = ticket

    def hold(self) -> None:
        """Take nothing more: what waits stays in the inbox."""
        self._held = True

    def resume(self, turn: Turn) -> None:
        """Continue a turn claimed from a dead process before anything else."""
        self._begun = turn, [], None
        self._awake = True

    def begin(self, turn: Turn, entry: InboxEntry, opening: Opening | None) -> None:
        """Run a turn that was begun when its message was admitted."""
        self._begun = turn, [entry], opening
        self._awake = True

    def interrupt(self) -> None:
        if self._control is not None:
            self._control.interrupt()

    @property
    def stopping(self) -> bool:
        return self._control is not None and self._control.interrupted

    def lay_down(self) -> None:
        """Say that the running turn will be cancelled in good order."""
        if self._control is not None:
            self._control.laid_down = True

    @property
    def account(self) -> str | None:
        """Which of our accounts the running turn is answered through; None if none runs."""
        entry = self._job.entry if self._job is not None else None
        return None if entry is None or entry.message.internal else entry.message.account or None

    def steer(self, ticket: Ticket) -> bool:
        """Offer a message to the running turn; False if there is none, or files are missing."""
        if self._job is None:
            return False
        entry = ticket.entry
        if any(each.remote and not each.path for each in entry.message.attachments):
            return False
        self._job.control.steer(entry.id, user_message(entry.message, InputKind.STEER))
        ticket.resolve(self._job)
        return True

    def join(self, ticket: Ticket) -> None:
        if self._job is not None and self._job.turn.id == ticket.entry.turn_id:
            ticket.resolve(self._job)

    async def run(self) -> None:
        while self._awake and not self._held:
            self._awake = False
            if self._begun is not None:
                begun, self._begun = self._begun, None
                await self._run_turn(*begun)
                if begun[2] is not None and not self._awake:
                    break  # nothing was there before it, and nothing has come since
            waiting = await self._gateway.ledger.waiting(self.session_id)
            if waiting and await self._take(waiting):
                self._awake = True

    async def _take(self, waiting: list[InboxEntry]) -> bool:
        """Answer what came first, once it is complete; False if that is not possible now."""
        platform = waiting[0].message.platform
        window = self._gateway.doors.of(platform).window(platform)
        batch, wait = first_batch(waiting, window, self._gateway.clock.now())
        if wait > 0:
            await self._gateway.clock.sleep(wait)
            return True
        return await self._answer(batch)

    async def _answer(self, batch: list[InboxEntry]) -> bool:
        """Run the turn that answers `batch`; False if it could not begin."""
        door = self._gateway.doors.of(batch[0].message.platform)
        batch = [replace(entry, message=await door.fetched(entry.message)) for entry in batch]
        new = NewTurn(
            id=new_turn_id(),
            session_id=self.session_id,
            owner=self._gateway.owner,
            inputs=batch_inputs(batch),
            inbox_ids=tuple(entry.id for entry in batch),
            results=tuple(result for entry in batch for result in entry.message.results),
            at=self._gateway.clock.now(),
        )
        try:
            self._gateway.profile(self.profile.id)  # raises if it is not served any more
            begun = await self._gateway.ledger.begin_turn(new)
        except SessionBusy as busy:
            await self._wait_for_other(busy)
            return True
        except HermesError as error:
            log.error("no turn for inbox entries %s: %s", new.inbox_ids, error.message)
            self._trouble(batch[0], error)
            for ticket in self._claim_tickets(batch):
                ticket.fail(error)
            return False
        await self._run_turn(begun.turn, batch)
        return True

    def _claim_tickets(self, batch: list[InboxEntry]) -> list[Ticket]:
        found = [self._tickets.pop(entry.id, None) for entry in batch]
        return [ticket for ticket in found if ticket is not None]

    async def _wait_for_other(self, busy: SessionBusy) -> None:
        """Take over the turn that is in the way if its owner died; else wait a little."""
        try:
            orphan = await self._gateway.orphan(self.session_id)
        except SessionBusy:
            log.warning("session %s: %s", self.session_id, busy.message)
            await self._gateway.clock.sleep(BUSY_POLL_SECONDS)
            return
        if orphan is not None:
            await self._run_turn(orphan, [])

    async def _run_turn(
        self, turn: Turn, batch: list[InboxEntry], opening: Opening | None = None
    ) -> None:
        stream = TurnStream(turn.id, self.session_id)
        self._control, self.current = TurnControl(), stream
        entry = batch_entry(batch)
        try:
            job = await self._prepared(turn, stream, self._control, batch)
            job = self._job = replace(job, opening=opening)
            entry = job.entry
            self._taken = {each.id: job for each in batch}
            for ticket in self._claim_tickets(batch):
                ticket.resolve(job)
            self._gateway.doors.on_turn(job)
            with use_profile(job.profile):
                await self._gateway.runner.run(job)
        except BaseException as error:
            if stream.finished is None:
                stream.emit(_left_open())
            if entry is not None and isinstance(error, Exception):
                self._trouble(entry, explained(error))
            raise
        finally:
            self._control = self.current = self._job = None
        self._gateway.turn_ended(self.profile, self.session_id)

    async def _prepared(
        self, turn: Turn, stream: TurnStream, control: TurnControl, batch: list[InboxEntry]
    ) -> TurnJob:
        """Gather what the turn is told; one that goes on after a restart asks the ledger."""
        taken = batch or await self._gateway.ledger.entries_of_turn(turn.id)
        entry = batch_entry(taken)
        context = TurnContext()
        if entry is not None:
            self.profile = self._gateway.placed(self.profile.id, entry.message)
            context = await self._gateway.doors.of(entry.message.platform).context(turn, entry)
        return TurnJob(
            profile=self.profile,
            turn=turn,
            stream=stream,
            control=control,
            entry=entry,
            brief=TurnBrief(context=context, options=batch_options(taken)),
            capabilities=self._gateway.doors.capabilities,
        )

    def _trouble(self, entry: InboxEntry, error: HermesError) -> None:
        self._gateway.doors.of(entry.message.platform).on_trouble(entry, error)

    def abandon(self, error: HermesError) -> None:
        for ticket in self._tickets.values():
            ticket.fail(error)
        self._tickets.clear()


def explained(error: Exception) -> HermesError:
    if isinstance(error, HermesError):
        return error
    return HermesError("Something went wrong.", hint="The log has the details.")


def _left_open() -> TurnFinished:
    """Return the end for those who follow a turn that its lane could not go on with.

    It is still open in the ledger and is picked up again, as after a restart.
    """
    return TurnFinished(
        outcome=TurnState.INTERRUPTED,
        text="",
        usage=Usage(),
        cost_usd=None,
        model_calls=0,
        error=TurnError(code="shutdown", message="This turn is kept and continues later."),
    )
