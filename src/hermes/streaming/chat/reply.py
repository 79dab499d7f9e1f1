"""Reply: what a turn has said so far, in the order in which a chat shows it.

A turn is a row of segments: each message that ends in tool calls closes one,
and the answer is the last. A segment has a number that depends only on the
messages in the ledger, so after a restart the same text belongs to the same
slots. Between segments lie the bubbles that show what the tools do.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.domain.errors import failure_text
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Notice,
    NoticeLevel,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.domain.outbound import SILENT_MARKERS
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.wording import one_line
from hermes.streaming.chat.chunking import close_code
from hermes.streaming.chat.media import Extracted, extract
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.units import clean, is_blank
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView

ProgressPiece = ToolStarted | ToolDone | Notice

_LABEL = 120
_PREVIEW = 160
_REASONING = 1500
"""Characters of reasoning that are shown."""
_EMPTY = "🤷 I came back without an answer. Ask again, or put it in other words."
_STOPPED = "⏹ Stopped here."
_FAILED = {
    ToolOutcome.ERROR: "✗",
    ToolOutcome.REFUSED: "⛔",
    ToolOutcome.SKIPPED: "skipped",
    ToolOutcome.UNKNOWN: "?",
}


class _Line(Struct):
    text: str
    tool: str = ""
    ending: str = ""


def shows_progress(settings: PresentationSettings) -> bool:
    return settings.tool_progress not in ("off", "log")


class Bubble:
    def __init__(self, slot: str, settings: PresentationSettings) -> None:
        self.slot = slot
        self.closed = False
        self.settled = False
        """It has been shown for the last time."""
        self._settings = settings
        self._lines: list[_Line] = []
        self._by_call: dict[str, _Line] = {}

    def take(self, piece: ProgressPiece) -> bool:
        """Take a piece; return whether the bubble looks different now."""
        match piece:
            case ToolStarted():
                return self._started(piece)
            case ToolDone(finished=finished):
                line = self._by_call.pop(finished.call_id, None)
                ending = self._ending(finished)
                if line is None or line.ending == ending:
                    return False
                line.ending = ending
                return True
            case Notice(level=NoticeLevel.WARNING, text=text):
                self._lines.append(_Line(f"⚠️ {_short(text, _PREVIEW)}"))
                return True
            case _:
                return False

    def markdown(self, room: int, weigh: Callable[[str], int]) -> str:
        """Return the newest lines that weigh no more than `room` together."""
        lines: list[str] = []
        room -= weigh("\n…")
        for line in reversed(self._lines):
            text = f"{line.text}{line.ending}"
            room -= weigh(text) + 1
            if lines and room < 0:
                lines.append("…")
                break
            lines.append(text)
        return "\n".join(reversed(lines))

    def _started(self, event: ToolStarted) -> bool:
        same = bool(self._lines) and self._lines[-1].tool == event.name
        if self._settings.tool_progress == "new" and same:
            return False
        name = (event.verb if self._settings.friendly_tool_labels else "") or event.name
        label = _short(event.label, self._settings.tool_preview_length or _LABEL)
        about = f" `{label}`" if label else ""
        line = _Line(f"{event.emoji} {name}{about}".strip(), event.name)
        self._lines.append(line)
        self._by_call[event.call_id] = line
        return True

    def _ending(self, event: ToolFinished) -> str:
        failed = _FAILED.get(event.outcome, "")
        if self._settings.tool_progress != "verbose":
            return f" {failed}" if failed else ""
        preview = _short(event.preview, self._settings.tool_preview_length or _PREVIEW)
        ending = f" {failed or '✓'} {event.seconds:.1f}s"
        return f"{ending} `{preview}`" if preview else ending


def _short(text: str, limit: int) -> str:
    return one_line(text.replace("`", "'"), limit)


def is_silent(text: str, *, begun: bool = False) -> bool:
    """Return whether all of `text` asks for silence; with `begun`, whether it still may do so."""
    said = text.strip()
    return said in SILENT_MARKERS or (begun and any(m.startswith(said) for m in SILENT_MARKERS))


def quoted(reasoning: str) -> str:
    """Return `reasoning` as a Markdown quote, not too long."""
    thought = reasoning.strip()
    if not thought:
        return ""
    if len(thought) > _REASONING:
        thought = thought[:_REASONING].rstrip() + "…"
    # A fence inside would swallow the quote marks of the lines behind it.
    lines = thought.replace("```", "'''").replace("~~~", "'''").split("\n")
    return "\n".join(f"> {'💭 ' if number == 0 else ''}{line}" for number, line in enumerate(lines))


class Ending(Struct, frozen=True, kw_only=True):
    outcome: TurnState = TurnState.DONE
    error: TurnError | None = None


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
        return f"reply:{self.index}.{piece}"

    def media_slot(self, number: int) -> str:
        return f"media:{self.index}.{number}"

    def grow(self, piece: Said | Thought) -> None:
        new = self._new if isinstance(piece, Said) else self._new_thoughts
        if piece.again:
            new.clear()
        new.append(piece.text)

    def commit(self, message: AssistantMessage) -> None:
        """Replace what is not certain by the message as it is in the ledger."""
        self._new, self._new_thoughts = [], []
        self._said += message.text
        if message.reasoning is not None:
            self._thought = self._thought or message.reasoning.text
        self.remark = self.closed = bool(message.tool_calls)

    def end(self, ending: Ending) -> None:
        self._said += "".join(self._new)
        self._new, self._new_thoughts = [], []
        self.ending, self.closed = ending, True

    def content(self, settings: PresentationSettings) -> Extracted:
        """Return its Markdown and its files as they are to be shown now."""
        found = extract(clean(self._said + "".join(self._new)), complete=self.closed)
        body = found.text.strip("\n") if self.closed else found.text.lstrip("\n")
        cut_off = self.ending is not None and self.ending.outcome is not TurnState.DONE
        held_back = not self.closed or cut_off
        silent = is_silent(body, begun=held_back)
        if silent:
            body = ""
        if self.ending is not None:
            body = _with_ending(body, self.ending, operator=settings.operator)
            if is_blank(body) and not silent and not found.media and not cut_off:
                body = _EMPTY
        thought = ""
        if settings.show_reasoning and (body or self.remark or not self.closed):
            thought = quoted(clean(self._thought or "".join(self._new_thoughts)))
        text = f"{thought}\n\n{body}".rstrip() if thought else body
        return Extracted(text=text, media=found.media)

    def is_shown(self, settings: PresentationSettings) -> bool:
        """Return whether it stays visible when it is complete."""
        return settings.interim_assistant_messages or not self.remark


class TurnReply:
    def __init__(self, settings: PresentationSettings) -> None:
        self._settings = settings
        self._view = TurnView()
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

    def take(self, event: TurnEvent) -> None:
        for piece in self._view.feed(event):
            self._take(piece)

    def _take(self, piece: Piece) -> None:
        match piece:
            case Said() | Thought():
                self._grow(piece)
            case Completed(message):
                self.complete(message)
            case ToolStarted() | ToolDone() | Notice():
                self._progress(piece)
            case ApprovalAsked(request=request):
                self.asking.add(request.id)
            case ApprovalAnswered(approval_id=approval_id):
                self.asking.discard(approval_id)
            case TurnFinished(outcome=outcome, error=error):
                self.finished = piece
                if error is None or error.code != "shutdown":
                    self.end(Ending(outcome=outcome, error=error))
            case _:
                pass

    def end(self, ending: Ending) -> None:
        self.current.end(ending)
        content = self.current.content(self._settings)
        if content.text or content.media:
            self._place(self.current)
        for item in self.items:
            item.closed = True
        self.revision += 1

    def _grow(self, piece: Said | Thought) -> None:
        if isinstance(piece, Thought) and not self._settings.show_reasoning:
            return
        self.current.grow(piece)
        self.size += len(piece.text)
        self.revision += 1
        if piece.text.strip():
            self._place(self.current)

    def complete(self, message: AssistantMessage) -> None:
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

    def _progress(self, piece: ProgressPiece) -> None:
        if not shows_progress(self._settings):
            return
        if isinstance(piece, Notice) and not self._settings.operator:
            return
        new = isinstance(piece, ToolStarted) or _warns(piece)
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
        if bubble.take(piece):
            self.revision += 1

    def _bubble(self) -> Bubble | None:
        for item in reversed(self.items):
            if isinstance(item, Bubble) and not item.closed:
                return item
        return None


def _warns(piece: ProgressPiece) -> bool:
    return isinstance(piece, Notice) and piece.level is NoticeLevel.WARNING


def _with_ending(body: str, ending: Ending, *, operator: bool) -> str:
    if ending.outcome is TurnState.INTERRUPTED:
        note = "" if is_blank(body) else _STOPPED
    elif ending.error is not None:
        note = f"⚠️ {failure_text(ending.error, operator=operator)}"
    else:
        note = ""
    if not note or is_blank(body):
        return note or body
    return f"{close_code(body.rstrip())}\n\n{note}"


def final_segments(
    messages: Sequence[AssistantMessage], settings: PresentationSettings, ending: Ending
) -> list[Segment]:
    """Return the segments that stay visible of a turn that said `messages`."""
    reply = TurnReply(settings)
    for message in messages:
        reply.complete(message)
    reply.end(ending)
    return [item for item in reply.items if isinstance(item, Segment) and item.is_shown(settings)]
