"""Tokens and money, counted one way for every provider."""

from collections.abc import Iterable

from msgspec import Struct

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    ToolMessage,
    UserMessage,
    content_text,
)


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model call.

    `input_tokens` counts the whole prompt; the two cache counters are parts
    of it. `output_tokens` counts everything generated; `reasoning_tokens` is a
    part of it. Providers that count otherwise are converted on arrival.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        names = self.__struct_fields__
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


class UsageRecord(Struct, frozen=True, kw_only=True):
    session_id: str | None
    turn_id: str | None
    agent_id: str
    provider: str
    model: str
    task: str
    """`turn`, or the name of the auxiliary task, e.g. `title_generation`."""
    usage: Usage
    cost_usd: float | None
    """None when the price of the model is not known."""
    at: float


class Spent(Struct, frozen=True, kw_only=True):
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Calls whose price is unknown and therefore missing from `cost_usd`."""


class TurnUsage(Struct, frozen=True, kw_only=True):
    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    """None if the price of a call is not known."""


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
