"""Replies in chats: every turn that a chat message started becomes visible there.

For each turn of a chat one task follows its stream and shows it on a surface.
Turns of one chat are shown one after the other, so their order holds however
slow the platform is, and after the replies to earlier commands; chats never wait for each
other. A turn counts as
answered when all of its pieces are out or were given up, and told; what was cut off
by a restart is shown again, slot by slot, and edits what is already there. Pieces that
belong to no turn (answers to commands, notices, deliveries) are taken up from the outbox.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec.structs import replace

from hermes.control.admission.authz import Access
from hermes.control.admission.pipeline import target_of
from hermes.control.delivery.place import Connections
from hermes.control.delivery.surface import TOO_OLD, ReplyOrigin, TurnSurface
from hermes.control.follow import Follower, Outcome
from hermes.control.lanes.lane import Ticket
from hermes.domain.errors import (
    AgentUnavailable,
    HermesError,
    NobodyChosen,
    NotFound,
    StoreError,
    failure_text,
)
from hermes.domain.events import TurnJob
from hermes.domain.ids import new_id
from hermes.domain.inbound import ChatKind, InboundMessage, InboxEntry, InboxState
from hermes.domain.messages import AssistantMessage
from hermes.domain.outbound import UNSENT, OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.ports.clock import Clock, wait_at_most
from hermes.domain.ports.platform import Outgoing
from hermes.domain.ports.surface import Shown
from hermes.entry.chat.companion import Companion, ReplyParts
from hermes.entry.chat.prompts import Prompts
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.media import kind_of
from hermes.streaming.chat.presenter import Stage, present, present_again
from hermes.streaming.chat.reply import Ending
from hermes.streaming.chat.settings import PresentationSettings

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 60.0
"""How long a result waits for its platform to be connected."""
MOST_OWED = 1_000
ORDER_SECONDS = 1.5
"""People who ask at once in a group are answered in order if each answer is ready so soon."""
TOLD_AGAIN_AFTER = 3600.0
"""A chat is told so often that something was not delivered, however much it was."""


class ChatReplies(Follower):
    def __init__(
        self,
        parts: ReplyParts,
        connections: Connections,
        access: Callable[[InboundMessage], Access],
        folder: Path,
        said: Callable[[InboxEntry], Awaitable[None]],
    ) -> None:
        super().__init__(parts.ledger, parts.group)
        self._parts = parts
        self._connections = connections
        self._platforms = tuple(connections.capabilities)
        self._access = access
        self._folder = folder
        self._said = said
        """Returns when the commands before a message have their replies."""
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Session -> held by the turn that is being shown; the next ones wait in order. The same
        for posts: each is in one pair of hands."""
        self._answered = asyncio.Event()
        """Set, and replaced, when a turn was answered."""

    # -- obligations -----------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        turns: dict[str, InboxEntry] = {}
        for entry in await self._ledger.unanswered(self._platforms):
            if entry.turn_id is not None:
                turns.setdefault(entry.turn_id, entry)
        return tuple(turns.values())

    async def recover(self) -> None:
        """Take up what is unsent as well, where no unanswered turn will show it."""
        owed: dict[str, list[OutboxEntry]] = {}
        for piece in await self._ledger.outbox(UNSENT, limit=MOST_OWED):
            if piece.target.platform in self._platforms and piece.turn_id:
                owed.setdefault(piece.turn_id, []).append(piece)
        await super().recover()
        shown = {each.turn_id for each in await self._ledger.unanswered(self._platforms)}
        for post_id, pieces in owed.items():
            if post_id not in shown and not self._hold(post_id).locked():
                self.do(self._take_up(post_id, pieces))

    async def _take_up(self, post_id: str, pieces: Sequence[OutboxEntry]) -> None:
        """See the pieces of a post, or of a turn that was shown already, to their end."""
        async with self._hold(post_id):
            turn = await self._ledger.turn(post_id)
            if turn is not None and turn.state.open:
                return
            first = pieces[0]
            origin = ReplyOrigin(
                turn_id=post_id, agent_id=first.agent_id, session_id=first.session_id or ""
            )
            surface = await self._on(first.target, origin).recalled()
            for piece in pieces:
                slot = piece.id.removeprefix(f"{post_id}/")
                if turn is not None and piece.kind in (OutboxKind.NOTICE, OutboxKind.PROMPT):
                    await surface.remove(slot)
                elif piece.attachment is not None:
                    await surface.attach(slot, piece.attachment, kind_of(piece.attachment))
                else:
                    shown = Shown(text=piece.content, plain=piece.content, final=True)
                    await surface.show(slot, shown, kind=piece.kind)
            await self._concluded(post_id)

    async def follow(self, ticket: Ticket) -> None:
        """Show a turn while it runs; it is watched also while an earlier one is being shown."""
        job, entry = await ticket.job(), ticket.entry
        target = target_of(entry.message)
        companion = Companion(
            parts=self._parts,
            job=job,
            entry=entry,
            reachable=lambda: self._connections.line(target) is not None,
            surface=partial(self._surface, entry, job.turn.id),
            answered=asyncio.Event(),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(companion.run())
            await self._show_turn(job, entry)
            companion.answered.set()

    async def _show_turn(self, job: TurnJob, entry: InboxEntry) -> None:
        settings, clock = await self._settings(entry), self._parts.clock
        await self._said(entry)
        async with self._turn_of(entry):
            shared = entry.message.chat.kind is not ChatKind.PRIVATE
            ready = partial(self._in_order, entry) if shared else None
            surface = await self._surface(entry, job.turn.id, ready=ready)
            async with asyncio.TaskGroup() as group:
                prompts = await self._prompts(entry, job.turn.id)
                group.create_task(prompts.follow(job.stream))
                complete = await present(job.stream, surface, settings, clock, self._stage(entry))
            if complete and await self._concluded(job.turn.id):
                await self._ledger.mark_answered(job.turn.id)
                self._answered.set()
                self._answered = asyncio.Event()

    async def _in_order(self, entry: InboxEntry) -> None:
        """Let those who asked a moment before in the same chat be answered first."""
        clock = self._parts.clock
        while True:
            answered, since = self._answered, clock.now() - ORDER_SECONDS
            if not await self._ledger.asked_before(entry, since):
                return
            await wait_at_most(answered, clock, ORDER_SECONDS / 10)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        """Show the end of a turn that ended without being shown."""
        turn_id = outcome.turn_id
        if turn_id is None:
            return
        async with self._turn_of(entry):
            current = await self._ledger.entry(entry.id)
            if current is None or current.state is not InboxState.TAKEN:
                return
            turn = await self._ledger.turn(turn_id)
            since = None if turn is None else turn.finished_at
            surface = await self._surface(entry, turn_id, since=since)
            said = [
                stored.message
                for stored in await self._ledger.transcript(entry.session_id)
                if stored.turn_id == turn_id and isinstance(stored.message, AssistantMessage)
            ]
            ending = Ending(outcome=outcome.state, error=outcome.error)
            settings = await self._settings(entry)
            if outcome.error is not None:
                log.warning("turn %s: %s", turn_id, failure_text(outcome.error, operator=True))
            await present_again(said, surface, settings, ending, self._stage(entry))
            await (await self._prompts(entry, turn_id)).settle()
            if await self._concluded(turn_id):
                await self._ledger.mark_answered(turn_id)

    async def _concluded(self, post_id: str) -> bool:
        """Return whether everything is out or given up; tell the chat about the latter."""
        pieces = await self._ledger.outbox_of_turn(post_id)
        owed = [each for each in pieces if each.state in UNSENT and each.native_id is None]
        if any(each.kind is not OutboxKind.NOTICE for each in owed):
            return False
        for each in pieces:
            text = _undelivered(each, self._parts.clock.now())
            if text and not post_id.startswith(UNDELIVERED):
                self.do(self._tell(each.target, text))
        return True

    async def _tell(self, target: Target, text: str) -> None:
        hour = int(self._parts.clock.now() // TOLD_AGAIN_AFTER)
        where = f"{target.platform}:{target.chat_id}:{target.thread_id or ''}"
        await self._notify(target, text, f"{UNDELIVERED}{where}:{hour}")

    async def _settings(self, entry: InboxEntry) -> PresentationSettings:
        # What is the operator's is told where nobody else reads it.
        private = entry.message.chat.kind is ChatKind.PRIVATE
        operator = private and self._access(entry.message).operator
        return replace(await self._parts.shown_in(entry), operator=operator)

    def _stage(self, entry: InboxEntry) -> Stage:
        return partial(self._parts.stage, entry.agent_id, entry.session_id)

    def _turn_of(self, entry: InboxEntry) -> asyncio.Lock:
        return self._hold(entry.session_id)

    def _hold(self, name: str) -> asyncio.Lock:
        return self._order.setdefault(name, asyncio.Lock())

    async def _prompts(self, entry: InboxEntry, turn_id: str) -> Prompts:
        message, surface = entry.message, await self._surface(entry, turn_id)
        access = self._access(message)
        if message.internal:
            # Who decides is looked up when somebody answers: the owner of the conversation may.
            access = replace(access, administrators=True)
        return Prompts(
            self._ledger,
            surface,
            ChatLayout(surface.capabilities, self._parts.presentation(message.platform)),
            asker=message.sender.name or message.sender.id,
            access=access,
            private=message.chat.kind is ChatKind.PRIVATE,
            folder=self._folder,
            deny=self._parts.deny,
        )

    # -- everything else that is said -------------------------------------------

    async def say(self, target: Target, text: str, post_id: str = "") -> None:
        """Say something that is not part of a conversation."""
        # A stop must not wait for it: it is in the outbox, and the next process goes on.
        await asyncio.wait({self.do(self._notify(target, text, post_id or new_id("notice")))})

    async def _notify(self, target: Target, text: str, post_id: str) -> None:
        async with self._hold(post_id):
            await self._post(target, text, post_id, OutboxKind.NOTICE)
            await self._concluded(post_id)

    async def _post(self, target: Target, text: str, post_id: str, kind: OutboxKind) -> None:
        """Show a text that belongs to no turn, each part of it in a slot of its own."""
        surface = self._on(target, ReplyOrigin(turn_id=post_id))
        layout = ChatLayout(surface.capabilities, self._parts.presentation(target.platform))
        slots = {f"{kind.value}:{n}": shown for n, shown in enumerate(layout.final(text))}
        for slot, shown in slots.items():
            await surface.reserve(slot, shown, kind)
        for slot, shown in slots.items():
            await surface.show(slot, shown, kind=kind)

    async def deliver(self, target: Target, text: str, delivery_id: str) -> None:
        """Send a result somewhere, never twice under one id; raise if it cannot be sent."""
        try:
            async with asyncio.timeout(DELIVERY_SECONDS):
                await self._connections.connected(target)
        except TimeoutError as error:
            raise HermesError(f"{target.platform} cannot be reached at the moment.") from error
        async with self._hold(delivery_id):
            await self._post(target, text, delivery_id, OutboxKind.DELIVERY)
        for entry in await self._ledger.outbox_of_turn(delivery_id):
            if entry.state is not OutboxState.SENT:
                raise HermesError(f"Not delivered: {entry.error or entry.state.value}")

    async def say_unrecorded(self, target: Target, text: str) -> None:
        """Say something once, without the outbox; for when the ledger is the trouble."""
        line = self._connections.line(target)
        if line is None:
            return
        try:
            await line.adapter.send(Outgoing(target=target, text=text, plain=text))
        except Exception:  # the boundary of a delivery: the adapter may be anybody's
            log.exception("a chat could not be told that something is wrong")

    # -- helpers -----------------------------------------------------------------

    async def _surface(
        self,
        entry: InboxEntry,
        turn_id: str,
        *,
        since: float | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> TurnSurface:
        origin = ReplyOrigin(
            turn_id=turn_id,
            agent_id=entry.agent_id,
            session_id=entry.session_id,
            since=since,
            ready=ready,
        )
        return await self._on(target_of(entry.message), origin).recalled()

    def _on(self, target: Target, origin: ReplyOrigin) -> TurnSurface:
        return TurnSurface(self._ledger, self._connections, target, origin)


UNDELIVERED = "undelivered:"


def _undelivered(piece: OutboxEntry, now: float) -> str:
    """Return what a chat is told about a piece that was given up; empty: nothing."""
    what = "A file" if piece.attachment else "An answer"
    if piece.state is OutboxState.UNKNOWN:
        return f"⚠️ {what} of mine may not have arrived here. Ask again if it is missing."
    if piece.state is not OutboxState.FAILED:
        return ""
    if piece.error == TOO_OLD:
        days = int((now - piece.created_at) // 86_400)
        when = "a day" if days < 2 else f"{days} days"
        return f"⚠️ {what} from {when} ago could not be delivered. Ask again if you still need it."
    name = (piece.attachment or "").rpartition("/")[2].replace("`", "'")
    # Where texts are refused nobody can be told.
    return f"📎 `{name}` could not be sent: {piece.error}" if piece.attachment else ""


AGAIN_AFTER = 600.0
MOST_TOLD = 5_000


class Apologies:
    def __init__(self, send: Callable[[Target, str], Awaitable[None]], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._told: dict[tuple[str | None, ...], float] = {}

    async def say(self, message: InboundMessage, error: HermesError) -> None:
        """Explain `error` where a message came from, unless its sender heard it a moment ago."""
        now, target, text = self._clock.monotonic(), target_of(message), explanation(error)
        chat = (target.platform, target.account, target.chat_id, target.thread_id)
        heard = (*chat, message.sender.id, text)
        if now - self._told.get(heard, float("-inf")) < AGAIN_AFTER:
            return
        if len(self._told) >= MOST_TOLD:
            self._told = {each: at for each, at in self._told.items() if now - at < AGAIN_AFTER}
        self._told[heard] = now
        await self._send(target, text)


def explanation(error: HermesError) -> str:
    """Return a sentence for the person; where files lie is for the log."""
    if isinstance(error, StoreError):
        return (
            "⚠️ I cannot store anything right now (perhaps the disk is full), so this has to"
            " wait. Your message is not lost; I will try again."
        )
    if isinstance(error, AgentUnavailable | NobodyChosen):
        return f"⚠️ {error.public}"
    if isinstance(error, NotFound):
        # Which agent is missing is the operator's: it is in the log.
        return "⚠️ Nobody can answer here: this chat is not set up yet. Please tell the operator."
    return "⚠️ Something went wrong on my side. Your message is kept and will be answered later."
