"""What a request wants of its turn, and how the response repeats it."""

import re
from typing import Any

from msgspec import Struct, to_builtins

from hermes.domain.turn import ClientTool, TurnOptions
from hermes.entry.http.api.conversation import (
    ToolFunction,
    bad_value,
    client_tools,
    named_function,
    response_schema,
    tool_choice,
)
from hermes.entry.http.api.responses_wire import CreateResponse, ResponseTool, ToolChoice
from hermes.streaming.wire.response_types import (
    ConversationRef,
    FunctionTool,
    ReasoningEcho,
    ResponseResource,
    TextEcho,
)

__all__ = ["Origin", "base_resource", "conversation_name", "turn_options"]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")


class Origin(Struct, frozen=True, kw_only=True):
    """What a response has that its request does not say."""

    id: str
    model: str
    """The agent that answers."""
    at: float


def conversation_name(body: CreateResponse) -> str | None:
    """Return the name of the conversation, if the request has one."""
    given = body.conversation
    name = given if given is None or isinstance(given, str) else given.id
    if name is not None and _CONTROL.search(name):
        raise bad_value("The name of a conversation has no control characters.", "conversation")
    return name


def turn_options(body: CreateResponse) -> TurnOptions:
    """Check the wishes of a request and put them into our words."""
    if body.prompt is not None:
        raise bad_value("Stored prompts are not supported. Use `instructions`.", "prompt")
    tools = client_tools((tool.type, "name", _function(tool)) for tool in body.tools or ())
    allowed = _allowed(body.tool_choice)
    wanted = body.text.format if body.text else None
    return TurnOptions(
        instructions=body.instructions or "",
        client_tools=tuple(tool for tool in tools if allowed is None or tool.name in allowed),
        tool_choice=_tool_choice(body.tool_choice, tools),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        reasoning_effort=_effort(body),
        response_schema=response_schema(
            wanted.type if wanted else None, wanted.schema if wanted else None, "text.format"
        ),
    )


def base_resource(body: CreateResponse, origin: Origin) -> ResponseResource:
    """Return the response before anything has happened."""
    name, reasoning = conversation_name(body), body.reasoning
    choice = body.tool_choice
    return ResponseResource(
        id=origin.id,
        created_at=int(origin.at),
        status="queued" if body.background else "in_progress",
        model=origin.model,
        previous_response_id=body.previous_response_id,
        instructions=body.instructions,
        tools=tuple(_tool_echo(tool) for tool in body.tools or ()),
        tool_choice=_choice_echo(choice) if isinstance(choice, ToolChoice) else choice or "auto",
        truncation=body.truncation or "disabled",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=_text_echo(body),
        top_p=_number(body.top_p, 1.0),
        presence_penalty=_number(body.presence_penalty, 0.0),
        frequency_penalty=_number(body.frequency_penalty, 0.0),
        top_logprobs=body.top_logprobs or 0,
        temperature=_number(body.temperature, 1.0),
        reasoning=ReasoningEcho(effort=reasoning.effort, summary=reasoning.summary)
        if reasoning
        else None,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        store=body.store is not False,
        background=bool(body.background),
        service_tier="default",
        metadata=body.metadata or {},
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
        user=body.user,
        conversation=ConversationRef(id=name) if name else None,
    )


def _tool_choice(choice: str | ToolChoice | None, tools: tuple[ClientTool, ...]) -> str | None:
    return _named_choice(choice, tools) if isinstance(choice, ToolChoice) else tool_choice(choice)


def _named_choice(choice: ToolChoice, tools: tuple[ClientTool, ...]) -> str | None:
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


def _tool_echo(tool: ResponseTool) -> FunctionTool:
    return FunctionTool(
        name=tool.name or "",
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
    )


def _choice_echo(choice: ToolChoice) -> dict[str, Any]:
    if choice.type == "allowed_tools":
        tools = to_builtins(choice.tools or ())
        return {"type": choice.type, "mode": choice.mode or "auto", "tools": tools}
    return {"type": choice.type, "name": choice.name}


def _text_echo(body: CreateResponse) -> TextEcho:
    options = body.text
    if options is None:
        return TextEcho()
    verbosity, wanted = options.verbosity or "medium", options.format
    if wanted is None or wanted.type != "json_schema":
        return TextEcho(format={"type": wanted.type if wanted else "text"}, verbosity=verbosity)
    echo = {
        "type": wanted.type,
        "name": wanted.name or "answer",
        "description": wanted.description,
        "schema": wanted.schema,
        "strict": bool(wanted.strict),
    }
    return TextEcho(format=echo, verbosity=verbosity)


def _number(value: float | None, default: float) -> float:
    return default if value is None else value
