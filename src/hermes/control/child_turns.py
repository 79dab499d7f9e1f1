"""Child turns: an agent does something in a session of its own for a tool of another turn.

A child turn is admitted like any message, on the platform `task` and under the
id of the call that asked for it, so a call that is repeated after a restart
finds the same child instead of starting a second one. It is an obligation like
any other (`control.follow`): what an earlier process left is resumed or told
from the ledger. If the turn that asked is interrupted, so is its child; one
that works in the background goes on, and its report is a message to the
session that asked. Its session hangs on that of whoever asked: the money it
spends counts there, and where a session has files of its own it works on those.
What it has left running in an environment of its own ends with it.
How many generations there may be is a setting; a child may have children only
if it was started as an orchestrator.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from hermes.control.door import NOBODY, Door
from hermes.control.follow import Follower, Outcome
from hermes.control.lanes.gateway import Gateway
from hermes.control.lanes.lane import Ticket
from hermes.control.lanes.notices import tell_session
from hermes.domain.errors import HermesError, ToolRefused
from hermes.domain.events import TurnJob
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender
from hermes.domain.ports.execution import Environments, ProcessNotice
from hermes.domain.session import CHILD_OF, MODEL_OVERRIDE, WORKSPACE_OF, YOLO, Lineage, Session
from hermes.domain.tools import ChildTask, Spawned, ToolCapabilities, ToolContext
from hermes.domain.turn import TurnOptions, TurnState
from hermes.domain.wording import one_line

log = logging.getLogger(__name__)

PLATFORM = "task"
BACKGROUND = "background"
"""The note of a message whose outcome is told to the session that asked."""


class ChildTurns(Follower, Door):
    """The door through which tools ask agents for something."""

    name = "tasks"
    platforms = (PLATFORM,)

    def __init__(
        self, gateway: Gateway, group: asyncio.TaskGroup, environments: Environments
    ) -> None:
        super().__init__(gateway.ledger, group)
        self._environments = environments
        self.capabilities = ToolCapabilities(spawn=self.spawn)
        self._gateway = gateway
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        """Inbox entry -> the call that waits for its outcome."""

    async def spawn(self, context: ToolContext, child: ChildTask) -> Spawned:
        if child.background and not await self._can_be_told(context.session_id):
            child = replace(child, background=False)
        message = await self._message(context, child)
        session = await self._session(context, child, message)
        ticket = await self._gateway.submit(child.agent_id, message, session_id=session.id)
        entry = ticket.entry
        if child.background:
            if not ticket.duplicate:
                self.expect(ticket)
            return Spawned(session_id=entry.session_id, text="", running=True)
        outcome = self._waiting[entry.id] = asyncio.get_running_loop().create_future()
        self._gateway.delegating[context.session_id] += 1
        try:
            if not ticket.duplicate:
                self.expect(ticket)
            elif (known := await self._found(entry)) and not outcome.done():
                outcome.set_result(known)
            async with asyncio.timeout(child.seconds or None):
                ended = await asyncio.shield(outcome)
        except TimeoutError:
            self._gateway.interrupt(entry.session_id)
            ended = await outcome
        except asyncio.CancelledError:
            # If the process stops instead, the child is kept like the turn that asked.
            if self._gateway.stopping(context.session_id):
                self._gateway.interrupt(entry.session_id)
            raise
        finally:
            self._gateway.delegating -= Counter((context.session_id,))
            self._waiting.pop(entry.id, None)
        return Spawned(
            session_id=entry.session_id,
            text=ended.text or ended.reason,
            failed=ended.state is not TurnState.DONE,
            spent=await self._ledger.spent(session_id=entry.session_id),
        )

    async def _can_be_told(self, session_id: str) -> bool:
        """Tell whether a conversation goes on: not that of a one-shot answer, nor a child turn."""
        asking = await self._ledger.session(session_id)
        source = asking.source if asking else ""
        return source != PLATFORM and self._gateway.doors.of(source) is not NOBODY

    async def _found(self, entry: InboxEntry) -> Outcome | None:
        """Return how a child of an earlier process ended; None if it goes on, now here."""
        await self._gateway.recover(entry.session_id)
        ended = await self._outcome(entry)
        if ended is None:
            await self.recover()
        return ended

    async def _message(self, context: ToolContext, child: ChildTask) -> InboundMessage:
        left = await self._generations(context, child.depth)
        if left <= 0:
            raise ToolRefused("A task cannot start further tasks.", hint="Do it here.")
        name = ":".join(filter(None, (context.turn_id, context.call_id, child.name)))
        return InboundMessage(
            platform=PLATFORM,
            account="",
            native_id=name,
            chat=Chat(kind=ChatKind.PRIVATE, id=name),
            sender=Sender(id=context.session_id),
            text=child.task,
            sent_at=context.clock.now(),
            reply_context=BACKGROUND if child.background else "",
            options=TurnOptions(
                own_tools=child.tools,
                max_model_calls=child.max_model_calls,
                children=left - 1 if child.orchestrator else 0,
                title=False,
            ),
            internal=True,
        )

    async def _generations(self, context: ToolContext, depth: int | None) -> int:
        """Return how many generations of children a turn may have."""
        asking = await self._ledger.session(context.session_id)
        if asking is None or asking.source != PLATFORM:
            return context.settings.delegation.max_spawn_depth if depth is None else depth
        begun = await self._ledger.entries_of_turn(context.turn_id)
        given = begun[0].message.options if begun else None
        return given.children if given else 0

    async def _session(
        self, context: ToolContext, child: ChildTask, message: InboundMessage
    ) -> Session:
        """Return the session of a child, opened for whoever asks for it first."""
        ledger, agent_id = self._ledger, child.agent_id
        found = await ledger.session_for_key(self._gateway.key_of(agent_id, message))
        if found is not None:
            return found
        asking = await ledger.session(context.session_id)
        new = self._gateway.new_session(agent_id, PLATFORM, asking.user_id if asking else None)
        own, chosen = agent_id == context.agent_id, context.settings.delegation
        if own and asking is not None:
            new = replace(new, cwd=asking.cwd)
        if asking is not None:
            new = replace(new, parent_id=asking.id, lineage=Lineage.DELEGATION)
        session = await ledger.create_session(new)
        facts: dict[str, Any] = {CHILD_OF: asking.family} if asking else {}
        if asking is not None and own and not context.environment.exposed:
            facts[WORKSPACE_OF] = asking.workspace
        if own and chosen.model:
            facts[MODEL_OVERRIDE] = {"provider": chosen.provider, "model": chosen.model}
        elif own and asking is not None:
            facts[MODEL_OVERRIDE] = asking.state.get(MODEL_OVERRIDE)
        if own and asking is not None:
            # What was waived for one agent is not waived for another.
            facts[YOLO] = asking.state.get(YOLO)
        for name, value in facts.items():
            await ledger.remember(session.id, name, value)
        return session

    # -- the obligations -------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        return await self._ledger.unanswered(self.platforms)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        outcome = await self._cleared(entry.session_id, outcome)
        waiting = self._waiting.get(entry.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
        if entry.message.reply_context == BACKGROUND:
            await self._report(entry, outcome)
        if outcome.turn_id is not None:
            await self._ledger.mark_answered(outcome.turn_id)

    async def _cleared(self, session_id: str, outcome: Outcome) -> Outcome:
        """End what a task that is over has left running, and say so in its report."""
        try:
            left = await self._environments.release(session_id)
        except HermesError as error:
            log.warning("the environment of the task %s stays: %s", session_id, error.message)
            left = []
        if not left:
            return outcome
        listed = "; ".join(one_line(each.command, 80) for each in left)
        note = f"[Background processes of the task ended with it: {listed}]"
        return replace(outcome, text=f"{outcome.text or outcome.reason}\n{note}")

    async def _report(self, entry: InboxEntry, outcome: Outcome) -> None:
        """Tell the session that asked how its background task ended."""
        asked = await self._ledger.session(entry.message.sender.id)
        if asked is None:
            return
        how = "is done" if outcome.state is TurnState.DONE else f"was {outcome.state.value}"
        about = one_line(entry.message.text, 120)
        text = f"The task {entry.session_id} {how} ({about}):\n{outcome.text or outcome.reason}"
        notice = ProcessNotice(
            agent_id=asked.agent_id, session_id=asked.id, process_id=entry.session_id, text=text
        )
        now, name = self._gateway.clock.now(), f"done:{entry.message.native_id}"
        await tell_session(self._gateway, notice, now, name)

    async def follow(self, ticket: Ticket) -> None:
        job = await ticket.job()
        if await self._orphaned(ticket.entry.message):
            job.control.interrupt()
        await super().follow(ticket)

    async def _orphaned(self, message: InboundMessage) -> bool:
        """Tell whether the turn that waited is stopped or over, perhaps in an earlier process."""
        if message.reply_context == BACKGROUND:
            return False
        asking = await self._ledger.turn(message.native_id.partition(":")[0])
        stopping = self._gateway.stopping(message.sender.id)
        return stopping or (asking is not None and not asking.state.open)

    # -- the door --------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        self.begin(job)


async def running_children(
    gateway: Gateway, session_id: str | None
) -> list[tuple[Session, InboundMessage]]:
    """Return the child turns that a conversation has under way, and what began each."""
    found = []
    for turn in await gateway.ledger.open_turns():
        session = await gateway.ledger.session(turn.session_id)
        if (
            session is None
            or session.source != PLATFORM
            or session_id not in (None, session.family)
        ):
            continue
        entries = await gateway.ledger.entries_of_turn(turn.id)
        found += [(session, entry.message) for entry in entries[:1]]
    return found


def stop_child(gateway: Gateway, session_id: str) -> None:
    if not gateway.interrupt(session_id):
        raise HermesError(f"The task {session_id} is not run by this process.")
