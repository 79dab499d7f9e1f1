"""The response resource: a request and what came of it, in one object.

It is made from the request with no output and the status `queued` or
`in_progress`; folding the events of the turn over it gives every later state.
"""

from typing import Any, Literal

from msgspec import Struct, field

from hermes.domain.turn import TurnError
from hermes.domain.usage import Usage
from hermes.streaming.wire.response_items import Item

__all__ = [
    "ConversationRef",
    "FunctionTool",
    "IncompleteDetails",
    "ReasoningEcho",
    "ResponseError",
    "ResponseResource",
    "ResponseStatus",
    "ResponseUsage",
    "TextEcho",
    "error_of",
    "usage_of",
]

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class IncompleteDetails(Struct, frozen=True, kw_only=True):
    """Why the answer is not whole."""

    reason: str


class ResponseError(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    message: str


class FunctionTool(Struct, frozen=True, kw_only=True, tag_field="type", tag="function"):
    """A tool of the client."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextEcho(Struct, frozen=True, kw_only=True):
    """How the text was wanted."""

    format: dict[str, Any] = field(default_factory=lambda: {"type": "text"})
    verbosity: str = "medium"


class ReasoningEcho(Struct, frozen=True, kw_only=True):
    """How much thought was wanted."""

    effort: str | None = None
    summary: str | None = None


class ConversationRef(Struct, frozen=True, kw_only=True):
    """The conversation that the response belongs to."""

    id: str


class InputTokensDetails(Struct, frozen=True, kw_only=True):
    """Parts of the input tokens."""

    cached_tokens: int


class OutputTokensDetails(Struct, frozen=True, kw_only=True):
    """Parts of the output tokens."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """Tokens of all model calls of the response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseResource(Struct, frozen=True, kw_only=True):
    """A response."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: tuple[Item, ...] = ()
    error: ResponseError | None = None
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: str | dict[str, Any] = "auto"
    truncation: Literal["auto", "disabled"] = "disabled"
    parallel_tool_calls: bool = True
    text: TextEcho = TextEcho()
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: ReasoningEcho | None = None
    usage: ResponseUsage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = True
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str] = {}
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    conversation: ConversationRef | None = None


def usage_of(usage: Usage) -> ResponseUsage:
    """Return token counts in the form of the Responses API."""
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cache_read_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )


def error_of(error: TurnError | None) -> ResponseError:
    """Return why a turn failed."""
    if error is None:
        return ResponseError(code="server_error", message="The response failed.")
    return ResponseError(code=error.code, message=f"{error.message} {error.hint}".strip())
