"""One view of a turn: its events, folded once into pieces that only ever add.

The way of a turn to a screen or a wire:

    agent loop -> TurnStream (domain/events) -> TurnView.feed -> pieces -> one map per shape

    stdout.py            plain text, remarks among the notices
    entry/terminal       lines above the input, and a few live ones
    chat/                messages that grow by edits, or one final message
    wire/chat.py         chunks of a chat completion, or one completion
    wire/responses.py    events and the resource of a response
    wire/runs.py         named events of a session's chat

Events are told as they happen, and some take back what earlier ones said: a
model call that is repeated (`TextReset`), a process that goes on with the turn
of another (`TurnStarted.earlier`), a message whose deltas never came. Most
readers cannot take anything back, so all of this is settled here:

- Text that comes again is swallowed as far as it repeats what was said. Where
  it takes another way, `Said.again` is true and holds the text from its start.
- When a message is `Completed`, all of its text has been said.
- Messages of an earlier attempt are said and completed unless they were before:
  a reader that has seen it all gets nothing twice, a new one gets everything.
- An answer that came with no message is said before the `TurnFinished`.
- A tool call ends in one piece that also holds how it began.

Everything else needs no settling, and the event itself is the piece.

A view has to see a turn from its first event; replaying a log into it gives
the same pieces as following the turn live. The frames of a run (`wire/runs.py`)
must be the same for a reader who begins anywhere: they are made of single
logged events, and take back what these take back.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDelta,
    MessageCompleted,
    Notice,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from hermes.domain.messages import AssistantMessage
from hermes.domain.turn import TurnState


class Said(Struct, frozen=True, gc=False):
    text: str
    again: bool = False
    """What was said of this message before is void; `text` is all of it so far."""


class Thought(Struct, frozen=True, gc=False):
    text: str
    again: bool = False
    """As with `Said`."""


class Completed(Struct, frozen=True):
    """An assistant message is complete; its text has been said."""

    message: AssistantMessage
    differs: bool = False
    """What was said is not its text: a repeated call ended early, or was changed afterwards."""


class ToolDone(Struct, frozen=True, kw_only=True):
    started: ToolStarted | None
    """None if the call began before a restart."""
    finished: ToolFinished


Piece = (
    Said
    | Thought
    | Completed
    | ToolDone
    | CallDelta
    | TurnStarted
    | ToolStarted
    | ToolProgress
    | ApprovalAsked
    | ApprovalAnswered
    | SteerTaken
    | Notice
    | UsageReported
    | TurnFinished
)


class TurnView:
    """Follows one turn; one view for each reader."""

    def __init__(self) -> None:
        self.running: dict[str, ToolStarted] = {}
        """Tool calls that are going on, by id."""
        self.last: AssistantMessage | None = None
        """The last message that was completed."""
        self._text = _Growth(Said)
        self._thoughts = _Growth(Thought)
        self._completed = 0
        self._answered = False
        """Something was said since the last tool calls."""

    def feed(self, event: TurnEvent) -> Sequence[Piece]:
        # Nearly every event is one of these two, and `match` is slow in comparison.
        if isinstance(event, TextDelta):
            if event.text:
                self._answered = True
            return self._text.grow(event.text)
        if isinstance(event, ReasoningDelta):
            return self._thoughts.grow(event.text)
        match event:
            case TextReset():
                self._start_over()
                return ()
            case MessageCompleted(message=message):
                return self._complete(message)
            case ToolFinished(call_id=call_id):
                return (ToolDone(started=self.running.pop(call_id, None), finished=event),)
            case ToolStarted(call_id=call_id):
                self.running[call_id] = event
            case TurnStarted():
                return self._start(event)
            case TurnFinished():
                return self._finish(event)
        return (event,)

    def _start_over(self) -> None:
        self._text.void()
        self._thoughts.void()

    def _start(self, event: TurnStarted) -> list[Piece]:
        pieces: list[Piece] = [event]
        for message in event.earlier[self._completed :]:
            pieces += self._complete(message)
        self._start_over()
        return pieces

    def _complete(self, message: AssistantMessage) -> list[Piece]:
        rest = self._text.settle(message.text)
        differs = rest is None
        pieces: list[Piece] = [*(rest or ()), Completed(message, differs)]
        self._text, self._thoughts = _Growth(Said), _Growth(Thought)
        self._completed += 1
        self._answered = not message.tool_calls and (self._answered or bool(message.text))
        self.last = message
        return pieces

    def _finish(self, event: TurnFinished) -> list[Piece]:
        self.running.clear()
        missing = event.outcome is TurnState.DONE and not self._answered and not event.handed
        return [*self._text.grow(event.text), event] if missing else [event]


class _Growth:
    """A text of which nothing that was said can be taken back."""

    __slots__ = ("_again", "_matched", "_piece", "_said")

    def __init__(self, piece: type[Said] | type[Thought]) -> None:
        self._piece = piece
        self._said: list[str] = []
        self._again: str | None = None
        """What had been said before the text started over."""
        self._matched = 0
        """How much of that has come again."""

    def grow(self, text: str) -> Sequence[Said | Thought]:
        if self._again is not None:
            return self._catch_up(text, self._again)
        if not text:
            return ()
        self._said.append(text)
        return (self._piece(text),)

    def void(self) -> None:
        if self._again is None:
            self._again = "".join(self._said) or None
        self._matched = 0

    def settle(self, text: str) -> Sequence[Said | Thought] | None:
        """Say what is missing of the whole `text`; None if something else was said."""
        said = "".join(self._said) if self._again is None else self._again
        if text.startswith(said):
            rest = text[len(said) :]
            return (self._piece(rest),) if rest else ()
        if self._again is None or said.startswith(text):
            return None
        return (self._piece(text, again=True),)

    def _catch_up(self, text: str, before: str) -> Sequence[Said | Thought]:
        at = self._matched
        if before.startswith(text, at):
            self._matched += len(text)
            return ()
        self._again = None
        if text.startswith(before[at:]):
            rest = text[len(before) - at :]
            self._said = [before, rest]
            return (self._piece(rest),)
        whole = before[:at] + text
        self._said = [whole]
        return (self._piece(whole, again=True),)
