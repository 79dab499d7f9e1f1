"""Rough token counts, for decisions that must not wait for a provider."""

from collections.abc import Iterable

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    ToolMessage,
    UserMessage,
    content_text,
)

__all__ = ["estimate_message", "estimate_tokens"]

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_000
MESSAGE_OVERHEAD = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`; wide scripts count closer to one a character."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size // BYTES_PER_TOKEN + 1


def estimate_message(message: Message) -> int:
    """Estimate the tokens of one message."""
    match message:
        case UserMessage() | ToolMessage():
            return MESSAGE_OVERHEAD + _content(message.content)
        case AssistantMessage():
            calls = sum(
                estimate_tokens(call.arguments) + MESSAGE_OVERHEAD for call in message.tool_calls
            )
            return MESSAGE_OVERHEAD + estimate_tokens(message.text) + calls


def _content(content: Content) -> int:
    images: Iterable[object] = () if isinstance(content, str) else content
    count = sum(1 for part in images if isinstance(part, ImagePart))
    return estimate_tokens(content_text(content)) + count * IMAGE_TOKENS
