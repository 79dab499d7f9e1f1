"""Requests to `/v1/responses`: checked, and repeated in the response and its list of input."""

import re
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.json import encode

from hermes.domain.turn import ClientTool, TurnOptions
from hermes.entry.http.api.conversation import (
    PICTURES,
    ContentPart,
    ImageUrl,
    InputItem,
    Short,
    ToolFunction,
    bad_value,
    client_tools,
    named_function,
    response_schema,
    tool_choice,
    tool_names,
)
from hermes.streaming.wire.responses import (
    SERVER,
    ConversationRef,
    FunctionCallItem,
    FunctionCallOutputItem,
    FunctionTool,
    InputImage,
    InputText,
    Item,
    McpCallError,
    McpCallItem,
    McpTool,
    MessageItem,
    OutputText,
    ReasoningEcho,
    ResponseResource,
    Role,
    TextEcho,
    ToolErrorText,
)

Name = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]


class ToolNames(Struct, frozen=True, kw_only=True):
    """Tools by their names."""

    tool_names: tuple[Name, ...] = ()


class ResponseTool(Struct, frozen=True, kw_only=True):
    """A function of the client, or, as `mcp` server `hermes`, the agent's own tools."""

    type: Short
    name: Name | None = None
    server_label: Short | None = None
    allowed_tools: tuple[Name, ...] | ToolNames | None = None
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


_ROLES = get_args(Role)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")


def conversation_name(body: CreateResponse) -> str | None:
    given = body.conversation
    name = given if given is None or isinstance(given, str) else given.id
    if name is not None and _CONTROL.search(name):
        raise bad_value("The name of a conversation has no control characters.", "conversation")
    return name


def turn_options(body: CreateResponse) -> TurnOptions:
    if body.prompt is not None:
        raise bad_value("Stored prompts are not supported. Use `instructions`.", "prompt")
    given = [tool for tool in body.tools or () if tool.type != "mcp"]
    tools = client_tools((tool.type, "name", _function(tool)) for tool in given)
    allowed = _allowed(body.tool_choice)
    wanted = body.text.format if body.text else None
    return TurnOptions(
        instructions=body.instructions or "",
        client_tools=tuple(tool for tool in tools if allowed is None or tool.name in allowed),
        own_tools=_own_tools(body),
        tool_choice=_tool_choice(body.tool_choice, tools),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        reasoning_effort=_effort(body),
        response_schema=response_schema(
            wanted.type if wanted else None, wanted.schema if wanted else None, "text.format"
        ),
    )


def _own_tools(body: CreateResponse) -> tuple[str, ...] | None:
    """Return which of the agent's own tools are wanted; None: all."""
    for number, tool in enumerate(body.tools or ()):
        if tool.type != "mcp":
            continue
        if tool.server_label != SERVER:
            text = f"The only MCP server here is `{SERVER}`, the agent itself."
            raise bad_value(text, f"tools[{number}].server_label")
        return _mcp_tool(tool).allowed_tools
    return None


def _mcp_tool(tool: ResponseTool) -> McpTool:
    allowed = tool.allowed_tools
    names = allowed.tool_names if isinstance(allowed, ToolNames) else allowed
    return McpTool(allowed_tools=None if names is None else tool_names(names))


_ECHOED = (
    *("previous_response_id", "instructions", "truncation", "temperature", "top_p", "metadata"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "max_output_tokens"),
    *("max_tool_calls", "safety_identifier", "prompt_cache_key", "user"),
)
"""What the response repeats if it was asked for."""


def base_resource(
    body: CreateResponse, response_id: str, model: str, at: float
) -> ResponseResource:
    """Return the response before anything has happened."""
    name, choice = conversation_name(body), body.tool_choice
    given = {field: getattr(body, field) for field in _ECHOED}
    return ResponseResource(
        id=response_id,
        created_at=int(at),
        status="queued" if body.background else "in_progress",
        model=model,
        tools=tuple(
            _mcp_tool(tool) if tool.type == "mcp" else convert(to_builtins(tool), FunctionTool)
            for tool in body.tools or ()
        ),
        tool_choice=_choice_echo(choice) if isinstance(choice, ToolChoice) else choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=_text_echo(body.text),
        reasoning=convert(body.reasoning, ReasoningEcho | None, from_attributes=True),
        store=body.store is not False,
        background=bool(body.background),
        conversation=ConversationRef(id=name) if name else None,
        **{field: value for field, value in given.items() if value is not None},
    )


