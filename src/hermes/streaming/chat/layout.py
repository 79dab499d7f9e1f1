"""Layout: how text is split and formatted for the messages of one platform."""

from functools import lru_cache, partial

from msgspec import Struct

from hermes.domain.platforms import Capabilities
from hermes.domain.ports.surface import Shown
from hermes.streaming.chat.chunking import Chunker
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.markup import load_dialect
from hermes.streaming.units import clean, length


class Verbatim(Struct, frozen=True):
    """Text that stands apart from the Markdown around it, whatever it contains."""

    text: str


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

    def assembled(self, *parts: str | Verbatim, final: bool) -> Shown:
        """Return one message of Markdown and of text that cannot imitate it."""
        text, plain = list[str](), list[str]()
        for part in parts:
            if isinstance(part, str):
                text.append(self._dialect.render(part))
                plain.append(self._dialect.plain(part))
                continue
            barred = "\n".join(f"│ {line}" for line in clean(part.text).split("\n"))
            block = self._dialect.code(part.text)
            text.append(barred if block == clean(part.text) else block)
            plain.append(barred)
        return Shown(text="\n".join(text), plain="\n".join(plain), final=final)

    def weight(self, *parts: str | Verbatim) -> int:
        """Return the most that the parts of a message can take up together."""
        shown = (p if isinstance(p, str) else f"```\n{p.text}\n```" for p in parts)
        bars = sum(p.text.count("\n") * 2 for p in parts if isinstance(p, Verbatim))
        return sum(self.weigh(each) + 1 for each in shown) + bars
