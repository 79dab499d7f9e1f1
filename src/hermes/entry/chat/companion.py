"""What goes along with a chat turn beside its reply: notices, progress marks, hooks.

Runs beside the showing, so that a turn is watched also while an earlier one is
still being shown. Nothing here can spoil an answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.control.delivery.progress_notices import StillWorking
from hermes.control.delivery.reactions import show_marks
from hermes.control.delivery.surface import TurnSurface
from hermes.control.hooks import HookBus, post_turn, wants_turns
from hermes.domain.events import TurnStream
from hermes.domain.inbound import InboxEntry
from hermes.domain.outbound import OutboxKind
from hermes.domain.ports.clock import Clock
from hermes.domain.settings.agent import AgentLoop
from hermes.streaming.chat.reply import shows_progress
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.chat.slots import ChatLayout

__all__ = ["NOTICE_SLOT", "Companion", "Manners"]

log = logging.getLogger(__name__)

NOTICE_SLOT = "working"


class Manners(Struct, frozen=True, kw_only=True):
    """How much is made of a turn beside its reply."""

    patience: Callable[[], AgentLoop] = AgentLoop
    """How long nothing may happen, as configured now."""
    reactions: Callable[[str], bool] = lambda _platform: False
    """Tells whether progress is shown as reactions on a platform, as configured now."""
    hooks: HookBus | None = None
    interrupt: Callable[[str, str], bool] = lambda _session_id, _turn_id: False
    """Stops a turn of a session; False if it does not run any more."""


class Companion(Struct, frozen=True, kw_only=True):
    """Goes along with one turn."""

    manners: Manners
    stream: TurnStream
    entry: InboxEntry
    clock: Clock
    settings: PresentationSettings
    reachable: Callable[[], bool]
    """Whether there is a connection right now."""
    surface: Callable[[], Awaitable[TurnSurface]]
    """Returns the turn's place in the chat, waiting for a connection."""
    resumed: bool = False

    async def run(self) -> None:
        """Go along to the end of the turn."""
        manners, message = self.manners, self.entry.message
        async with asyncio.TaskGroup() as group:
            group.create_task(_safely(self._watch()))
            if manners.reactions(message.platform) and not message.internal:
                group.create_task(_safely(show_marks(self.stream, self._react)))
            if manners.hooks is not None and wants_turns(manners.hooks):
                group.create_task(_safely(post_turn(manners.hooks, self.stream, message)))

    async def _watch(self) -> None:
        await StillWorking(
            self.stream,
            self,
            self.clock,
            self.manners.patience(),
            tools_seen=shows_progress(self.settings),
            resumed=self.resumed,
        ).watch()

    async def _react(self, emoji: str, patience: float) -> None:
        if self.reachable():
            await (await self.surface()).react(self.entry.message.native_id, emoji, patience)

    # -- a `TurnPlace` -----------------------------------------------------------

    async def put(self, text: str, *, final: bool) -> None:
        """Show the notice, instead of the one that is there."""
        if not final and not self.reachable():
            return
        surface = await self.surface()
        shown = ChatLayout(surface.capabilities, self.settings).shown(text, final=final)
        await surface.show(NOTICE_SLOT, shown, kind=OutboxKind.NOTICE)

    async def clear(self) -> None:
        """Take the notice away."""
        await (await self.surface()).remove(NOTICE_SLOT)

    def stop(self) -> bool:
        """Stop the turn; False if it does not run any more."""
        return self.manners.interrupt(self.stream.session_id, self.stream.turn_id)


async def _safely(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        log.exception("something beside a turn went wrong")
