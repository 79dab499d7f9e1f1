"""What a turn has said so far, in the order in which a chat shows it.

A turn is a row of segments: each message that ends in tool calls closes one,
and the answer is the last. A segment has a number that depends only on the
messages in the ledger, so after a restart the same text belongs to the same
slots. Between segments lie the bubbles that show what the tools do.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    Notice,
    NoticeLevel,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from hermes.domain.messages import AssistantMessage
from hermes.domain.outbound import SILENT_MARKERS
from hermes.domain.turn import TurnError, TurnState
from hermes.streaming.chat.chunking import close_code
from hermes.streaming.chat.media import Extracted, extract
from hermes.streaming.chat.progress import Bubble, ProgressEvent, shows_progress
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.units import clean, is_blank

__all__ = [
    "Ending",
    "Segment",
    "TurnReply",
    "is_silent",
    "may_become_silent",
    "quoted",
]


def is_silent(text: str) -> bool:
    """Return whether the whole of `text` asks for silence."""
    return text.strip() in SILENT_MARKERS


def may_become_silent(text: str) -> bool:
    """Return whether `text` is the beginning of a marker, or of nothing yet."""
    begun = text.strip()
    return any(marker.startswith(begun) for marker in SILENT_MARKERS)


def quoted(reasoning: str, limit: int) -> str:
    """Return `reasoning` as a Markdown quote of at most about `limit` characters."""
    thought = reasoning.strip()
    if not thought or limit <= 0:
        return ""
    if len(thought) > limit:
        thought = thought[:limit].rstrip() + "…"
    # A fence inside would swallow the quote marks of the lines behind it.
    lines = thought.replace("```", "'''").replace("~~~", "'''").split("\n")
    return "\n".join(f"> {'💭 ' if number == 0 else ''}{line}" for number, line in enumerate(lines))


class Ending(Struct, frozen=True, kw_only=True):
    """How a turn ended."""

    outcome: TurnState = TurnState.DONE
    error: TurnError | None = None
    text: str = ""
    """The answer, for when it did not come as messages."""


class Segment:
    """The text between two rounds of tools."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.closed = False
        self.settled = False
        """It has been shown for the last time."""
        self.remark = False
        """It ended in tool calls: it is not the answer."""
        self.ending: Ending | None = None
        self._said = ""
        self._thought = ""
        self._new: list[str] = []
        self._new_thoughts: list[str] = []

    def slot(self, piece: int) -> str:
        """Return the name of the slot that its piece number `piece` is shown in."""
        return f"reply:{self.index}.{piece}"

    def media_slot(self, number: int) -> str:
        """Return the name of the slot that its file number `number` is sent in."""
        return f"media:{self.index}.{number}"

    def say(self, text: str) -> None:
        """Take a piece of text that is not certain yet."""
        self._new.append(text)

    def think(self, text: str) -> None:
        """Take a piece of reasoning that is not certain yet."""
        self._new_thoughts.append(text)

    def reset(self) -> None:
        """Forget what is not certain."""
        self._new, self._new_thoughts = [], []

    def commit(self, message: AssistantMessage) -> None:
        """Replace what is not certain by the message as it is in the ledger."""
        self.reset()
        self._said += message.text
        if message.reasoning is not None:
            self._thought = self._thought or message.reasoning.text
        self.remark = self.closed = bool(message.tool_calls)

    def end(self, ending: Ending) -> None:
        """Say how the turn ended; nothing comes any more."""
        if ending.outcome is TurnState.DONE:
            self._said = self._said or ending.text or "".join(self._new)
        else:
            self._said += "".join(self._new)
        self.reset()
        self.ending, self.closed = ending, True

    def content(self, settings: PresentationSettings) -> Extracted:
        """Return its Markdown and its files as they are to be shown now."""
        found = extract(clean(self._said + "".join(self._new)), complete=self.closed)
        body = found.text.strip("\n") if self.closed else found.text.lstrip("\n")
        cut_off = self.ending is not None and self.ending.outcome is not TurnState.DONE
        held_back = not self.closed or cut_off
        if may_become_silent(body) if held_back else is_silent(body):
            body = ""
        if self.ending is not None:
            body = _with_ending(body, self.ending, settings)
        thought = ""
        if settings.show_reasoning and (body or self.remark or not self.closed):
            thought = quoted(
                clean(self._thought or "".join(self._new_thoughts)), settings.reasoning_limit
            )
        text = f"{thought}\n\n{body}".rstrip() if thought else body
        return Extracted(text=text, media=found.media)

    def is_shown(self, settings: PresentationSettings) -> bool:
        """Return whether it stays visible when it is complete."""
        return settings.interim_assistant_messages or not self.remark


