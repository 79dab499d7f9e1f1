"""A surface that remembers what was shown, and insists on what surfaces may rely on."""

import asyncio
from collections.abc import Sequence

from hermes.domain.platforms import Capabilities, LengthUnit
from hermes.domain.ports.surface import Shown
from hermes.streaming.markup import load_dialect
from hermes.streaming.markup.plain import Dialect
from hermes.streaming.units import is_blank, length

__all__ = ["CHAT", "FakeSurface"]

CHAT = Capabilities(
    max_length=200,
    unit=LengthUnit.UTF16,
    dialect="telegram_html",
    edits=True,
    deletes=True,
    typing=True,
    media=frozenset({"image", "voice", "document"}),
)


def visible_length(dialect: Dialect, rendered: str, unit: LengthUnit) -> int:
    return length(dialect._visible(rendered), unit)


class FakeSurface:
    """One chat."""

    def __init__(self, capabilities: Capabilities = CHAT) -> None:
        self._capabilities = capabilities
        self._dialect = load_dialect(capabilities.dialect)
        self.shows: list[tuple[str, Shown]] = []
        self.looks: dict[str, Shown] = {}
        self._said: dict[str, Shown] = {}
        self._finals: set[str] = set()
        """What another process has shown or sent for good."""
        self.removed: list[str] = []
        self.files: list[tuple[str, str, str]] = []
        self.albums: list[list[str]] = []
        self.typed = 0
        self.no_room = 0
        """So many typing signals find no room."""
        self.gate: asyncio.Event | None = None
        """While it is there and not set, every call waits: a slow platform."""
        self.changed = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def look(self, slot: str) -> Shown | None:
        return self._said.get(slot)

    def previews(self) -> list[str]:
        return [slot for slot, look in self.looks.items() if not look.final]

    async def show(self, slot: str, shown: Shown) -> None:
        before = self.looks.get(slot)
        if slot in self._finals:
            self._said[slot] = shown
            return
        assert self._said.get(slot) != shown, f"{slot} shown twice alike: {shown}"
        assert before is None or not before.final, f"{slot} shown after its final: {shown}"
        assert before is None or self._capabilities.edits, f"{slot} edited"
        assert not is_blank(shown.text)
        assert not is_blank(shown.plain)
        unit, limit = self._capabilities.unit, self._capabilities.max_length
        assert visible_length(self._dialect, shown.text, unit) <= limit
        await self._pass()
        self.shows.append((slot, shown))
        self.looks[slot] = self._said[slot] = shown
        self.changed.set()

    async def remove(self, slot: str) -> None:
        assert not self.looks[slot].final
        if not self._capabilities.deletes:
            await self.show(slot, Shown(text="…", plain="…", final=True))
            return
        await self._pass()
        del self.looks[slot]
        self._said.pop(slot, None)
        self.removed.append(slot)

    async def attach(self, slot: str, path: str, kind: str) -> None:
        if slot in self._finals:
            return
        assert kind in self._capabilities.media
        await self._pass()
        self.files.append((slot, path, kind))

    async def attach_album(self, files: Sequence[tuple[str, str]], kind: str) -> None:
        assert 2 <= len(files) <= self._capabilities.album_size
        assert kind in self._capabilities.media
        await self._pass()
        self.albums.append([path for _, path in files])

    async def typing(self) -> bool:
        self.typed += 1
        self.changed.set()
        return self.typed > self.no_room

    def restart(self) -> None:
        """Another process goes on here; it cannot know how the slots look."""
        self._said.clear()
        self._finals = {slot for slot, look in self.looks.items() if look.final}
        self._finals |= {slot for slot, _, _ in self.files}

    async def until(self, slot: str, text: str) -> None:
        """Wait until `slot` looks like this."""
        async with asyncio.timeout(5):
            while slot not in self.looks or self.looks[slot].text != text:
                self.changed.clear()
                await self.changed.wait()

    async def _pass(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
