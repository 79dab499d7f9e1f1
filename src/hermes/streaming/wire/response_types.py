"""The objects of the Responses API: items, and the response that holds them.

The shapes are those of the Open Responses specification. Fields that it
requires are always sent, also when they are empty. A resource is made from the
request with no output and the status `queued` or `in_progress`; mapping the
pieces of the turn over it gives every later state.
"""

from typing import Any, Literal

from msgspec import Struct, field

from hermes.domain.turn import TurnError
from hermes.domain.usage import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text that the agent said."""

    text: str
    annotations: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[dict[str, Any], ...] = ()


class InputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_text"):
    """Text that was given to the agent."""

    text: str


class InputImage(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_image"):
    """A picture that was given to the agent."""

    image_url: str | None = None
    """Null if the picture came with the request itself."""
    detail: str = "auto"


class SummaryText(Struct, frozen=True, kw_only=True, tag_field="type", tag="summary_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message to or from the agent."""

    id: str
    status: ItemStatus
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[OutputText | InputText | InputImage, ...] = ()


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a tool: one of the client, or one that the agent ran itself."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class FunctionCallOutputItem(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call_output"
):
    """What a tool call gave back."""

    id: str
    call_id: str
    output: str | tuple[InputText | InputImage, ...]
    status: ItemStatus


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before it spoke."""

    id: str
    summary: tuple[SummaryText, ...] = ()


Item = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem


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
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cache_read_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )


def error_of(error: TurnError | None) -> ResponseError:
    if error is None:
        return ResponseError(code="server_error", message="The response failed.")
    return ResponseError(code=error.code, message=f"{error.message} {error.hint}".strip())
