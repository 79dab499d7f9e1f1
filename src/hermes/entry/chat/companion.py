"""Companion of a chat turn: notices, progress marks and hooks beside its reply.

Runs beside the showing, so that a turn is watched also while an earlier one is
still being shown. Nothing here can spoil an answer.

A turn that shows nothing for a while says that it is still working, in one slot
that is edited and taken away at the end. A turn in which nothing happens at all is
announced to be stopped, and then stopped. Time spent waiting for a person does not
count. Reactions to the person's own message (seen, then done or failed) use what the chat's
budget leaves over: the first is left out where there is no room soon, the last comes, however late.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.commands.context import Preference, recalled
from hermes.control.commands.wording import spelled
from hermes.control.delivery.surface import TurnSurface
from hermes.control.follow import goes_on_later
from hermes.control.hooks import HookBus, post_turn, wants_turns
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnJob,
    TurnStream,
)
from hermes.domain.inbound import InboxEntry
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.settings.agent import AgentLoop
from hermes.domain.turn import TurnState
from hermes.domain.wording import long_time, one_line
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.reply import shows_progress
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.view import TurnView

log = logging.getLogger(__name__)

NOTICE_SLOT = "working"
NEVER = float("inf")
KEPT = " What was done so far is kept; send a message to continue."
SEEN = "👀"
MARKS = {TurnState.DONE: "✅", TurnState.FAILED: "❌"}


class TurnPlace(Protocol):
    """A turn, and its one notice in the chat, also one that another process has put there."""

    async def put(self, text: str, *, final: bool) -> None: ...

    async def clear(self) -> None: ...

    def stop(self) -> bool:
        """Stop the turn; False if it does not run any more."""
        ...


class StillWorking:
    def __init__(
        self,
        stream: TurnStream,
        place: TurnPlace,
        clock: Clock,
        patience: AgentLoop,
        *,
        tools_seen: bool = False,
        resumed: bool = False,
    ) -> None:
        self._stream = stream
        self._place = place
        self._clock = clock
        self._notify = patience.gateway_notify_interval
        self._warning = patience.gateway_timeout_warning
        self._limit = patience.gateway_timeout
        self._tools_seen = tools_seen
        """Tool calls are shown while they run."""
        self._began = self._active = self._noticed = clock.monotonic()
        self._asked: set[str] = set()
        self._view = TurnView()
        self._warned = self._over = False
        self._there = resumed
        """A notice may be in the chat that has to go."""
        self._saying = asyncio.Lock()

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._remind())
            async for event in self._stream.follow():
                self._take(event)
            # A send that is cut off could leave a notice that nobody can take away.
            async with self._saying:
                timer.cancel()
        if self._there and not goes_on_later(self._stream.finished):
            await self._place.clear()

    def _take(self, event: TurnEvent) -> None:
        now = self._clock.monotonic()
        self._active, self._warned = now, False
        self._view.feed(event)
        match event:
            case ApprovalAsked(request=request):
                self._asked.add(request.id)
            case ApprovalAnswered(approval_id=approval_id):
                self._asked.discard(approval_id)
            case _:
                pass
        if self._visible(event):
            self._noticed = now

    def _visible(self, event: TurnEvent) -> bool:
        if isinstance(event, ToolStarted | ToolFinished):
            return self._tools_seen
        return isinstance(
            event, TextDelta | MessageCompleted | ApprovalAsked | ApprovalAnswered | TurnFinished
        )

    async def _remind(self) -> None:
        while not self._over:
            wait = self._due() - self._clock.monotonic()
            # While a person is asked nothing is due; look again once in a while.
            await self._clock.sleep(min(max(wait, 0.0), self._shortest()))
            if self._asked or self._stream.finished is not None:
                self._active = self._noticed = self._clock.monotonic()
            elif self._clock.monotonic() >= self._due():
                async with self._saying:
                    await self._say()

    def _due(self) -> float:
        warning = NEVER if self._warned else self._active + (self._warning or NEVER)
        return min(
            self._noticed + (self._notify or NEVER),
            warning,
            self._active + (self._limit or NEVER),
        )

    def _shortest(self) -> float:
        """Return the longest time to sleep at once: events may move everything that is due."""
        spans = (self._notify, self._warning, self._limit)
        return min((span for span in spans if span), default=NEVER)

    async def _say(self) -> None:
        now = self._clock.monotonic()
        quiet = now - self._active
        self._noticed = now
        if self._limit and quiet >= self._limit:
            self._over = True
            if self._place.stop():
                self._there = False
                text = f"⏹ Nothing has happened for {long_time(quiet)}, so this was stopped." + KEPT
                await self._place.put(text, final=True)
            return
        self._there = True
        if self._warning and quiet >= self._warning:
            self._warned = True
            left = f"; it is stopped in {long_time(self._limit - quiet)}" if self._limit else ""
            text = f"⚠️ Nothing has happened for {long_time(quiet)}{left}. /stop stops it now."
        else:
            text = f"⏳ Still working after {long_time(now - self._began)}{self._doing()}."
        await self._place.put(text, final=False)

    def _doing(self) -> str:
        if not self._view.running:
            return ""
        *_, tool = self._view.running.values()
        doing = f"{tool.verb or tool.name} {tool.label}".replace("`", "'")
        return f": `{one_line(doing, 80)}`"


class ReplyParts(Struct, frozen=True, kw_only=True):
    """What showing turns, and everything beside them, is done with."""

    ledger: Ledger
    clock: Clock
    group: asyncio.TaskGroup
    presentation: Callable[[str], PresentationSettings]
    """Platform -> how turns are shown there, as configured now."""
    stage: Callable[[str, str, str], Awaitable[str | None]]
    """(agent, session, path) -> where the file is sent from; None if it may not be."""
    patience: Callable[[], AgentLoop]
    """How long nothing may happen, as configured now."""
    reactions: Callable[[str], bool]
    """Tells whether progress is shown as reactions on a platform, as configured now."""
    hooks: HookBus
    interrupt: Callable[[str, str], bool]
    """Stops a turn of a session; False if it does not run any more."""
    deny: Callable[[str, str], Awaitable[object]]
    """(approval, reason) -> denied by the gateway itself."""

    async def shown_in(self, entry: InboxEntry) -> PresentationSettings:
        """Return how turns are shown in a conversation: what was chosen there comes first."""
        usual = self.presentation(entry.message.platform)
        ledger, session = self.ledger, entry.session_id
        chosen: dict[str, object] = {
            "tool_progress": await recalled(ledger, session, Preference.TOOL_DETAIL, str),
            "show_reasoning": await recalled(ledger, session, Preference.SHOW_REASONING, bool),
        }
        known = {name: value for name, value in chosen.items() if value is not None}
        return replace(usual, **known)


class Companion(Struct, frozen=True, kw_only=True):
    """Goes along with one turn."""

    parts: ReplyParts
    job: TurnJob
    entry: InboxEntry
    reachable: Callable[[], bool]
    """Whether there is a connection right now."""
    surface: Callable[[], Awaitable[TurnSurface]]
    """Returns the turn's place in the chat."""
    answered: asyncio.Event
    """Set when the answer is out."""

    async def run(self) -> None:
        message, hooks = self.entry.message, self.parts.hooks
        watch = StillWorking(
            self.job.stream,
            self,
            self.parts.clock,
            self.parts.patience(),
            tools_seen=shows_progress(await self.parts.shown_in(self.entry)),
            resumed=self.job.resumed,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(_safely(watch.watch()))
            if self.parts.reactions(message.platform) and not message.internal:
                group.create_task(_safely(self._mark()))
            if wants_turns(hooks):
                group.create_task(_safely(post_turn(hooks, self.job.stream, message)))

    async def _mark(self) -> None:
        surface, message_id = await self.surface(), self.entry.message.seen_as
        if self.reachable():
            await surface.react(message_id, SEEN)
        finished = await self.job.stream.wait()
        await self.answered.wait()
        if not goes_on_later(finished):
            pieces = await self.parts.ledger.outbox_of_turn(self.job.turn.id)
            outcome = TurnState.FAILED if any(map(_given_up, pieces)) else finished.outcome
            await surface.react_some_time(message_id, MARKS.get(outcome, ""))

    # -- a `TurnPlace` -----------------------------------------------------------

    async def put(self, text: str, *, final: bool) -> None:
        if not final and not self.reachable():
            return
        surface = await self.surface()
        settings = self.parts.presentation(self.entry.message.platform)
        text = spelled(text, surface.capabilities.command_mark, ("stop",))
        shown = ChatLayout(surface.capabilities, settings).shown(text, final=final)
        aside = replace(shown, aside=not final)
        await surface.show(NOTICE_SLOT, aside, kind=OutboxKind.NOTICE)

    async def clear(self) -> None:
        await (await self.surface()).remove(NOTICE_SLOT)

    def stop(self) -> bool:
        stream = self.job.stream
        return self.parts.interrupt(stream.session_id, stream.turn_id)


def _given_up(piece: OutboxEntry) -> bool:
    return piece.kind is OutboxKind.REPLY and piece.state is OutboxState.FAILED


async def _safely(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:  # the boundary of a delivery: what is beside an answer never spoils it
        log.exception("something beside a turn went wrong")
