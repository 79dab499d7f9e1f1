"""Replies in chats: every turn that a chat message started becomes visible there.

For each turn of a chat one task follows its stream and shows it on a surface.
Turns of one chat are shown one after the other, so their order holds however
slow the platform is; chats never wait for each other. A turn counts as
answered when its last slot is final; what was cut off by a restart is shown
again, slot by slot, and edits what is already there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from hermes.control.admission.authz import Access
from hermes.control.admission.pipeline import target_of
from hermes.control.delivery.surface import Line, ReplyOrigin, TurnSurface
from hermes.control.follow import Follower, Outcome
from hermes.control.lanes.lane import Ticket
from hermes.domain.errors import HermesError, NotFound, StoreError
from hermes.domain.events import TurnJob
from hermes.domain.ids import new_id
from hermes.domain.inbound import ChatKind, InboundMessage, InboxEntry, InboxState
from hermes.domain.messages import AssistantMessage
from hermes.domain.outbound import OutboxKind, OutboxState, Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Outgoing
from hermes.entry.chat.companion import Companion, ReplyParts
from hermes.entry.chat.prompts import Prompts
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.presenter import Stage, present, present_again
from hermes.streaming.chat.reply import Ending

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 60.0
"""How long a result waits for its platform to be connected."""


class ChatReplies(Follower):
    def __init__(
        self,
        parts: ReplyParts,
        line: Callable[[str, str], Line | None],
        platforms: Sequence[str],
        access: Callable[[InboundMessage], Access],
        folder: Path,
    ) -> None:
        """Show turns through `line`, which is the connection of (platform, account), if any."""
        super().__init__(parts.ledger, parts.group)
        self._parts = parts
        self._line_of = line
        self._platforms = platforms
        self._access = access
        self._folder = folder
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Session -> held by the turn that is being shown; the next ones wait in order."""

    # -- obligations -----------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        turns: dict[str, InboxEntry] = {}
        for entry in await self._ledger.unanswered(self._platforms):
            if entry.turn_id is not None:
                turns.setdefault(entry.turn_id, entry)
        return tuple(turns.values())

    async def follow(self, ticket: Ticket) -> None:
        """Show a turn while it runs; it is watched also while an earlier one is being shown."""
        job, entry = await ticket.job(), ticket.entry
        platform, account = entry.message.platform, entry.message.account
        companion = Companion(
            parts=self._parts,
            job=job,
            entry=entry,
            reachable=lambda: self._line_of(platform, account) is not None,
            surface=partial(self._surface, entry, job.turn.id),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._show_turn(job, entry))
            group.create_task(companion.run())

    async def _show_turn(self, job: TurnJob, entry: InboxEntry) -> None:
        settings, clock = await self._parts.shown_in(entry), self._parts.clock
        async with self._turn_of(entry):
            surface = await self._surface(entry, job.turn.id)
            async with asyncio.TaskGroup() as group:
                prompts = await self._prompts(entry, job.turn.id)
                group.create_task(prompts.follow(job.stream))
                complete = await present(job.stream, surface, settings, clock, self._stage(entry))
            if complete:
                await self._ledger.mark_answered(job.turn.id)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        """Show the end of a turn that ended without being shown."""
        turn_id = outcome.turn_id
        if turn_id is None:
            return
        async with self._turn_of(entry):
            current = await self._ledger.entry(entry.id)
            if current is None or current.state is not InboxState.TAKEN:
                return
            surface = await self._surface(entry, turn_id)
            said = [
                stored.message
                for stored in await self._ledger.transcript(entry.session_id)
                if stored.turn_id == turn_id and isinstance(stored.message, AssistantMessage)
            ]
            ending = Ending(outcome=outcome.state, error=outcome.error)
            settings = await self._parts.shown_in(entry)
            await present_again(said, surface, settings, ending, self._stage(entry))
            await (await self._prompts(entry, turn_id)).settle()
            await self._ledger.mark_answered(turn_id)

    def _stage(self, entry: InboxEntry) -> Stage:
        return partial(self._parts.stage, entry.agent_id, entry.session_id)

    def _turn_of(self, entry: InboxEntry) -> asyncio.Lock:
        return self._order.setdefault(entry.session_id, asyncio.Lock())

    async def _prompts(self, entry: InboxEntry, turn_id: str) -> Prompts:
        message, surface = entry.message, await self._surface(entry, turn_id)
        access = self._access(message)
        return Prompts(
            self._ledger,
            surface,
            ChatLayout(surface.capabilities, self._parts.presentation(message.platform)),
            asker=message.sender.name or message.sender.id,
            may_answer=access.listed or message.chat.kind is ChatKind.PRIVATE,
            folder=self._folder,
        )

    # -- everything else that is said -------------------------------------------

    async def say(self, target: Target, text: str) -> None:
        """Say something that is not part of a conversation."""
        await self._post(target, text, new_id("notice"), OutboxKind.NOTICE)

    async def _post(self, target: Target, text: str, post_id: str, kind: OutboxKind) -> None:
        """Show a text that belongs to no turn, each part of it in a slot of its own."""
        line = await self._line(target.platform, target.account)
        surface = self._on(line, target, ReplyOrigin(turn_id=post_id))
        layout = ChatLayout(line.capabilities, self._parts.presentation(target.platform))
        for number, shown in enumerate(layout.final(text)):
            await surface.show(f"{kind.value}:{number}", shown, kind=kind)

    async def deliver(self, target: Target, text: str, delivery_id: str) -> None:
        """Send a result somewhere, never twice under one id; raise if it cannot be sent."""
        try:
            async with asyncio.timeout(DELIVERY_SECONDS):
                await self._line(target.platform, target.account)
        except TimeoutError as error:
            raise HermesError(f"{target.platform} cannot be reached at the moment.") from error
        await self._post(target, text, delivery_id, OutboxKind.DELIVERY)
        for entry in await self._ledger.outbox_of_turn(delivery_id):
            if entry.state is not OutboxState.SENT:
                raise HermesError(f"Not delivered: {entry.error or entry.state.value}")

    async def say_unrecorded(self, target: Target, text: str) -> None:
        """Say something once, without the outbox; for when the ledger is the trouble."""
        line = self._line_of(target.platform, target.account)
        if line is None:
            return
        try:
            await line.adapter.send(Outgoing(target=target, text=text, plain=text))
        except Exception:  # a boundary: it is a courtesy, and the adapter may be anybody's
            log.exception("a chat could not be told that something is wrong")

    # -- helpers -----------------------------------------------------------------

    async def _surface(self, entry: InboxEntry, turn_id: str) -> TurnSurface:
        message = entry.message
        line = await self._line(message.platform, message.account)
        origin = ReplyOrigin(turn_id=turn_id, agent_id=entry.agent_id, session_id=entry.session_id)
        return await self._on(line, target_of(message), origin).recalled()

    def _on(self, line: Line, target: Target, origin: ReplyOrigin) -> TurnSurface:
        return TurnSurface(self._ledger, self._parts.clock, line, target, origin)

    async def _line(self, platform: str, account: str) -> Line:
        """Return the connection, waiting until there is one."""
        while (line := self._line_of(platform, account)) is None:
            await self._parts.clock.sleep(1.0)
        return line


AGAIN_AFTER = 600.0
MOST_CHATS = 5_000


class Apologies:
    def __init__(self, send: Callable[[Target, str], Awaitable[None]], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._told: dict[tuple[str, str, str | None], float] = {}

    async def say(self, target: Target, error: HermesError) -> None:
        """Explain `error` in a chat, unless that was done a moment ago."""
        now = self._clock.monotonic()
        chat = (target.platform, target.chat_id, target.thread_id)
        if now - self._told.get(chat, float("-inf")) < AGAIN_AFTER:
            return
        if len(self._told) >= MOST_CHATS:
            self._told = {c: at for c, at in self._told.items() if now - at < AGAIN_AFTER}
        self._told[chat] = now
        await self._send(target, explanation(error))


def explanation(error: HermesError) -> str:
    """Return a sentence for the person; where files lie is for the log."""
    if isinstance(error, StoreError):
        return (
            "⚠️ I cannot store anything right now (perhaps the disk is full), so this has to"
            " wait. Your message is not lost; I will try again."
        )
    if isinstance(error, NotFound):
        return f"⚠️ Nobody can answer here: {error.message}"
    return "⚠️ Something went wrong on my side. Your message is kept and will be answered later."
