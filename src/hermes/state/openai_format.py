"""Messages in the OpenAI chat format, which most tools can read."""

from typing import Any

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolMessage,
    UserMessage,
    content_text,
)

__all__ = ["openai_message"]


def openai_message(message: Message) -> dict[str, Any]:
    """Return `message` as an OpenAI chat message."""
    match message:
        case UserMessage():
            named = {} if message.sender is None else {"name": message.sender}
            return {"role": "user", **named, "content": _content(message.content)}
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return {
                "role": "tool",
                "tool_call_id": message.call_id,
                "content": content_text(message.content),
            }


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    if not message.tool_calls:
        return {"role": "assistant", "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _content(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            detail = {} if part.detail is None else {"detail": part.detail}
            return {"type": "image_url", "image_url": {"url": part.url, **detail}}
        case FilePart():
            return {"type": "text", "text": f"[file: {part.path}]"}
