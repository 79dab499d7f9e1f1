"""A turn at a plain terminal or in a pipe: the answer on stdout, the rest on stderr.

Whether text is the answer or a remark before a tool call is known only when
the message ends. At a terminal everything is shown at once. In a pipe each
message is held back for a moment (`hold`): remarks are short and end up among
the notices, answers stream after the moment has passed.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes.domain.events import (
    MessageCompleted,
    Notice,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStream,
)
from hermes.domain.messages import ToolOutcome

__all__ = ["PlainOutput", "Writable", "write_plain"]


class Writable(Protocol):
    """Something text can be written to."""

    def write(self, text: str, /) -> object:
        """Write text."""
        ...

    def flush(self) -> object:
        """Make it visible."""
        ...


class PlainOutput(Struct, frozen=True, kw_only=True):
    """Where a turn is written to."""

    out: Writable
    note: Callable[[str], None]
    """Takes one line that is not part of the answer."""
    monotonic: Callable[[], float]
    hold: float = 0.0
    """Seconds for which the text of a message is held back."""


class _Message:
    """The text of one message on its way to stdout."""

    def __init__(self, output: PlainOutput) -> None:
        self._output = output
        self._text = ""
        self._shown = 0
        self._first_at: float | None = None
        self._before_reset = ""

    def add(self, text: str) -> None:
        """Take a piece of text; write it unless it is still held back."""
        now = self._output.monotonic()
        if self._first_at is None:
            self._first_at = now
        self._text += text
        if now - self._first_at >= self._output.hold:
            self._show()

    def reset(self) -> None:
        """The text so far is void and will come again."""
        self._before_reset = self._text[: self._shown]
        self._text, self._shown = "", 0

    def end(self, *, answer: bool) -> None:
        """The message is complete: its rest goes where it belongs."""
        if answer or self._shown:
            self._show()
            if self._text and not self._text.endswith("\n"):
                self._write("\n")
        elif self._text.strip():
            self._output.note(f"· {self._text.strip()}")

    def _show(self) -> None:
        seen = self._before_reset
        if seen:
            if seen.startswith(self._text):
                return
            self._before_reset = ""
            if self._text.startswith(seen):
                self._shown = len(seen)
            else:
                self._write("\n")
        self._write(self._text[self._shown :])
        self._shown = len(self._text)

    def _write(self, text: str) -> None:
        if text:
            self._output.out.write(text)
            self._output.out.flush()


class _PlainWriter:
    """Writes the events of one turn."""

    def __init__(self, output: PlainOutput) -> None:
        self._output = output
        self._message = _Message(output)
        self._labels: dict[str, str] = {}

    def event(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._message.add(text)
            case TextReset():
                self._message.reset()
            case MessageCompleted(message=message):
                self._end(answer=not message.tool_calls)
            case ToolStarted(call_id=call_id, emoji=emoji, label=label):
                verb = event.verb or event.name
                self._labels[call_id] = f"┊ {emoji} {verb} {label}".rstrip()
            case ToolFinished():
                self._tool(event)
            case Notice(text=text):
                self._output.note(f"· {text}")
            case TurnFinished():
                self._end(answer=True)
            case _:
                pass

    def _end(self, *, answer: bool) -> None:
        self._message.end(answer=answer)
        self._message = _Message(self._output)

    def _tool(self, event: ToolFinished) -> None:
        mark = "" if event.outcome is ToolOutcome.OK else f" [{event.outcome.value}]"
        line = self._labels.pop(event.call_id, event.name)
        self._output.note(f"{line} {event.seconds:.1f}s{mark}")


async def write_plain(stream: TurnStream, output: PlainOutput) -> TurnFinished:
    """Follow a turn to its end, writing it, and return how it ended."""
    writer = _PlainWriter(output)
    async for event in stream.follow():
        writer.event(event)
    assert stream.finished is not None
    return stream.finished
