"""Messages: what is said in a session, in one provider-neutral form.

A message is richer than any wire format and is lowered to one exactly once,
at the call boundary. The system prompt is not a message: it belongs to the
session and never changes during its life.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hermes.domain.wording import one_line


class TextPart(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    added: bool = False
    """Not typed by the person: what their references stand for."""


class ImagePart(Struct, frozen=True, tag="image", kw_only=True):
    """A picture, by URL (http, https or data)."""

    url: str
    media_type: str | None = None
    detail: str | None = None


class FilePart(Struct, frozen=True, tag="file", kw_only=True, omit_defaults=True):
    path: str
    name: str
    media_type: str | None = None
    detail: str | None = None
    """Of a picture: how closely the model is to look, as OpenAI spells it."""


Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]
"""Plain text in the common case; parts only when something else is attached."""


class InputKind(StrEnum):
    """Why a user message is in the history."""

    USER = "user"
    """A person (or another program) said it."""
    STEER = "steer"
    """Said while the turn was running and taken at a tool boundary."""
    NOTICE = "notice"
    """Hermes itself tells the model something, e.g. that it was interrupted."""
    SUMMARY = "summary"
    """Stands for older messages that compaction took out of the context."""


class FinishReason(StrEnum):
    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    INTERRUPTED = "interrupted"
    """The turn was cut off; the text is what had arrived."""


class ToolOutcome(StrEnum):
    OK = "ok"
    ERROR = "error"
    REFUSED = "refused"
    """A policy or a person said no."""
    SKIPPED = "skipped"
    """Never started: the turn was interrupted first."""
    UNKNOWN = "unknown"
    """Started, then cut off: it may or may not have had its effect."""


class ToolCall(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str
    """JSON exactly as the model wrote it (after repair)."""


class Reasoning(Struct, frozen=True, kw_only=True):
    """What the model thought, and what the provider wants back unchanged."""

    text: str = ""
    details: tuple[dict[str, Any], ...] = ()
    """Opaque provider blocks (signatures, encrypted items), replayed verbatim."""
    protocol: str = ""
    """The wire protocol that `details` belong to; other protocols drop them."""


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    content: Content
    kind: InputKind = InputKind.USER
    sender: str | None = None
    """The speaker's name where several people share one session."""


_LABELS = {
    InputKind.STEER: "[Said while you were working] ",
    InputKind.NOTICE: "[Note from Hermes] ",
}


def user_prefix(message: UserMessage) -> str:
    """Return what the model reads before a user message, e.g. who speaks."""
    label = _LABELS.get(message.kind, "")
    return f"{label}[{message.sender}] " if message.sender else label


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: Reasoning | None = None
    finish: FinishReason = FinishReason.STOP

    @property
    def continues(self) -> bool:
        """True if its length limit cut it off: the next message goes on within the sentence."""
        return self.finish is FinishReason.LENGTH and not self.tool_calls


class ToolMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    call_id: str
    name: str
    content: Content
    outcome: ToolOutcome = ToolOutcome.OK


Message = UserMessage | AssistantMessage | ToolMessage


def content_text(content: Content) -> str:
    """Return the text of `content`, naming attachments in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content)


def typed_text(content: Content) -> str:
    """Return what the person typed, naming attachments in brackets."""
    if isinstance(content, str):
        return content
    return content_text(
        tuple(part for part in content if not isinstance(part, TextPart) or not part.added)
    )


SHOWN_CHARS = 1000


def shown_text(text: str, kind: InputKind) -> str:
    """Return what people see of what was said: of a notice its first line."""
    if kind is not InputKind.NOTICE:
        return text
    return one_line(text.strip().partition("\n")[0], SHOWN_CHARS)


def _part_text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return "[image]"
        case FilePart():
            return f"[file: {part.name}]"


def openai_part(part: Part) -> dict[str, Any]:
    """Return a part in the shape of chat completions; of a file only its name."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": part.url, **detail}}
        case FilePart():
            return {"type": "file", "file": {"filename": part.name}}


def openai_call(call: ToolCall) -> dict[str, Any]:
    """Return a call in the shape of chat completions."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
