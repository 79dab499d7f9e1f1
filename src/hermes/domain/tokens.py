"""Tokens of messages, estimated: a rough count that needs no provider."""

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

SUMMARY_HEADER = "[Summary of the earlier conversation; the messages themselves are archived]"
"""What a summary begins with that stands for older messages."""
BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_000
MESSAGE_OVERHEAD = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text`; wide scripts count closer to one a character."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size // BYTES_PER_TOKEN + 1


def estimate_message(message: Message) -> int:
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
