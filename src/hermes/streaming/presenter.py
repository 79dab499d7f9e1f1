"""Shows a turn on a surface, at the surface's own pace.

Two tasks: one follows the stream and only takes notes, the other shows. The
second always shows the latest text, so a slow platform costs previews and
never delays the model. Everything that is closed is settled first and in
order; then one preview at a time.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from hermes.domain.events import ReasoningDelta, TextDelta, ToolProgress
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.surface import Shown, Surface
from hermes.domain.turn_stream import TurnStream
from hermes.streaming.chunking import Chunker
from hermes.streaming.layout import Layout
from hermes.streaming.media import MediaRef
from hermes.streaming.progress import Bubble
from hermes.streaming.reply import Segment, TurnReply
from hermes.streaming.settings import PresentationSettings

__all__ = ["MaySend", "Presented", "Presenter", "Screen", "refuse_files"]

MaySend = Callable[[str], bool]
"""Says whether the file at a path may be sent out."""


def refuse_files(path: str) -> bool:  # noqa: ARG001 (it refuses all of them)
    """Let no file out."""
    return False


class Presented(Struct, frozen=True, kw_only=True):
    """What a turn has left in a chat."""

    complete: bool
    """False if the process is stopping: previews stand, and the turn goes on later."""
    slots: tuple[str, ...]
    """Everything that is visible, in order. Other slots of this turn are left over."""


class Screen:
    """Remembers what each slot looks like and shows only what is different."""

    def __init__(self, surface: Surface, settings: PresentationSettings, may_send: MaySend) -> None:
        self.layout = Layout(surface.capabilities, settings)
        self._surface = surface
        self._may_send = may_send
        can = surface.capabilities
        self._placeholders = bool(settings.placeholder) and can.edits and not can.idempotent_sends
        self._looks: dict[str, Shown] = {}

    @property
    def slots(self) -> tuple[str, ...]:
        """Everything that is visible, in order."""
        return tuple(self._looks)

    def look(self, slot: str) -> Shown | None:
        """Return what `slot` looks like, if it is there."""
        return self._looks.get(slot)

    def needs_placeholder(self, slot: str) -> bool:
        """Return whether `slot` has to be there before its text may be shown.

        A send whose effect is unknown can then never have doubled an answer.
        """
        return self._placeholders and slot not in self._looks

    async def show(self, slot: str, shown: Shown) -> None:
        """Make `slot` look like this, unless it does."""
        if self._looks.get(slot) == shown:
            return
        self._looks[slot] = shown
        await self._surface.show(slot, shown)

    async def settle(self, slot: str, shown: Shown) -> None:
        """Show the final text of `slot`."""
        if self.needs_placeholder(slot):
            await self.show(slot, self.layout.placeholder())
        await self.show(slot, shown)

    async def discard(self, slot: str) -> None:
        """Take `slot` away; where that is impossible, leave nothing that could be read twice."""
        if self._surface.capabilities.deletes:
            del self._looks[slot]
            await self._surface.remove(slot)
        else:
            await self.show(slot, self.layout.shown("…", final=True))

    async def attach(self, slot: str, media: MediaRef) -> None:
        """Send a file, or say why not."""
        name = PurePosixPath(media.path).name.replace("`", "'")
        kinds = self._surface.capabilities.media
        kind = media.kind if media.kind in kinds else "document"
        if not self._may_send(media.path):
            note = f"📎 `{name}` was not sent: it does not lie in an allowed place."
        elif kind not in kinds:
            note = f"📎 `{name}` was not sent: this platform takes no such files."
        else:
            self._looks[slot] = Shown(text="", plain="", final=True)
            await self._surface.attach(slot, media.path, kind, None)
            return
        await self.settle(slot, self.layout.shown(note, final=True))

    async def settle_segment(self, segment: Segment, settings: PresentationSettings) -> None:
        """Give all slots of a complete segment their final look."""
        content = segment.content(settings)
        keep = segment.is_shown(settings)
        final = self.layout.final(content.text) if keep else []
        for piece, shown in enumerate(final):
            await self.settle(segment.slot(piece), shown)
        prefix = segment.slot(0).removesuffix("0")
        kept = {segment.slot(piece) for piece in range(len(final))}
        for slot in [slot for slot in self._looks if slot.startswith(prefix)]:
            if slot not in kept:
                await self.discard(slot)
        for number, media in enumerate(content.media if keep else ()):
            await self.attach(segment.media_slot(number), media)


class Presenter:
    """One turn on one surface."""

    def __init__(
        self,
        stream: TurnStream,
        surface: Surface,
        settings: PresentationSettings,
        clock: Clock,
        *,
        may_send: MaySend = refuse_files,
        earlier: Sequence[AssistantMessage] = (),
    ) -> None:
        self._stream = stream
        self._surface = surface
        self._settings = settings
        self._clock = clock
        self._screen = Screen(surface, settings, may_send)
        self._reply = TurnReply(settings, earlier)
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._seen = -1
        self._hurry = True
        self._edited_at = clock.monotonic()
        self._edited_size = 0
        self._typed_at: float | None = None
        self._chunker: tuple[int, Chunker] | None = None
        self._text_previews = False

    async def run(self, *, previews: bool) -> Presented:
        """Show the turn to its end."""
        can = self._surface.capabilities
        # Without deletes a remark that turns out not to be wanted could not be taken back.
        hideable = self._settings.interim_assistant_messages or can.deletes
        self._text_previews = previews and can.edits and hideable
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            complete = await self._present()
        return Presented(complete=complete, slots=self._screen.slots)

    async def _follow(self) -> None:
        async for event in self._stream.follow():
            self._reply.take(event)
            self._changed.set()
            if not isinstance(event, TextDelta | ReasoningDelta | ToolProgress) or self._enough():
                self._urgent.set()

    async def _present(self) -> bool:
        while True:
            self._changed.clear()
            self._urgent.clear()
            await self._settle_closed()
            finished = self._reply.finished
            if finished is not None:
                break
            if not await self._preview():
                await self._rest()
        if finished.error is not None and finished.error.code == "shutdown":
            return False
        await self._settle_closed()
        return True

    async def _settle_closed(self) -> None:
        for item in self._reply.items:
            if item.settled or not item.closed:
                continue
            item.settled = True
            if isinstance(item, Segment):
                await self._screen.settle_segment(item, self._settings)
            elif self._shows_bubbles():
                await self._screen.show(item.slot, self._bubble_look(item, final=True))

    def _shows_bubbles(self) -> bool:
        separate = self._settings.tool_progress_grouping == "separate"
        return separate or self._surface.capabilities.edits

    def _bubble_look(self, bubble: Bubble, *, final: bool) -> Shown:
        layout = self._screen.layout
        return layout.shown(bubble.markdown(layout.room, layout.weigh), final=final)

    def _enough(self) -> bool:
        least = self._settings.buffer_threshold
        return least > 0 and self._reply.size - self._edited_size >= least

    def _due_in(self) -> float:
        """Return the seconds until the next preview may be shown."""
        if self._hurry or self._enough():
            return 0.0
        passed = self._clock.monotonic() - self._edited_at
        return max(0.0, self._settings.edit_interval - passed)

    async def _preview(self) -> bool:
        """Show one thing that looks different; return whether there was one."""
        if self._reply.revision == self._seen or self._due_in() > 0:
            return False
        revision = self._reply.revision
        for slot, shown in self._wanted():
            if self._screen.look(slot) == shown:
                continue
            text = slot.startswith("reply:")
            # The text follows its placeholder at once; it may have grown by then.
            self._hurry = text and self._screen.needs_placeholder(slot)
            self._edited_at, self._edited_size = self._clock.monotonic(), self._reply.size
            first = self._screen.layout.placeholder() if self._hurry else shown
            await self._screen.show(slot, first)
            return True
        self._seen = revision
        return False

    def _wanted(self) -> list[tuple[str, Shown]]:
        """Return how everything that is not settled should look now."""
        wanted: list[tuple[str, Shown]] = []
        for item in self._reply.items:
            if item.settled:
                continue
            if isinstance(item, Bubble):
                if self._shows_bubbles():
                    wanted.append((item.slot, self._bubble_look(item, final=False)))
            elif self._text_previews and not item.closed:
                wanted += self._wanted_text(item)
        return wanted

    def _wanted_text(self, segment: Segment) -> list[tuple[str, Shown]]:
        text = segment.content(self._settings).text
        index, chunker = self._chunker or (-1, None)
        if chunker is None or index != segment.index or not text.startswith(chunker.text):
            chunker = self._screen.layout.chunker()
            self._chunker = (segment.index, chunker)
        chunker.add(text[len(chunker.text) :])
        looks = self._screen.layout.preview(chunker)
        return [(segment.slot(piece), look) for piece, look in enumerate(looks)]

    async def _rest(self) -> None:
        """Wait until there is something to do."""
        waiting = self._reply.revision != self._seen
        typing_in = await self._type()
        if waiting:
            await _wait(self._urgent, self._clock, self._due_in())
        elif typing_in is None:
            await self._changed.wait()
        else:
            await _wait(self._changed, self._clock, typing_in)

    async def _type(self) -> float | None:
        """Show typing if it is time; return when it is due again."""
        can = self._surface.capabilities
        visible = self._screen.look(self._reply.current.slot(0)) is not None
        if not can.typing or visible or self._reply.asking:
            return None
        now = self._clock.monotonic()
        if self._typed_at is None or now - self._typed_at >= can.typing_seconds:
            self._typed_at = now
            await self._surface.typing()
        return can.typing_seconds - (now - self._typed_at)


async def _wait(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait for `event`, at most `seconds`."""

    async def ring() -> None:
        await clock.sleep(seconds)
        event.set()

    async with asyncio.TaskGroup() as group:
        timer = group.create_task(ring())
        await event.wait()
        timer.cancel()
