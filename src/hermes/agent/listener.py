"""Turns what a model call reports into turn events, without the secrets in it."""

from collections.abc import Callable

from hermes.agent.scope import TextFilter
from hermes.domain.events import Notice, NoticeLevel, ReasoningDelta, TextDelta, TextReset
from hermes.domain.turn_stream import TurnStream

__all__ = ["StreamListener"]


class StreamListener:
    """A `CallListener` that emits into a turn stream and keeps the text so far."""

    def __init__(
        self,
        stream: TurnStream,
        redact: Callable[[str], str],
        text_filter: TextFilter,
        reasoning_filter: TextFilter,
    ) -> None:
        self._stream = stream
        self._redact = redact
        self._text_filter = text_filter
        self._reasoning_filter = reasoning_filter
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text of the reply so far."""
        return "".join(self._pieces)

    def clear(self) -> None:
        """The reply is complete: show what waits and start afresh."""
        self._pieces.clear()
        if thought := self._reasoning_filter.flush():
            self._stream.emit(ReasoningDelta(thought))
        if text := self._text_filter.flush():
            self._stream.emit(TextDelta(text))

    def on_text(self, text: str) -> None:
        """Pass a piece of the answer on."""
        self._pieces.append(text)
        if shown := self._text_filter.feed(text):
            self._stream.emit(TextDelta(shown))

    def on_reasoning(self, text: str) -> None:
        """Pass a piece of reasoning on."""
        if shown := self._reasoning_filter.feed(text):
            self._stream.emit(ReasoningDelta(shown))

    def on_notice(self, code: str, text: str) -> None:
        """Pass a notice on."""
        self._stream.emit(Notice(code=code, text=self._redact(text), level=NoticeLevel.WARNING))

    def on_restart(self) -> None:
        """Declare the text so far void."""
        self._text_filter.clear()
        self._reasoning_filter.clear()
        if self._pieces:
            self._pieces.clear()
            self._stream.emit(TextReset())
