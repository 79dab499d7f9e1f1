"""A turn at an interactive terminal: TurnEvents become pieces to show.

What is printed above the input cannot be taken back. So text that comes again
after a `TextReset` is shown only from where it differs from what is on the
screen, and a tool gets its one line when it ends. What is still moving (open
text, running tools) is kept here for the part of the screen that is redrawn.

Text from outside is made harmless first: control characters could move the
cursor, change the title or write to the clipboard.
"""

import re

from msgspec import Struct

from hermes.domain.approvals import ApprovalRequest, Decision
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    Notice,
    NoticeLevel,
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
from hermes.domain.messages import ToolOutcome

__all__ = [
    "Answered",
    "Asked",
    "Ended",
    "Piece",
    "Remark",
    "Running",
    "Said",
    "SaidEnd",
    "Thought",
    "ThoughtEnd",
    "ToolDone",
    "TurnView",
    "harmless",
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Remove control characters other than line ends and tabs, and text-direction tricks."""
    return _CONTROL.sub("", text)


class Said(Struct, frozen=True):
    """More of the answer."""

    text: str


class SaidEnd(Struct, frozen=True):
    """The message is complete."""


class Thought(Struct, frozen=True):
    """More of what the model thinks."""

    text: str


class ThoughtEnd(Struct, frozen=True):
    """It has begun to answer or to act."""


class ToolDone(Struct, frozen=True, kw_only=True):
    """A tool call that has ended."""

    name: str
    verb: str
    emoji: str
    detail: str
    seconds: float
    outcome: ToolOutcome
    preview: str = ""
    diff: str | None = None


class Asked(Struct, frozen=True):
    """Somebody has to answer."""

    request: ApprovalRequest


class Answered(Struct, frozen=True, kw_only=True):
    """A request has its answer."""

    approval_id: str
    decision: Decision


class Remark(Struct, frozen=True, kw_only=True):
    """A line about what is happening."""

    text: str
    warning: bool = False


class Ended(Struct, frozen=True):
    """The turn is over."""

    finished: TurnFinished


Piece = Said | SaidEnd | Thought | ThoughtEnd | ToolDone | Asked | Answered | Remark | Ended


class Running(Struct, kw_only=True):
    """A tool call that is going on."""

    verb: str
    emoji: str
    detail: str
    progress: str = ""


class TurnView:
    """What one turn looks like so far."""

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        self.usage: UsageReported | None = None
        self.model = ""
        self._text = ""
        self._shown = 0
        self._before_reset = ""
        self._thinking = False

    def event(self, event: TurnEvent) -> list[Piece]:
        """Take the next event and return what there is to show."""
        match event:
            case TextDelta(text=text):
                return [*self._end_thought(), *self._say(harmless(text))]
            case ReasoningDelta(text=text):
                self._thinking = True
                return [Thought(harmless(text))]
            case TextReset():
                return self._reset()
            case MessageCompleted(message=message):
                return self._complete(harmless(message.text))
            case ToolStarted() | ToolProgress() | ToolFinished():
                return self._tool(event)
            case ApprovalAsked(request=request):
                return [*self._end_thought(), Asked(request)]
            case ApprovalAnswered(approval_id=approval_id, decision=decision):
                return [Answered(approval_id=approval_id, decision=decision)]
            case _:
                return self._other(event)

    def _other(self, event: TurnEvent) -> list[Piece]:
        match event:
            case TurnStarted(model=model, resumes=resumes):
                self.model = model
                again = "going on where the last process stopped"
                return [Remark(text=again)] if resumes else []
            case Notice(text=text, level=level):
                return [Remark(text=harmless(text), warning=level is NoticeLevel.WARNING)]
            case SteerTaken(text=text):
                return [Remark(text=f"taken into the running turn: {harmless(text)}")]
            case UsageReported():
                self.usage = event
                return []
            case TurnFinished():
                self.running.clear()
                return [*self._end_thought(), *self._end_text(), Ended(event)]
            case _:
                return []

    def _say(self, text: str) -> list[Piece]:
        self._text += text
        seen = self._before_reset
        if seen:
            if seen.startswith(self._text):
                return []
            self._before_reset = ""
            if not self._text.startswith(seen):
                self._shown = len(self._text)
                over = Remark(text="the answer starts over", warning=True)
                return [SaidEnd(), over, Said(self._text)]
            self._shown = len(seen)
        new, self._shown = self._text[self._shown :], len(self._text)
        return [Said(new)] if new else []

    def _reset(self) -> list[Piece]:
        self._before_reset = self._before_reset or self._text[: self._shown]
        self._text, self._shown = "", 0
        return self._end_thought()

    def _complete(self, text: str) -> list[Piece]:
        """End the message; text that never came as deltas is shown now."""
        pieces = self._end_thought()
        if text and not self._text and not self._before_reset:
            pieces += self._say(text)
        return [*pieces, *self._end_text()]

    def _end_text(self) -> list[Piece]:
        said = bool(self._text or self._before_reset)
        self._text, self._shown, self._before_reset = "", 0, ""
        return [SaidEnd()] if said else []

    def _end_thought(self) -> list[Piece]:
        if not self._thinking:
            return []
        self._thinking = False
        return [ThoughtEnd()]

    def _tool(self, event: ToolStarted | ToolProgress | ToolFinished) -> list[Piece]:
        if isinstance(event, ToolStarted):
            self.running[event.call_id] = Running(
                verb=event.verb or event.name, emoji=event.emoji, detail=_flat(event.label)
            )
            return self._end_thought()
        if isinstance(event, ToolProgress):
            running = self.running.get(event.call_id)
            if running is not None:
                running.progress = _last_line(event.text)
            return []
        begun = self.running.pop(event.call_id, None)
        return [
            ToolDone(
                name=event.name,
                verb=begun.verb if begun else event.name,
                emoji=begun.emoji if begun else "🔧",
                detail=begun.detail if begun else "",
                seconds=event.seconds,
                outcome=event.outcome,
                preview=harmless(event.preview),
                diff=harmless(event.diff) if event.diff else None,
            )
        ]


def _flat(text: str) -> str:
    return " ".join(harmless(text).split())


def _last_line(text: str) -> str:
    lines = [line for line in harmless(text).splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
