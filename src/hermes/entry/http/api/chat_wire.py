"""Chat completions on the wire: what is asked and what is answered.

Clients send many fields that mean nothing here (`top_p`, `seed`, `logit_bias`,
...); they are accepted and have no effect. What would change the meaning of
the answer and is not supported is refused.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.entry.http.api.conversation import ChatMessage, ToolFunction
from hermes.streaming.wire.chat import ChatUsage, Incomplete


class ToolIn(Struct, frozen=True, kw_only=True):
    """A tool of the client; only functions are supported."""

    type: str
    function: ToolFunction | None = None


class NamedFunction(Struct, frozen=True, kw_only=True):
    """Which function."""

    name: str


class NamedChoice(Struct, frozen=True, kw_only=True):
    """The model has to call this function first."""

    type: str = "function"
    function: NamedFunction


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A schema for the answer."""

    name: str = "reply"
    schema: dict[str, Any] | None = None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """`text`, `json_object` or `json_schema`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Struct, frozen=True, kw_only=True):
    """How to stream."""

    include_usage: bool | None = None
    """Send the usage in a chunk of its own, as OpenAI does, not with the last one."""


Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A conversation and what is wanted of the answer."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=2000)]
    model: str | None = None
    """The agent that answers; the default one if there is no name."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    n: int | None = None
    tools: Annotated[list[ToolIn], Meta(max_length=128)] | None = None
    tool_choice: str | NamedChoice | None = None
    functions: list[Any] | None = None
    """Not supported: use `tools`."""
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    metadata: dict[str, Any] | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None


class AnswerFunction(Struct, frozen=True, kw_only=True):
    """What the client should call."""

    name: str
    arguments: str


class AnswerCall(Struct, frozen=True, kw_only=True):
    """A call for the client to carry out."""

    id: str
    type: str = "function"
    function: AnswerFunction


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """What the agent says."""

    role: str = "assistant"
    content: str | None
    refusal: str | None = None
    tool_calls: list[AnswerCall] | UnsetType = UNSET


class AnswerChoice(Struct, frozen=True, kw_only=True):
    """The one answer."""

    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: str
    """`stop`, `length`, `tool_calls`, `content_filter` or `error`."""


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The answer to a conversation."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    """The name of the agent that answered."""
    choices: list[AnswerChoice]
    usage: ChatUsage
    hermes: Incomplete | UnsetType = UNSET
    """Only if the answer is not complete."""