def _tool_choice(choice: str | ToolChoice | None, tools: tuple[ClientTool, ...]) -> str | None:
    if not isinstance(choice, ToolChoice):
        return tool_choice(choice)
    if choice.type == "allowed_tools":
        if choice.mode not in (None, "auto", "required"):
            raise bad_value("`mode` is auto or required.", "tool_choice.mode")
        for name in sorted(_allowed(choice) or ()):
            named_function(name, tools, "tool_choice.tools")
        return "required" if choice.mode == "required" else None
    if choice.type != "function":
        raise bad_value(
            f"A tool choice of type `{choice.type}` is not supported.", "tool_choice.type"
        )
    return named_function(choice.name, tools, "tool_choice.name")


def _allowed(choice: str | ToolChoice | None) -> frozenset[str] | None:
    """Return the functions that may be used; None for all of them."""
    if not isinstance(choice, ToolChoice) or choice.type != "allowed_tools":
        return None
    return frozenset(tool.name or "" for tool in choice.tools or ())


def _effort(body: CreateResponse) -> str | None:
    effort = body.reasoning.effort if body.reasoning else None
    if effort not in (None, *_EFFORTS):
        raise bad_value(f"`effort` is one of {', '.join(_EFFORTS)}.", "reasoning.effort")
    return effort


def _function(tool: ResponseTool) -> ToolFunction:
    return ToolFunction(
        name=tool.name or "", description=tool.description, parameters=tool.parameters
    )


def _choice_echo(choice: ToolChoice) -> dict[str, Any]:
    if choice.type == "allowed_tools":
        tools = to_builtins(choice.tools or ())
        return {"type": choice.type, "mode": choice.mode or "auto", "tools": tools}
    return {"type": choice.type, "name": choice.name}


def _text_echo(options: TextOptions | None) -> TextEcho:
    wanted = options.format if options else None
    echo: dict[str, Any] = {"type": wanted.type if wanted else "text"}
    if wanted is not None and wanted.type == "json_schema":
        echo |= {
            "name": wanted.name or "answer",
            "description": wanted.description,
            "schema": wanted.schema,
            "strict": bool(wanted.strict),
        }
    return TextEcho(format=echo, verbosity=(options and options.verbosity) or "medium")


def listed_input(body: CreateResponse, response_id: str) -> tuple[Item, ...]:
    """Return the items of a request under the ids they are listed with."""
    token = response_id.removeprefix("resp_")
    given = () if body.input is None else body.input
    items = (InputItem(role="user", content=given),) if isinstance(given, str) else given
    return tuple(
        _listed(item, f"{token}_in{number}")
        for number, item in enumerate(items)
        if item.type not in ("reasoning", "mcp_list_tools")
    )


def _listed(item: InputItem, token: str) -> Item:
    if item.type == "function_call":
        return FunctionCallItem(
            id=f"fc_{token}",
            call_id=item.call_id or "",
            name=item.name or "",
            arguments=item.arguments or "{}",
            status="completed",
        )
    if item.type == "mcp_call":
        return McpCallItem(
            id=f"mcp_{token}",
            name=item.name or "",
            arguments=item.arguments or "{}",
            output=item.output if isinstance(item.output, str) else None,
            error=_error(item.error),
            status="failed" if item.error else "completed",
        )
    if item.type == "function_call_output":
        given = item.output or ""
        return FunctionCallOutputItem(
            id=f"fco_{token}",
            call_id=item.call_id or "",
            output=given if isinstance(given, str) else tuple(map(_given_part, given)),
            status="completed",
        )
    content = item.content or ""
    parts = (ContentPart(type="text", text=content),) if isinstance(content, str) else content
    said = item.role == "assistant"
    return MessageItem(
        id=f"msg_{token}",
        status="completed",
        role=convert(item.role if item.role in _ROLES else "user", Role),
        content=tuple(
            OutputText(text=_text(part)) if said else _given_part(part) for part in parts
        ),
    )


def _error(given: Any) -> McpCallError | None:
    said = given if isinstance(given, str) else encode(given).decode()
    return McpCallError(content=(ToolErrorText(text=said),)) if given else None


def _given_part(part: ContentPart) -> InputText | InputImage:
    if part.type not in PICTURES:
        return InputText(text=_text(part))
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    inline = url is None or url[:5].lower() == "data:"
    return InputImage(image_url=None if inline else url, detail=part.detail or "auto")


def _text(part: ContentPart) -> str:
    return part.text or part.refusal or ""
