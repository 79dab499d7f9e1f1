"""Requests to `/v1/responses`, and the small answers."""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from hermes.domain.runs import Run, RunKind, SessionChoice
from hermes.domain.turn import ClientTool, TurnOptions
from hermes.entry.http.access import session_choice, session_key_of, waiting_session
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItem,
    Short,
    ToolFunction,
    bad_value,
    client_tools,
    named_function,
    response_schema,
    tool_choice,
)
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.responses import (
    ConversationRef,
    FunctionTool,
    Item,
    ReasoningEcho,
    ResponseResource,
    TextEcho,
)

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


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")


def conversation_name(body: CreateResponse) -> str | None:
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


_ECHOED: dict[str, Any] = {
    "previous_response_id": None,
    "instructions": None,
    "truncation": "disabled",
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
}
"""What the response repeats as it was asked for, and what it says if nothing was."""


def base_resource(
    body: CreateResponse, response_id: str, model: str, at: float
) -> ResponseResource:
    """Return the response before anything has happened."""
    name, reasoning, choice = conversation_name(body), body.reasoning, body.tool_choice
    given = {field: getattr(body, field) for field in _ECHOED}
    echo = {field: _ECHOED[field] if value is None else value for field, value in given.items()}
    return ResponseResource(
        id=response_id,
        created_at=int(at),
        status="queued" if body.background else "in_progress",
        model=model,
        tools=tuple(convert(to_builtins(tool), FunctionTool) for tool in body.tools or ()),
        tool_choice=_choice_echo(choice) if isinstance(choice, ToolChoice) else choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=_text_echo(body),
        reasoning=ReasoningEcho(effort=reasoning.effort, summary=reasoning.summary)
        if reasoning
        else None,
        store=body.store is not False,
        background=bool(body.background),
        service_tier="default",
        conversation=ConversationRef(id=name) if name else None,
        **echo,
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


CreateCall = Call[CreateResponse, None]


class ResponseSession(Struct, frozen=True, kw_only=True):
    """Where a response goes on, and what is new there."""

    choice: SessionChoice
    said: Conversation
    """What is new there."""
    session_id: str | None = None
    """The session, if it exists already."""
    own: bool = False
    """The session is there for this response and those that it goes on from."""
    named: bool = False
    """The client knows the conversation: it deserves a title."""


def response_missing(response_id: str, param: str | None = None) -> Problem:
    """Return what a client is told about a response that it cannot reach."""
    message = f"There is no response `{response_id}`."
    return Problem(404, message, code="response_not_found", param=param)


async def reached_response(call: Call[Any, Any], response_id: str, param: str | None = None) -> Run:
    """Return the run behind a stored response of the caller; 404 otherwise."""
    run = await call.context.runs.get(response_id)
    known = run is not None and run.kind is RunKind.RESPONSE and run.request.get("store", True)
    if run is None or not known or not call.caller.owns(run.key_id, run.agent_id):
        raise response_missing(response_id, param)
    return run


async def find_session(call: CreateCall, agent_id: str, said: Conversation) -> ResponseSession:
    """Return the session that the request continues."""
    body, ledger = call.body, call.context.ledger
    _only_one(call)
    if body.previous_response_id is not None:
        previous = await _previous(call, agent_id, body.previous_response_id)
        handed = previous.outcome.handed if previous.outcome else ()
        _check_results(said, {waiting.id for waiting in handed})
        place = _going_on(SessionChoice(after_run=previous.id), previous.session_id, said)
        return replace(place, own=bool(previous.request.get("own_session")))
    name = conversation_name(body)
    if name is not None:
        choice = SessionChoice(key=session_key_of(agent_id, call.caller.key_id, name))
    else:
        choice = await session_choice(call, agent_id)
    if choice == SessionChoice():
        return await _own_or_waiting(call, agent_id, said)
    session = await ledger.session_for_key(choice.key) if choice.key else None
    known = choice.session_id or (session.id if session else None)
    if known is None:
        return ResponseSession(choice=choice, said=replace(said, results=()), named=True)
    calls = [one.call_id for one in said.results if await ledger.handed_call(one.call_id) == known]
    _check_results(said, set(calls))
    return _going_on(choice, known, said)


def _only_one(call: CreateCall) -> None:
    body, headers = call.body, call.headers
    given = {
        "previous_response_id": body.previous_response_id,
        "conversation": body.conversation,
        "X-Hermes-Session-Id": headers.session_id,
        "X-Hermes-Session-Key": headers.session_key,
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        message = f"{names[0]} and {names[1]} cannot be used together."
        raise Problem(400, message, code="conflicting_parameters", param=names[1])


async def _previous(call: CreateCall, agent_id: str, response_id: str) -> Run:
    param = "previous_response_id"
    run = await reached_response(call, response_id, param)
    if run.agent_id != agent_id:
        message = f"Response `{response_id}` is from another agent than the one asked for."
        raise Problem(400, message, code="agent_mismatch", param="model")
    if run.outcome is None:
        message = f"Response `{response_id}` is still in progress."
        raise Problem(409, message, code="response_in_progress", param=param)
    return run


def _check_results(said: Conversation, waiting: set[str]) -> None:
    for result in said.results:
        if result.call_id not in waiting:
            message = f"No call `{result.call_id}` waits for its output there."
            raise Problem(400, message, code="tool_call_not_found", param="input")


def _going_on(choice: SessionChoice, session_id: str, said: Conversation) -> ResponseSession:
    if said.quotes_agent:
        message = "A conversation that is stored cannot be given further words of the agent."
        hint = "Send only what is new, or everything without naming a conversation."
        raise Problem(400, f"{message} {hint}", code="unsupported_value", param="input")
    return ResponseSession(choice=choice, session_id=session_id, said=said.continuing(), named=True)


async def _own_or_waiting(call: CreateCall, agent_id: str, said: Conversation) -> ResponseSession:
    """Go on where all the calls wait whose results came; else in a session of its own."""
    session = await waiting_session(call, agent_id, (one.call_id for one in said.results))
    if session is None:
        return ResponseSession(choice=SessionChoice(), said=replace(said, results=()), own=True)
    choice = SessionChoice(session_id=session.id)
    return ResponseSession(choice=choice, session_id=session.id, said=replace(said, earlier=()))
