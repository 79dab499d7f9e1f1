"""Slots: the native messages that show one turn in one chat."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby
from pathlib import PurePosixPath

from msgspec import Struct

from hermes.domain.platforms import Capabilities
from hermes.domain.ports.surface import Shown, Surface
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.chat.media import MediaRef
from hermes.streaming.chat.reply import Segment
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.markup import load_dialect
from hermes.streaming.units import length


class ChatLayout:
    """Splits and formats for one platform, always in the same way."""

    def __init__(self, capabilities: Capabilities, settings: PresentationSettings) -> None:
        self._dialect = load_dialect(capabilities.dialect)
        self._unit = capabilities.unit
        self._placeholder = settings.placeholder
        # What is appended to a message cannot be taken away again.
        self._cursor = "" if capabilities.streams else settings.cursor
        longest = capabilities.max_length
        if settings.grows(capabilities) and capabilities.edit_length:
            longest = min(longest, capabilities.edit_length)
        self.room = longest - length(settings.cursor, capabilities.unit)
        # Pieces that will never change are formatted only once.
        self._finished = lru_cache(maxsize=32)(partial(self.shown, final=False))

    def chunker(self) -> Chunker:
        return Chunker(self.room, self.weigh)

    def weigh(self, markdown: str) -> int:
        """Return the most that `markdown` can take up in a message."""
        return self._dialect.weight(markdown, self._unit)

    def final(self, markdown: str) -> list[Shown]:
        chunker = self.chunker()
        chunker.add(markdown)
        return [self.shown(piece, final=True) for piece in chunker.pieces]

    def preview(self, growing: Chunker) -> list[Shown]:
        """Return the messages of a text that still grows, with the cursor behind the last."""
        shown = [self._finished(piece) for piece in growing.finished]
        if last := growing.open:
            shown.append(self.shown(last, final=False, tail=self._cursor))
        return shown

    def shown(self, markdown: str, *, final: bool, tail: str = "") -> Shown:
        """Return one message; `tail` stands behind it whatever it ends with."""
        gap = tail[: len(tail) - len(tail.lstrip())]
        return Shown(
            text=self._dialect.render(markdown) + gap + self._dialect.render(tail.strip()),
            plain=self._dialect.plain(markdown) + tail,
            final=final,
        )

    def placeholder(self) -> Shown:
        return self.shown(self._placeholder, final=False)


MaySend = Callable[[str], bool]
"""Says whether the file at a path may be sent out."""


def refuse_files(path: str) -> bool:  # noqa: ARG001 (it refuses all of them)
    return False


class Resumed(Struct, frozen=True, kw_only=True):
    """What is there already of a turn that another process began."""

    previews: frozenset[str] = frozenset()
    """Slots that are visible and not final."""
    finals: frozenset[str] = frozenset()
    """Slots that are final, files included: they are left alone."""


class Slots:
    """Remembers what each slot looks like and shows only what is different."""

    def __init__(
        self,
        surface: Surface,
        settings: PresentationSettings,
        may_send: MaySend,
        resumed: Resumed,
    ) -> None:
        self.layout = ChatLayout(surface.capabilities, settings)
        self._surface = surface
        self._settings = settings
        self._may_send = may_send
        can = surface.capabilities
        self._placeholders = bool(settings.placeholder) and can.edits and not can.idempotent_sends
        self._looks: dict[str, Shown] = {}
        self._left = set(resumed.previews)
        """Shown by another process and not yet by this one."""
        self._finals = resumed.finals

    def look(self, slot: str) -> Shown | None:
        return self._looks.get(slot)

    def needs_placeholder(self, slot: str) -> bool:
        """Return whether `slot` has to be there before its text may be shown.

        A send whose effect is unknown can then never have doubled an answer.
        """
        return self._placeholders and slot not in self._looks and slot not in self._left

    async def show(self, slot: str, shown: Shown) -> None:
        if slot in self._finals or self._looks.get(slot) == shown:
            return
        self._left.discard(slot)
        self._looks[slot] = shown
        await self._surface.show(slot, shown)

    async def settle(self, slot: str, shown: Shown) -> None:
        if slot not in self._finals and self.needs_placeholder(slot):
            await self.show(slot, self.layout.placeholder())
        await self.show(slot, shown)

    async def discard(self, slot: str) -> None:
        """Take `slot` away; where that is impossible, leave nothing that could be read twice."""
        if self._surface.capabilities.deletes:
            self._looks.pop(slot, None)
            self._left.discard(slot)
            await self._surface.remove(slot)
        else:
            await self.show(slot, self.layout.shown("…", final=True))

    async def attach(self, slot: str, media: MediaRef) -> None:
        """Send a file, or say why not."""
        if slot in self._finals:
            return
        name = PurePosixPath(media.path).name.replace("`", "'")
        kinds = self._surface.capabilities.media
        kind = media.kind if media.kind in kinds else "document"
        if not self._may_send(media.path):
            note = f"📎 `{name}` was not sent: it is not in a folder that files may be sent from."
        elif kind not in kinds:
            note = f"📎 `{name}` was not sent: this platform does not accept this kind of file."
        else:
            self._looks[slot] = Shown(text="", plain="", final=True)
            await self._surface.attach(slot, media.path, kind, None)
            return
        await self.settle(slot, self.layout.shown(note, final=True))

    async def settle_segment(self, segment: Segment) -> None:
        content = segment.content(self._settings)
        keep = segment.is_shown(self._settings)
        final = self.layout.final(content.text) if keep else []
        for piece, shown in enumerate(final):
            await self.settle(segment.slot(piece), shown)
        prefix = segment.slot(0).removesuffix("0")
        kept = {segment.slot(piece) for piece in range(len(final))}
        for slot in sorted({*self._looks, *self._left}):
            if slot.startswith(prefix) and slot not in kept:
                await self.discard(slot)
        files = content.media if keep else ()
        await self._attach_all([(segment.media_slot(n), media) for n, media in enumerate(files)])

    async def _attach_all(self, files: Sequence[tuple[str, MediaRef]]) -> None:
        """Send files; pictures that follow each other go together where the platform can."""
        size = self._surface.capabilities.album_size
        for picture, group in groupby(files, key=lambda file: self._fits_album(*file)):
            run = list(group)
            step = size if picture else 1
            for at in range(0, len(run), step):
                album = run[at : at + step]
                if len(album) == 1:
                    await self.attach(*album[0])
                    continue
                for slot, _ in album:
                    self._looks[slot] = Shown(text="", plain="", final=True)
                await self._surface.attach_album([(s, m.path) for s, m in album], "image")

    def _fits_album(self, slot: str, media: MediaRef) -> bool:
        can = self._surface.capabilities
        pictures = can.album_size > 1 and media.kind == "image" and "image" in can.media
        return pictures and slot not in self._finals and self._may_send(media.path)

    async def clear_left(self) -> None:
        """Take away what another process had shown and this one did not need."""
        for slot in sorted(self._left):
            await self.discard(slot)
