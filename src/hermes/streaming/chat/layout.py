"""Layout: how text is split and formatted for the messages of one platform."""

from functools import lru_cache, partial

from hermes.domain.platforms import Capabilities
from hermes.domain.ports.surface import Shown
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.markup import load_dialect
from hermes.streaming.units import length


class ChatLayout:
    """Splits and formats for one platform, always in the same way."""

    def __init__(self, capabilities: Capabilities, settings: PresentationSettings) -> None:
        self._dialect = load_dialect(capabilities.dialect)
        self._unit = capabilities.unit
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
