"""From Markdown to what the messages of one chat look like."""

from hermes.domain.ports.platform import Capabilities
from hermes.domain.ports.surface import Shown
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.chat.settings import PresentationSettings, Shape, choose_shape
from hermes.streaming.markup import load_dialect
from hermes.streaming.units import length

_MARK_ROOM = 10


class Layout:
    """Splits and formats for one platform, always in the same way."""

    def __init__(self, capabilities: Capabilities, settings: PresentationSettings) -> None:
        self._dialect = load_dialect(capabilities.dialect)
        self._unit = capabilities.unit
        self._placeholder = settings.placeholder
        # What is appended to a message cannot be taken away again.
        self._cursor = "" if capabilities.streams else settings.cursor
        final = choose_shape(settings, capabilities) is Shape.FINAL
        self._marks = settings.chunk_marks and final
        reserve = _MARK_ROOM if self._marks else length(settings.cursor, capabilities.unit)
        longest = capabilities.max_length
        if not final and capabilities.edit_length:
            longest = min(longest, capabilities.edit_length)
        self.room = longest - reserve

    def chunker(self) -> Chunker:
        """Return a splitter for this platform."""
        return Chunker(self.room, self.weigh)

    def weigh(self, markdown: str) -> int:
        """Return the most that `markdown` can take up in a message."""
        return self._dialect.weight(markdown, self._unit)

    def final(self, markdown: str) -> list[Shown]:
        """Return all messages of a complete text."""
        chunker = self.chunker()
        chunker.add(markdown)
        pieces = chunker.pieces
        many = self._marks and len(pieces) > 1
        return [
            self.shown(piece, final=True, tail=f" ({number}/{len(pieces)})" if many else "")
            for number, piece in enumerate(pieces, 1)
        ]

    def growing(self) -> "Preview":
        """Return the messages of a text that still grows."""
        return Preview(self, self._cursor)

    def shown(self, markdown: str, *, final: bool, tail: str = "") -> Shown:
        """Return one message; `tail` stands behind it whatever it ends with."""
        gap = tail[: len(tail) - len(tail.lstrip())]
        return Shown(
            text=self._dialect.render(markdown) + gap + self._dialect.render(tail.strip()),
            plain=self._dialect.plain(markdown) + tail,
            final=final,
        )

    def placeholder(self) -> Shown:
        """Return what a message says before it has its text."""
        return self.shown(self._placeholder, final=False)


class Preview:
    """A text that still grows, as messages; what is finished is formatted only once."""

    def __init__(self, layout: Layout, cursor: str) -> None:
        self._layout = layout
        self._cursor = cursor
        self._chunker = layout.chunker()
        self._finished: list[Shown] = []

    @property
    def text(self) -> str:
        """Everything taken so far."""
        return self._chunker.text

    def add(self, markdown: str) -> list[Shown]:
        """Take more text and return all messages, with the cursor at the end of the last."""
        self._chunker.add(markdown)
        for piece in self._chunker.finished[len(self._finished) :]:
            self._finished.append(self._layout.shown(piece, final=False))
        if open_piece := self._chunker.open:
            last = self._layout.shown(open_piece, final=False, tail=self._cursor)
            return [*self._finished, last]
        return self._finished