class TurnReply:
    """Follows the events of one turn."""

    def __init__(
        self, settings: PresentationSettings, earlier: Sequence[AssistantMessage] = ()
    ) -> None:
        self._settings = settings
        self._bubbles = 0
        self.items: list[Segment | Bubble] = []
        self.current = Segment(0)
        self.finished: TurnFinished | None = None
        self.asking: set[str] = set()
        """Approvals and questions that wait for a person."""
        self.revision = 0
        """Grows whenever something looks different."""
        self.size = 0
        """Characters that have come so far."""
        for message in earlier:
            self._complete(message)

    def take(self, event: TurnEvent) -> None:
        """Take the next event."""
        match event:
            case TextDelta(text=text):
                self.current.say(text)
                self._grown(text)
            case ReasoningDelta(text=text) if self._settings.show_reasoning:
                self.current.think(text)
                self._grown(text)
            case TextReset():
                self.current.reset()
                self.revision += 1
            case MessageCompleted(message=message):
                self._complete(message)
            case ToolStarted() | ToolProgress() | ToolFinished() | Notice():
                self._progress(event)
            case ApprovalAsked(request=request):
                self.asking.add(request.id)
            case ApprovalAnswered(approval_id=approval_id):
                self.asking.discard(approval_id)
            case TurnFinished(outcome=outcome, error=error, text=text):
                self.finished = event
                if error is None or error.code != "shutdown":
                    self.end(Ending(outcome=outcome, error=error, text=text))
            case _:
                pass

    def end(self, ending: Ending) -> None:
        """Close everything."""
        self.current.end(ending)
        content = self.current.content(self._settings)
        if content.text or content.media:
            self._place(self.current)
        for item in self.items:
            item.closed = True
        self.revision += 1

    def _grown(self, text: str) -> None:
        self.size += len(text)
        self.revision += 1
        if text.strip():
            self._place(self.current)

    def _complete(self, message: AssistantMessage) -> None:
        self.current.commit(message)
        self.revision += 1
        thought = message.reasoning if self._settings.show_reasoning else None
        if message.text.strip() or thought is not None:
            self._place(self.current)
        if message.tool_calls:
            self.current = Segment(self.current.index + 1)

    def _place(self, segment: Segment) -> None:
        """Give `segment` its place behind everything that is there, if it has none."""
        if segment in self.items:
            return
        if self._settings.interim_assistant_messages:
            for item in self.items:
                item.closed = True
        self.items.append(segment)

    def _progress(self, event: ProgressEvent) -> None:
        if not shows_progress(self._settings):
            return
        new = isinstance(event, ToolStarted) or _warns(event)
        separate = self._settings.tool_progress_grouping == "separate"
        bubble = self._bubble()
        if bubble is not None and new and separate:
            bubble.closed, bubble = True, None
        if bubble is None:
            if not new:
                return
            bubble = Bubble(f"progress:{self.current.index}.{self._bubbles}", self._settings)
            self._bubbles += 1
            self.items.append(bubble)
        if bubble.take(event):
            self.revision += 1

    def _bubble(self) -> Bubble | None:
        for item in reversed(self.items):
            if isinstance(item, Bubble) and not item.closed:
                return item
        return None


def _warns(event: ProgressEvent) -> bool:
    return isinstance(event, Notice) and event.level is NoticeLevel.WARNING


def _with_ending(body: str, ending: Ending, settings: PresentationSettings) -> str:
    if ending.outcome is TurnState.INTERRUPTED:
        note = "" if is_blank(body) else settings.stopped_mark
    elif ending.error is not None:
        note = f"⚠️ {ending.error.message}\n{ending.error.hint}".strip()
    else:
        note = ""
    if not note or is_blank(body):
        return note or body
    return f"{close_code(body.rstrip())}\n\n{note}"
