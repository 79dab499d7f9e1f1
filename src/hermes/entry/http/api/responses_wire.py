"""Requests to `/v1/responses`, and the small answers."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.entry.http.api.conversation import InputItem, Short
from hermes.streaming.wire.response_types import Item

Name = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]


class ResponseTool(Struct, frozen=True, kw_only=True):
    """A tool; only functions of the client are supported."""

    type: Short
    name: Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AllowedTool(Struct, frozen=True, kw_only=True):
    """A tool that may be used."""

    type: Short = "function"
    name: Name | None = None


class ToolChoice(Struct, frozen=True, kw_only=True):
    """Which tool is to be used."""

    type: Short
    name: Name | None = None
    mode: Short | None = None
    tools: tuple[AllowedTool, ...] | None = None


class TextFormat(Struct, frozen=True, kw_only=True):
    """What the text has to look like."""

    type: Short = "json_schema"
    name: Name | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(Struct, frozen=True, kw_only=True):
    """How the text is wanted."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    """How much thought is wanted."""

    effort: Short | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ConversationName(Struct, frozen=True, kw_only=True):
    """A conversation by its name."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


class CreateResponse(Struct, frozen=True, kw_only=True):
    """A request for a response."""

    input: str | tuple[InputItem, ...] | None = None
    model: Short | None = None
    instructions: str | None = None
    previous_response_id: Short | None = None
    conversation: Annotated[str, Meta(min_length=1, max_length=256)] | ConversationName | None = (
        None
    )
    """A name of the client's choice; requests under one name are one conversation."""
    conversation_history: tuple[InputItem, ...] | None = None
    """What was said before, for clients that keep it themselves."""
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    tools: Annotated[tuple[ResponseTool, ...], Meta(max_length=128)] | None = None
    tool_choice: Short | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    metadata: Metadata | None = None
    user: Short | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: tuple[Short, ...] | None = None
    service_tier: Literal["auto", "default", "flex", "priority", "scale"] | None = None
    safety_identifier: Name | None = None
    prompt_cache_key: Short | None = None
    prompt: dict[str, Any] | None = None


class GetQuery(Struct, frozen=True, kw_only=True):
    """How a response is to be shown."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """The number of the last event that the client has."""


class InputItemsQuery(Struct, frozen=True, kw_only=True):
    """Which input items."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: Short | None = None


class InputItemList(Struct, frozen=True, kw_only=True):
    """What was put into a response."""

    object: Literal["list"] = "list"
    data: tuple[Item, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Struct, frozen=True, kw_only=True):
    """A response that is no more."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True
