"""Shows a turn on a surface, at the surface's own pace.

Two tasks: one follows the stream and only takes notes, the other shows. The
second always shows the latest text, so a slow platform costs previews and
never delays the model. Everything that is closed is settled first and in
order; then one preview at a time. The first preview waits a moment, so that an
answer that is ready by then is one message and no edit. What is there already, also
from another process, the surface knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from pathlib import PurePosixPath

from msgspec.structs import replace

from hermes.domain.events import ReasoningDelta, TextDelta, ToolProgress, TurnStream
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.clock import Clock, wait_at_most
from hermes.domain.ports.surface import Shown, Surface
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.media import MediaRef
from hermes.streaming.chat.reply import Bubble, Ending, Segment, TurnReply, final_segments
from hermes.streaming.chat.settings import PresentationSettings

Stage = Callable[[str], Awaitable[str | None]]
"""Returns where the file that a reply names is sent from; None if it may not be sent."""
_FIRST_PREVIEW = 0.8
"""Seconds after the first text of a segment."""
_TYPE_AGAIN = 1.0
"""Seconds after which typing for which there was no room is tried again."""
_OF_A_REPLY = ("reply:", "progress:", "media:")
"""How the slots of a reply begin; others in the same turn are not ours."""


class _Presenter:
    """Shows segments that are complete."""

    def __init__(self, surface: Surface, settings: PresentationSettings, stage: Stage) -> None:
        self._surface = surface
        self._settings = settings
        self._stage = stage
        self._layout = ChatLayout(surface.capabilities, settings)

    async def settle(self, segment: Segment) -> None:
        content = segment.content(self._settings)
        keep = segment.is_shown(self._settings)
        final = self._layout.final(content.text) if keep else []
        for piece, shown in enumerate(final):
            await self._surface.show(segment.slot(piece), shown)
        prefix = segment.slot(0).removesuffix("0")
        kept = {segment.slot(piece) for piece in range(len(final))}
        for slot in sorted(self._surface.previews()):
            if slot.startswith(prefix) and slot not in kept:
                await self._surface.remove(slot)
        files = enumerate(content.media if keep else ())
        await self._attach_all(
            [(segment.media_slot(n), media, await self._stage(media.path)) for n, media in files]
        )

    async def clear(self) -> None:
        """Take away what another process had shown and this one did not need."""
        for slot in sorted(self._surface.previews()):
            if slot.startswith(_OF_A_REPLY) and self._surface.look(slot) is None:
                await self._surface.remove(slot)

    async def _attach_all(self, files: Sequence[tuple[str, MediaRef, str | None]]) -> None:
        """Send files; pictures that follow each other go together where the platform can."""
        size = self._surface.capabilities.album_size
        for picture, group in groupby(files, key=lambda file: self._fits_album(*file[1:])):
            run = list(group)
            step = size if picture else 1
            for at in range(0, len(run), step):
                album = run[at : at + step]
                if len(album) == 1:
                    await self._attach(*album[0])
                else:
                    pictures = [(slot, staged) for slot, _, staged in album if staged]
                    await self._surface.attach_album(pictures, "image")

    def _fits_album(self, media: MediaRef, staged: str | None) -> bool:
        can = self._surface.capabilities
        pictures = can.album_size > 1 and media.kind == "image" and "image" in can.media
        return pictures and staged is not None

    async def _attach(self, slot: str, media: MediaRef, staged: str | None) -> None:
        """Send a file, or say why not."""
        name = PurePosixPath(media.path).name.replace("`", "'")
        kinds = self._surface.capabilities.media
        kind = media.kind if media.kind in kinds else "document"
        if staged is None:
            note = f"📎 `{name}` was not sent: there is no such file in this conversation."
        elif kind not in kinds:
            note = f"📎 `{name}` was not sent: this platform does not accept this kind of file."
        else:
            await self._surface.attach(slot, staged, kind)
            return
        await self._surface.show(slot, self._layout.shown(note, final=True))


class _LivePresenter(_Presenter):
    def __init__(
        self,
        stream: TurnStream,
        surface: Surface,
        settings: PresentationSettings,
        clock: Clock,
        stage: Stage,
    ) -> None:
        super().__init__(surface, settings, stage)
        self._stream = stream
        self._clock = clock
        self._reply = TurnReply(settings)
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._seen = -1
        self._edited_at = float("-inf")
        self._edited_size = 0
        self._begun = (-1, 0.0)
        """The segment that has text, and since when."""
        self._typed_at: float | None = None
        self._growing: tuple[int, Chunker] | None = None
        can = surface.capabilities
        self._least_pause = can.edit_seconds
        self._left = frozenset(surface.previews())
        """What an earlier process showed stays until the end: a new beginning would show less."""
        # Without deletes a remark that turns out not to be wanted could not be taken back.
        hideable = settings.interim_assistant_messages or can.deletes
        self._text_previews = settings.grows(can) and hideable

    async def run(self) -> bool:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            return await self._present()

    async def _follow(self) -> None:
        async for event in self._stream.follow():
            self._reply.take(event)
            current = self._reply.current
            if self._begun[0] != current.index and current in self._reply.items:
                self._begun = (current.index, self._clock.monotonic())
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
        await self.clear()
        return True

    async def _settle_closed(self) -> None:
        for item in self._reply.items:
            if item.settled or not item.closed:
                continue
            item.settled = True
            if isinstance(item, Segment):
                await self.settle(item)
            elif self._shows_bubbles():
                await self._surface.show(item.slot, self._bubble_look(item, final=True))

    def _shows_bubbles(self) -> bool:
        separate = self._settings.tool_progress_grouping == "separate"
        return separate or self._surface.capabilities.edits

    def _bubble_look(self, bubble: Bubble, *, final: bool) -> Shown:
        layout = self._layout
        look = layout.shown(bubble.markdown(layout.room, layout.weigh), final=final)
        return replace(look, aside=True)

    def _enough(self) -> bool:
        least = self._settings.buffer_threshold
        many = 0 < least <= self._reply.size - self._edited_size
        return many and self._hold() == 0 and self._since_edit() >= self._least_pause

    def _hold(self) -> float:
        """Return for how many seconds the first preview waits for the whole text."""
        (index, begun), current = self._begun, self._reply.current
        if index != current.index or self._surface.look(current.slot(0)) is not None:
            return 0.0
        held = min(_FIRST_PREVIEW, self._settings.edit_interval)
        return max(0.0, begun + held - self._clock.monotonic())

    def _due_in(self) -> float:
        """Return the seconds until the next preview may be shown."""
        if self._enough():
            return 0.0
        pause = max(self._least_pause, self._settings.edit_interval)
        return max(self._hold(), pause - self._since_edit())

    def _since_edit(self) -> float:
        return self._clock.monotonic() - self._edited_at

    async def _preview(self) -> bool:
        """Show one thing that looks different; return whether there was one."""
        if self._reply.revision == self._seen or self._due_in() > 0:
            return False
        revision = self._reply.revision
        for slot, shown in self._wanted():
            if self._surface.look(slot) != shown:
                self._edited_size = self._reply.size
                await self._surface.show(slot, shown)
                # It may have waited for its turn: the pause is between what is seen.
                self._edited_at = self._clock.monotonic()
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
        if segment.slot(0) in self._left:
            return []
        text = segment.content(self._settings).text
        index, growing = self._growing or (-1, None)
        if growing is None or index != segment.index or not text.startswith(growing.text):
            growing = self._layout.chunker()
            self._growing = (segment.index, growing)
        growing.add(text[len(growing.text) :])
        looks = self._layout.preview(growing)
        return [(segment.slot(piece), look) for piece, look in enumerate(looks)]

    async def _rest(self) -> None:
        waiting = self._reply.revision != self._seen
        typing_in = await self._type()
        if waiting:
            await wait_at_most(self._urgent, self._clock, self._due_in())
        elif typing_in is None:
            await self._changed.wait()
        else:
            await wait_at_most(self._changed, self._clock, typing_in)

    async def _type(self) -> float | None:
        """Show typing if it is time; return when it is due again."""
        can = self._surface.capabilities
        visible = self._surface.look(self._reply.current.slot(0)) is not None
        if not can.typing or visible or self._reply.asking:
            return None
        now = self._clock.monotonic()
        if self._typed_at is None or now - self._typed_at >= can.typing_seconds:
            typed = await self._surface.typing()
            self._typed_at = now if typed else now + _TYPE_AGAIN - can.typing_seconds
        return can.typing_seconds - (now - self._typed_at)


async def present(
    stream: TurnStream,
    surface: Surface,
    settings: PresentationSettings,
    clock: Clock,
    stage: Stage,
) -> bool:
    """Show a turn: while it happens where the platform edits, else when it is complete.

    False if the process is stopping: previews stand, and the turn goes on later.
    """
    return await _LivePresenter(stream, surface, settings, clock, stage).run()


async def present_again(
    messages: Sequence[AssistantMessage],
    surface: Surface,
    settings: PresentationSettings,
    ending: Ending,
    stage: Stage,
) -> None:
    """Show what is missing of the end of a turn that said `messages`, without its events.

    After a restart this gives exactly the slots and texts that `present` would have ended with.
    """
    presenter = _Presenter(surface, settings, stage)
    for segment in final_segments(messages, settings, ending):
        await presenter.settle(segment)
    await presenter.clear()
