"""Follower: obligations that hang on a turn and are met once, also after a crash.

Whoever sends a message expects something when its turn has ended: an answer in
the chat, the outcome of a run, a result delivered somewhere. The message is in
the inbox, and its entry stays `taken` until the obligation is met; that is all
the durable state there is in common. What else a kind has to remember it keeps
in its own table (a run, a webhook delivery).

    expect    a message was admitted: follow the turn that will take it
    begin     a turn begins or goes on: the door hands its job on
    recover   the one recovery pass: what `unfinished` finds and nobody follows

Each obligation is in exactly one pair of hands: an entry that is being followed
is not begun again, and one whose turn ended unseen (the process died, the ledger
failed at the wrong moment, the turn was given up) is ended from the ledger. A
follower that fails leaves the obligation open, and the next pass finds it.

A kind says what is unfinished and what the end of a turn means:

    class CronDeliveries(Follower):
        async def unfinished(self): return await self._ledger.unanswered(("cron",))
        async def ended(self, entry, outcome): ...deliver, then mark_answered

`ended` must be repeatable: a crash between its effect and its record has it
called again. Kinds that show a turn while it runs override `follow` too. Chats
(`entry.chat.replies`), runs (`control.runs`) and webhooks (`control.webhooks`)
are the kinds there are.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from hermes.control.lanes.lane import Ticket
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnFinished, TurnJob
from hermes.domain.inbound import InboxEntry, InboxState
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import TurnError, TurnState

log = logging.getLogger(__name__)

SHUTDOWN = "shutdown"


class Outcome(Struct, frozen=True, kw_only=True):
    """How the turn of an obligation ended, seen or found in the ledger."""

    turn_id: str | None
    """None: no turn has taken the message, or the turn is gone."""
    state: TurnState
    text: str = ""
    error: TurnError | None = None

    @property
    def reason(self) -> str:
        return self.error.message if self.error else f"The turn was {self.state.value}."


class Kept(HermesError):
    """The process stops; the obligation is met after the next start."""

    code = SHUTDOWN


class Unseen(HermesError):
    """A turn ended, and nobody here saw it begin."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Follower:
    """Sees the obligations of one kind through."""

    def __init__(self, ledger: Ledger, group: asyncio.TaskGroup) -> None:
        self._ledger = ledger
        self._group = group
        self._tickets: dict[int, Ticket] = {}
        """Inbox entry -> who sees it through in this process."""
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what a kind says ------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        """Return the messages with something left to do, one for each obligation."""
        raise NotImplementedError

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        """Do what is owed and record that; it may have been done before."""
        raise NotImplementedError

    async def follow(self, ticket: Ticket) -> None:
        job = await ticket.job()
        finished = await job.stream.wait()
        if not goes_on_later(finished):
            outcome = Outcome(
                turn_id=job.turn.id,
                state=finished.outcome,
                text=finished.text,
                error=finished.error,
            )
            await self.ended(ticket.entry, outcome)

    # -- what a door calls -----------------------------------------------------

    def begin(self, job: TurnJob) -> None:
        if job.entry is not None:
            self.expect(Ticket(job.entry)).resolve(job)

    def expect(self, ticket: Ticket) -> Ticket:
        """Follow the turn that will have an admitted message; return whose ticket counts."""
        entry = ticket.entry
        if entry.id in self._tickets:
            return self._tickets[entry.id]
        self._tickets[entry.id] = ticket
        name = f"{entry.message.platform} {entry.message.native_id}"
        self._spawn(_safely(self._see_through(ticket), name))
        return ticket

    async def recover(self) -> None:
        """Have everything seen through that nobody follows."""
        for entry in await self.unfinished():
            known = self._tickets.get(entry.id)
            if known is not None and known.settled:
                continue
            outcome = await self._outcome(entry)
            ticket = self.expect(Ticket(entry))
            if outcome is not None:
                ticket.fail(Unseen(outcome))

    async def close(self, seconds: float) -> None:
        """Give what has begun so many seconds; the rest is found by the next process."""
        for ticket in self._tickets.values():
            ticket.fail(Kept("This is kept and continues later."))
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def idle(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done that hangs on no turn; it ends with the follower."""
        return self._spawn(_safely(work, "something owed"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _see_through(self, ticket: Ticket) -> None:
        try:
            await self.follow(ticket)
        except Unseen as unseen:
            await self.ended(ticket.entry, unseen.outcome)
        finally:
            del self._tickets[ticket.entry.id]

    async def _outcome(self, listed: InboxEntry) -> Outcome | None:
        """Return how the turn of a message ended; None if it goes on or has yet to begin."""
        entry = await self._ledger.entry(listed.id)
        if entry is None:
            return _without_turn("lost", "The message was deleted.")
        if entry.state is InboxState.DROPPED:
            return _without_turn("dropped", f"The message was {entry.drop_reason or 'dropped'}.")
        if entry.turn_id is None:
            return None
        turn = await self._ledger.turn(entry.turn_id)
        if turn is None:
            return _without_turn("lost", "The turn was deleted.")
        if turn.state.open:
            return None
        text = await self._last_words(entry.session_id, turn.id)
        return Outcome(turn_id=turn.id, state=turn.state, text=text, error=turn.error)

    async def _last_words(self, session_id: str, turn_id: str) -> str:
        said = [
            stored.message.text
            for stored in await self._ledger.transcript(session_id)
            if stored.turn_id == turn_id and isinstance(stored.message, AssistantMessage)
        ]
        return said[-1] if said else ""


def goes_on_later(finished: TurnFinished | None) -> bool:
    """Tell whether a turn is still open in the ledger: its process stops or its lane failed."""
    return finished is not None and finished.error is not None and finished.error.code == SHUTDOWN


def _without_turn(code: str, reason: str) -> Outcome:
    error = TurnError(code=code, message=reason)
    return Outcome(turn_id=None, state=TurnState.FAILED, error=error)


async def _safely(work: Coroutine[Any, Any, None], name: str) -> None:
    """Do it; what goes wrong with one obligation stays with it, and is looked at again."""
    try:
        await work
    except Kept:
        pass
    except HermesError as error:
        log.warning("%s waits: %s", name, error.message)
    except Exception:  # the boundary of an obligation: a bug stays with it
        log.exception("%s could not be seen through", name)
