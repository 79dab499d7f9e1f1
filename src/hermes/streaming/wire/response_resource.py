"""The resource of the Responses API: a response, its items and their parts."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from hermes.domain.turn import TurnError
from hermes.domain.usage import Usage

Role = Literal["user", "assistant", "system", "developer"]
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


class InputFile(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_file"):
    """A file that was given to the agent."""

    filename: str
    file_url: str | None = None
    """Null if the file came with the request itself."""


class SummaryText(Struct, frozen=True, kw_only=True, tag_field="type", tag="summary_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message to or from the agent."""

    id: str
    status: ItemStatus
    role: Role
    content: tuple[OutputText | InputText | InputImage | InputFile, ...] = ()
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a tool of the client, which carries it out."""

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
    output: str | tuple[InputText | InputImage | InputFile, ...]
    status: ItemStatus


SERVER = "hermes"
"""The label under which clients see the agent's own tools."""


class ToolErrorText(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """What a tool said when it failed."""

    text: str


class McpCallError(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_tool_execution_error"
):
    """Why a tool failed."""

    content: tuple[ToolErrorText, ...]


class McpCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_call"):
    """A tool that the agent ran itself, with what it gave back."""

    id: str
    server_label: str = SERVER
    name: str
    arguments: str
    output: str | None = None
    error: McpCallError | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    approval_request_id: str | None = None


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before it spoke."""

    id: str
    summary: tuple[SummaryText, ...] = ()


class CompactionItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="compaction"):
    """A summary that stands for what was said before."""

    id: str
    encrypted_content: str
    """Only to be sent back as it is."""


Item = (
    MessageItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | McpCallItem
    | ReasoningItem
    | CompactionItem
)


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class IncompleteDetails(Struct, frozen=True, kw_only=True):
    """Why the answer is not whole."""

    reason: str


class ResponseError(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    type: str = "server_error"
    """Not in the specification; `@ai-sdk/openai` cannot read a failed response without it."""
    code: str
    message: str


class FunctionTool(Struct, frozen=True, kw_only=True, tag_field="type", tag="function"):
    """A tool of the client."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class McpTool(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp"):
    """Which of the agent's own tools may be used."""

    server_label: str = SERVER
    allowed_tools: tuple[str, ...] | None = None


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
    tools: tuple[FunctionTool | McpTool, ...] = ()
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
