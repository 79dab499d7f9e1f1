"""A turn at a plain terminal or in a pipe: the answer on stdout, the rest on stderr.

Whether text is the answer or a remark before a tool call is known only when
the message ends. At a terminal everything is shown at once. In a pipe each
message is held back for a moment (`hold`): remarks are short and end up among
the notices, answers stream after the moment has passed.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from hermes.domain.events import Notice, ToolFinished, TurnFinished, TurnStream
from hermes.streaming.view import Completed, Piece, Said, ToolDone, TurnView


class Writable(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class PlainOutput(Struct, frozen=True, kw_only=True):
    out: Writable
    note: Callable[[str], None]
    """Takes one line that is not part of the answer."""
    monotonic: Callable[[], float]
    hold: float = 0.0
    """Seconds for which the text of a message is held back."""
    shown: Callable[[str], str] = str
    """What becomes of text on its way out; at a terminal it is made harmless."""


class _PlainWriter:
    def __init__(self, output: PlainOutput, earlier: Mapping[str, ToolDone]) -> None:
        self._output = output
        self._earlier = earlier
        self._held = ""
        self._written = ""
        """The end of what was written of the current message; empty if nothing was."""
        self._first_at: float | None = None

    def write(self, piece: Piece) -> None:
        match piece:
            case Said():
                self._say(piece)
            case Completed(message):
                if not message.continues:
                    self._end(answer=not message.tool_calls)
                for call in message.tool_calls:
                    if call.id in self._earlier:
                        self._output.note(tool_words(self._earlier[call.id]))
            case ToolDone():
                self._output.note(tool_words(piece))
            case Notice(text=text):
                self._output.note(f"· {text}")
            case TurnFinished():
                self._end(answer=True)
            case _:
                pass

    def _say(self, said: Said) -> None:
        now = self._output.monotonic()
        if self._first_at is None:
            self._first_at = now
        if said.again:
            self._held = "\n" if self._written else ""
        self._held += said.text
        if now - self._first_at >= self._output.hold:
            self._show()

    def _end(self, *, answer: bool) -> None:
        """The message is complete: its rest goes where it belongs."""
        if answer or self._written:
            self._show()
            if self._written and not self._written.endswith("\n"):
                self._put("\n")
        elif self._held.strip():
            self._output.note(f"· {self._held.strip()}")
        self._held, self._written, self._first_at = "", "", None

    def _show(self) -> None:
        if self._held:
            self._put(self._held)
            self._written, self._held = self._held[-1], ""

    def _put(self, text: str) -> None:
        self._output.out.write(self._output.shown(text))
        self._output.out.flush()


def tool_words(tool: ToolDone) -> str:
    begun, ended = tool.started, tool.finished
    line = f"┊ {begun.emoji} {begun.verb or begun.name} {begun.label}" if begun else ended.name
    return f"{line.rstrip()}{tool_tail(ended)}"


def tool_tail(ended: ToolFinished) -> str:
    """Return what a tool line ends with: how long it took, if that is known, and a failure."""
    took = f" {ended.seconds:.1f}s" if ended.seconds >= 0 else ""
    return took + (f" [{ended.trouble}]" if ended.trouble else "")


async def write_plain(
    stream: TurnStream, output: PlainOutput, earlier: Mapping[str, ToolDone] = MappingProxyType({})
) -> TurnFinished:
    """Follow a turn to its end, writing it, and return how it ended.

    `earlier` are the tool calls that an earlier process carried out, by id.
    """
    view, writer = TurnView(), _PlainWriter(output, earlier)
    async for event in stream.follow():
        for piece in view.feed(event):
            writer.write(piece)
    assert stream.finished is not None
    return stream.finished
