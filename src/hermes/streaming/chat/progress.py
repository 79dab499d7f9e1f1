"""The tool-progress bubble: one line per tool call, in a message beside the answer.

Modes: `off` and `log` show nothing, `new` a line when another tool is used
than before, `all` every call, `verbose` also how each one ended. What does not
fit is dropped from the top, so that the message never grows out of its slot.
"""

from collections.abc import Callable

from msgspec import Struct

from hermes.domain.events import Notice, NoticeLevel, ToolFinished, ToolStarted
from hermes.domain.messages import ToolOutcome
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.view import ToolDone

ProgressPiece = ToolStarted | ToolDone | Notice

_LABEL = 120
_PREVIEW = 160
_FAILED = {
    ToolOutcome.ERROR: "✗",
    ToolOutcome.REFUSED: "⛔",
    ToolOutcome.SKIPPED: "skipped",
    ToolOutcome.UNKNOWN: "?",
}


class _Line(Struct):
    """One line of the bubble."""

    text: str
    tool: str = ""
    ending: str = ""


def shows_progress(settings: PresentationSettings) -> bool:
    """Return whether tool calls are shown at all."""
    return settings.tool_progress not in ("off", "log")


class Bubble:
    """What has been done so far, in lines."""

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
    flat = " ".join(text.replace("`", "'").split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 1)].rstrip() + "…"
