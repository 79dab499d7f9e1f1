"""How sessions and their messages look from outside.

System prompts, working directories and other owners are shown to keys with
`Action.ADMIN` only.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    InputKind,
    Part,
    TextPart,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.session import Session, StoredMessage
from hermes.entry.http.access import sees_everything
from hermes.entry.http.endpoint import Call
from hermes.streaming.wire.frames import tool_call_fields

__all__ = [
    "MessageList",
    "MessageView",
    "SessionBody",
    "SessionList",
    "SessionView",
    "message_view",
    "session_view",
]


class SessionView(Struct, frozen=True, kw_only=True):
    """One session."""

    id: str
    source: str
    """The door it was opened at; `api_server` for this one."""
    user_id: str | None
    model: str
    """The agent, under the name it has in the `model` field of requests."""
    language_model: str
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    last_active: float
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float
    parent_session_id: str | None
    lineage: str | None
    """Why it has a parent: `branch`, `compression` or `delegation`."""
    preview: str
    has_system_prompt: bool
    cwd: str | UnsetType | None = UNSET
    system_prompt: str | UnsetType | None = UNSET


class SessionBody(Struct, frozen=True, kw_only=True):
    """One session in its envelope."""

    object: str = "hermes.session"
    session: SessionView


class SessionList(Struct, frozen=True, kw_only=True):
    """A page of sessions, most recently used first."""

    object: str = "list"
    data: tuple[SessionView, ...]
    limit: int
    offset: int
    has_more: bool


class MessageView(Struct, frozen=True, kw_only=True):
    """One message of a session, as in chat completions, with its seat in the history."""

    id: int
    session_id: str
    seq: int
    timestamp: float
    active: bool
    """False once undone or summarised: the model is not shown it any more."""
    role: str
    content: str | list[dict[str, Any]] | None
    kind: str | UnsetType = UNSET
    """For user messages that nobody typed: `steer`, `notice` or `summary`."""
    name: str | UnsetType = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET


class MessageList(Struct, frozen=True, kw_only=True):
    """A page of messages, oldest first."""

    object: str = "list"
    session_id: str
    data: tuple[MessageView, ...]
    limit: int
    offset: int
    has_more: bool


def session_view(call: Call[Any, Any], session: Session, *, whole: bool = False) -> SessionView:
    """Return a session as the caller may see it; `whole` with its system prompt."""
    used, admin = session.usage, sees_everything(call.caller)
    names = {card.agent_id: card.name for card in call.parts.agents}
    return SessionView(
        id=session.id,
        source=session.source,
        user_id=session.user_id,
        model=names.get(session.agent_id, session.agent_id),
        language_model=session.model,
        title=session.title,
        started_at=session.started_at,
        ended_at=session.ended_at,
        end_reason=session.end_reason,
        last_active=session.updated_at,
        message_count=session.message_count,
        tool_call_count=session.tool_call_count,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        reasoning_tokens=used.reasoning_tokens,
        estimated_cost_usd=session.cost_usd,
        parent_session_id=session.parent_id,
        lineage=None if session.lineage is None else session.lineage.value,
        preview=session.preview,
        has_system_prompt=session.system_prompt is not None,
        cwd=session.cwd if admin else UNSET,
        system_prompt=session.system_prompt if admin and whole else UNSET,
    )


def message_view(stored: StoredMessage) -> MessageView:
    """Return one message as it is shown."""
    message = stored.message
    fields: dict[str, Any] = {}
    match message:
        case UserMessage():
            fields = {"role": "user", "content": _content(message.content)}
            if message.kind is not InputKind.USER:
                fields["kind"] = message.kind.value
            if message.sender is not None:
                fields["name"] = message.sender
        case AssistantMessage():
            fields = _assistant(message)
        case ToolMessage():
            fields = {
                "role": "tool",
                "content": content_text(message.content),
                "tool_call_id": message.call_id,
                "tool_name": message.name,
                "outcome": message.outcome.value,
            }
    return MessageView(
        id=stored.id,
        session_id=stored.session_id,
        seq=stored.seq,
        timestamp=stored.at,
        active=stored.active,
        **fields,
    )


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": "assistant",
        "content": message.text,
        "finish_reason": message.finish.value,
    }
    if message.tool_calls:
        fields["content"] = message.text or None
        fields["tool_calls"] = [tool_call_fields(call) for call in message.tool_calls]
    if message.reasoning is not None and message.reasoning.text:
        fields["reasoning"] = message.reasoning.text
    return fields


def _content(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": part.url}}
        case FilePart():
            return {"type": "file", "file": {"filename": part.name}}
