"""Child turns: an agent does something in a session of its own for a tool of another turn.

A child turn is admitted like any message, on the platform `task` and under the
id of the call that asked for it, so a call that is repeated after a restart
finds the same child instead of starting a second one. It is an obligation like
any other (`control.follow`): what an earlier process left is resumed or told
from the ledger. If the turn that asked is interrupted, so is its child. A child
cannot have children.
"""

import asyncio
from collections.abc import Sequence

from hermes.control.door import Door
from hermes.control.follow import Follower, Outcome
from hermes.control.lanes.gateway import Gateway
from hermes.domain.errors import ToolRefused
from hermes.domain.events import TurnJob
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender
from hermes.domain.tools import Spawned, ToolCapabilities, ToolContext
from hermes.domain.turn import TurnState

PLATFORM = "task"


class ChildTurns(Follower, Door):
    """The door through which tools ask agents for something."""

    name = "tasks"
    platforms = (PLATFORM,)

    def __init__(self, gateway: Gateway, group: asyncio.TaskGroup) -> None:
        super().__init__(gateway.ledger, group)
        self.capabilities = ToolCapabilities(spawn=self.spawn)
        self._gateway = gateway
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        """Inbox entry -> the call that waits for its outcome."""

    async def spawn(self, context: ToolContext, agent_id: str, task: str) -> Spawned:
        parent = await self._ledger.session(context.session_id)
        if parent is not None and parent.source == PLATFORM:
            raise ToolRefused("A task cannot start further tasks.", hint="Do it here.")
        name = f"{context.turn_id}:{context.call_id}"
        message = InboundMessage(
            platform=PLATFORM,
            account="",
            native_id=name,
            chat=Chat(kind=ChatKind.PRIVATE, id=name),
            sender=Sender(id=context.session_id),
            text=task,
            sent_at=context.clock.now(),
            internal=True,
        )
        ticket = await self._gateway.submit(agent_id, message)
        entry, outcome = ticket.entry, asyncio.get_running_loop().create_future()
        self._waiting[entry.id] = outcome
        try:
            if ticket.duplicate:
                await self._gateway.recover(entry.session_id)
                await self.recover()
            else:
                self.expect(ticket)
            ended = await outcome
        except asyncio.CancelledError:
            self._gateway.interrupt(entry.session_id)
            raise
        finally:
            self._waiting.pop(entry.id, None)
        return Spawned(
            session_id=entry.session_id,
            text=ended.text or ended.reason,
            failed=ended.state is not TurnState.DONE,
        )

    # -- the obligations -------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        return await self._ledger.unanswered(self.platforms)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        waiting = self._waiting.get(entry.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
        if outcome.turn_id is not None:
            await self._ledger.mark_answered(outcome.turn_id)

    # -- the door --------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        self.begin(job)
