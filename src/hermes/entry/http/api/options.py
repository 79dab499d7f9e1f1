"""Options of a request, read once for chat, responses, runs and session chats.

All four take the same fields, under the names that chat completions and responses gave them.
What a request says about sampling goes to the model unchanged; which tools may be called, and how
many calls, is seen to by the turn loop. What cannot be honoured and would change the answer is
refused with 400 and the name of the field.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from hermes.control.runs.runs import RunRequest
from hermes.domain.ids import new_id
from hermes.domain.inbound import RouteTerms
from hermes.domain.runs import SessionChoice
from hermes.domain.turn import JSON_OBJECT, JSON_SCHEMA, SAMPLING, ClientTool, Sampling, TurnOptions
from hermes.entry.http.access import api_facts, kept_instructions, waiting_session
from hermes.entry.http.api.conversation import (
    Conversation,
    Short,
    bad_value,
    joined,
    stored,
    unsupported,
)
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.response_resource import SERVER

Name = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
CHOICES = ("auto", "none", "required")
LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (
    LOGPROBS,
    *("reasoning.encrypted_content", "message.input_image.image_url"),
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("code_interpreter_call.outputs", "computer_call_output.output.image_url"),
)
"""What OpenAI has; all but the first ask for parts that the items of the agent do not have."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_REFUSED: Mapping[str, str] = {
    "functions": "`functions` is not supported. Use `tools`.",
    "function_call": "`function_call` is not supported. Use `tool_choice`.",
    "audio": "Answers are text: audio is not supported.",
    "web_search_options": "The agent searches with tools of its own; this is not supported.",
    "prompt": "Stored prompts are not supported. Use `instructions`.",
}
_NEUTRAL = ("stop", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs")
"""What asks for nothing if it is zero or empty; many clients send these always."""
_IDLE: Mapping[str, tuple[float, ...]] = {
    "min_p": (0,),
    "top_k": (0, -1),
    "repetition_penalty": (1,),
}
"""What switches something off that is not there where the provider has no such field."""
_HINTS = frozenset({"service_tier", "verbosity", "parallel_tool_calls", "prediction"})
"""What does not change the answer where the provider has no such field, or is seen to here."""


class ToolFunction(Struct, frozen=True, kw_only=True):
    """A function that the client carries out itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON Schema of the arguments."""
    strict: bool | None = None
    """Whether the arguments have to follow the schema to the letter."""


class ToolNames(Struct, frozen=True, kw_only=True):
    """Tools by their names."""

    tool_names: tuple[Name, ...] = ()


class ToolIn(Struct, frozen=True, kw_only=True):
    """A function of the client, or, as `mcp` server `hermes`, the agent's own tools.

    The function is described in `function`, as in chat completions, or in the tool itself.
    """

    type: Short = "function"
    function: ToolFunction | None = None
    name: Short | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    server_label: Short | None = None
    allowed_tools: tuple[Name, ...] | ToolNames | None = None
    require_approval: Any = None
    """Has to be `never`, or not there: the agent's own rules say which calls ask a person."""


class NamedFunction(Struct, frozen=True, kw_only=True):
    """Which function."""

    name: Name | None = None


class AllowedTool(Struct, frozen=True, kw_only=True):
    """A tool that may be used: a function, or of the `mcp` server `hermes` one tool or all."""

    type: Short = "function"
    name: Name | None = None
    function: NamedFunction | None = None
    server_label: Short | None = None


class AllowedTools(Struct, frozen=True, kw_only=True):
    """The tools that may be used, as chat completions name them."""

    mode: Short | None = None
    tools: tuple[AllowedTool, ...] | None = None


class ToolChoice(Struct, frozen=True, kw_only=True):
    """The function that has to be called first, or the only tools that may be."""

    type: Short = "function"
    name: Name | None = None
    function: NamedFunction | None = None
    mode: Short | None = None
    tools: tuple[AllowedTool, ...] | None = None
    allowed_tools: AllowedTools | None = None


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A schema for the answer."""

    name: Name | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True, kw_only=True):
    """`text`, `json_object` or `json_schema`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class TextFormat(JsonSchema, frozen=True, kw_only=True):
    """What the text has to look like."""

    type: Short = "json_schema"


class TextOptions(Struct, frozen=True, kw_only=True):
    """How the text is wanted."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    """How much thought is wanted."""

    effort: Short | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class AnswerOptions(Sampling, frozen=True, kw_only=True):
    """What every request for an answer may carry."""

    model: Short | None = None
    """The agent that answers; the default one if there is no name."""
    tools: Annotated[tuple[ToolIn, ...], Meta(max_length=128)] | None = None
    tool_choice: Short | ToolChoice | None = None
    max_tool_calls: Count | None = None
    """After so many tool calls the agent has to answer."""
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    max_output_tokens: Count | None = None
    response_format: ResponseFormat | None = None
    text: TextOptions | None = None
    """The same, and `verbosity`, as responses have it."""
    reasoning_effort: Literal[_EFFORTS] | None = None  # type: ignore[valid-type]
    reasoning: ReasoningOptions | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None
    """The person behind the request; conversations of one are not continued for another."""
    metadata: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    safety_identifier: Name | None = None
    """Stands for `user` if that is not given."""
    n: int | None = None
    """Has to be 1."""
    modalities: tuple[Short, ...] | None = None
    """Has to be `text`."""
    functions: list[Any] | None = None
    """Not supported: use `tools`."""
    function_call: Any = None
    """Not supported: use `tool_choice`."""
    audio: Any = None
    """Not supported."""
    web_search_options: Any = None
    """Not supported."""
    prompt: dict[str, Any] | None = None
    """Not supported: use `instructions`."""
    include: tuple[Short, ...] | None = None
    """`message.output_text.logprobs` asks for `logprobs`; what OpenAI has beside that asks for
    nothing here."""


def turn_options(body: AnswerOptions, instructions: str = "") -> TurnOptions:
    """Return what a request wants of its turn; 400 for what cannot be had."""
    _check_supported(body)
    given = [tool for tool in body.tools or () if tool.type != "mcp"]
    tools, choice = client_tools(given), body.tool_choice
    allowed, own = _allowed(choice), _own_tools(body)
    if allowed is not None:
        own = _own_allowed(allowed, own)
    return TurnOptions(
        instructions=instructions,
        client_tools=tuple(
            tool for tool in tools if allowed is None or tool.name in _names(allowed)
        ),
        own_tools=own,
        tool_choice=_tool_choice(choice, tools),
        max_tool_calls=body.max_tool_calls,
        max_tokens=body.max_output_tokens or body.max_completion_tokens or body.max_tokens,
        reasoning_effort=_effort(body),
        **_schema(body),
        **_sampling(body),
    )


async def check_taken(
    call: Call[Any, Any], agent_id: str, session_id: str | None, options: TurnOptions
) -> None:
    """Raise 400 for what was asked for and the agent's model has no field for."""
    given = {name: getattr(options, name) for name in SAMPLING}
    asked = [name for name, value in given.items() if value not in (None, *_IDLE.get(name, ()))]
    asked += [JSON_OBJECT] if options.json_object else []
    asked += [JSON_SCHEMA] if options.response_schema is not None else []
    if not asked:
        return
    model = await call.context.model(agent_id, session_id, _terms(call, agent_id))
    for name in asked:
        if name not in model.takes and name not in _HINTS:
            raise _not_taken(name, call.body)
    if (options.temperature or 0) > model.max_temperature:
        text = f"The agent's model takes a `temperature` of at most {model.max_temperature:g}."
        raise unsupported(text, "temperature")
    tiers = model.service_tiers
    if options.service_tier and tiers is not None and options.service_tier not in tiers:
        text = f"The `service_tier` of the agent's model is one of {', '.join(tiers)}."
        raise unsupported(text, "service_tier")


def _not_taken(name: str, body: AnswerOptions) -> Problem:
    text = f"The provider of the agent's model does not take `{name}`."
    if name not in (JSON_OBJECT, JSON_SCHEMA):
        return unsupported(text, name)
    instead = f"`{JSON_SCHEMA}` with a schema" if name == JSON_OBJECT else "plain text"
    param = "response_format" if body.response_format is not None else "text.format"
    return unsupported(f"{text} Ask for {instead} instead.", param)


def _check_supported(body: AnswerOptions) -> None:
    if body.n not in (None, 1):
        raise bad_value("Only one answer at a time is given: `n` has to be 1.", "n")
    if set(body.modalities or ()) - {"text"}:
        raise bad_value(_REFUSED["audio"], "modalities")
    for name in body.include or ():
        if name not in _INCLUDED:
            known = ", ".join(f"`{each}`" for each in _INCLUDED)
            raise bad_value(f"There is no `{name}` to include: only {known}.", "include")
    for name, message in _REFUSED.items():
        if getattr(body, name):
            raise bad_value(message, name)


def _sampling(body: AnswerOptions) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in SAMPLING}
    if body.top_logprobs and body.logprobs is False:
        raise bad_value("`top_logprobs` needs `logprobs`.", "top_logprobs")
    if body.top_logprobs or LOGPROBS in (body.include or ()):
        given["logprobs"] = True
    if body.text is not None:
        given["verbosity"] = body.text.verbosity or body.verbosity
    given |= {name: given[name] or None for name in (*_NEUTRAL, "top_logprobs")}
    given["parallel_tool_calls"] = False if body.parallel_tool_calls is False else None
    return given


def _effort(body: AnswerOptions) -> str | None:
    effort = body.reasoning.effort if body.reasoning else None
    if effort not in (None, *_EFFORTS):
        raise bad_value(f"`effort` is one of {', '.join(_EFFORTS)}.", "reasoning.effort")
    return effort or body.reasoning_effort


def user_of(body: AnswerOptions) -> str | None:
    """Return the person behind a request, as its program names them."""
    return body.user or body.safety_identifier


def _terms(call: Call[Any, Any], agent_id: str) -> RouteTerms | None:
    """Return how routes want the agent, and which model an alias stands for."""
    routed = call.context.router.terms(api_facts(call), agent_id)
    agent = call.context.agents().get((call.body.model or "").removeprefix("hermes/"))
    if agent is None or agent.terms is None:
        return routed
    chosen = agent.terms
    return replace(routed or chosen, model=chosen.model, provider=chosen.provider)


async def run_request(
    call: Call[Any, Any],
    agent_id: str,
    choice: SessionChoice,
    talk: Conversation,
    options: TurnOptions,
    **fields: Any,
) -> RunRequest:
    """Return the request for one turn; results of client tools find their session."""
    if talk.results and choice == SessionChoice():
        ids = (result.call_id for result in talk.results)
        session = await waiting_session(call, agent_id, ids)
        if session is None:
            talk = replace(talk, results=())
        else:
            choice = SessionChoice(session_id=session.id)
    goes_on = choice.session_id is not None and not choice.opened
    if goes_on or choice.after_run is not None:
        talk = replace(talk, earlier=())
    known = fields.pop("session_id", None) or (choice.session_id if goes_on else None)
    options = await with_own_tools(call, agent_id, known, options)
    await check_taken(call, agent_id, known, options)
    if known is not None:
        kept = await kept_instructions(call.context.ledger, known)
        options = replace(options, instructions=joined([kept, options.instructions]))
    asked = {
        "metadata": call.body.metadata,
        "user": user_of(call.body),
        **fields.pop("request", {}),
    }
    given = {
        "id": new_id("run"),
        "user": user_of(call.body),
        "request": {name: value for name, value in asked.items() if value not in (None, {})},
        "options": replace(options, title=fields.pop("title", choice != SessionChoice())),
        **asdict(await stored(talk, call.context.media)),
        **fields,
    }
    return RunRequest(
        key_id=call.caller.key_id,
        agent_id=agent_id,
        choice=choice,
        idempotency_key=call.headers.idempotency_key,
        fingerprint=call.fingerprint,
        routed=_terms(call, agent_id),
        **given,
    )


# -- the shape of the answer ---------------------------------------------------------


def _schema(body: AnswerOptions) -> dict[str, Any]:
    """Return the form that the answer has to have: a schema and its name, or nothing."""
    kind: str
    wanted: JsonSchema | None
    if body.response_format is not None:
        kind, wanted = body.response_format.type, body.response_format.json_schema
        param = "response_format.json_schema"
    elif body.text is not None and body.text.format is not None:
        kind, wanted, param = body.text.format.type, body.text.format, "text.format"
    else:
        return {}
    if kind == "text":
        return {}
    if kind == JSON_OBJECT:
        return {"json_object": True}
    if kind != JSON_SCHEMA:
        raise bad_value("`type` is text, json_object or json_schema.", f"{param}.type")
    if wanted is None or wanted.schema is None:
        raise bad_value("The schema is missing.", f"{param}.schema")
    named = {"schema_name": wanted.name} if wanted.name else {}
    if wanted.description:
        named["schema_description"] = wanted.description
    return {"response_schema": wanted.schema, "schema_strict": wanted.strict, **named}


# -- tools -----------------------------------------------------------------------------


def client_tools(given: Iterable[ToolIn]) -> tuple[ClientTool, ...]:
    """Check the tools that the client brings."""
    checked: dict[str, ClientTool] = {}
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        if tool.type != "function":
            text = f"Tools of type `{tool.type}` are not supported: only functions of the client."
            raise bad_value(f"{text} The agent brings its own tools.", f"{where}.type")
        function, param = tool.function or tool, f"{where}.name"
        if tool.function is not None:
            param = f"{where}.function.name"
        name = function.name or ""
        if not _NAME.match(name) or name in CHOICES:
            text = "A function name is 1 to 64 letters, digits, underscores or hyphens"
            raise bad_value(f"{text}, and not one of {', '.join(CHOICES)}.", param)
        if name in checked:
            raise bad_value(f"There are two functions `{name}`.", param)
        checked[name] = ClientTool(
            name=name,
            description=function.description or "",
            parameters=function.parameters or {"type": "object", "properties": {}},
            strict=function.strict,
        )
    return tuple(checked.values())


def own_names(tool: ToolIn) -> tuple[str, ...] | None:
    """Return the agent's own tools that an `mcp` tool names; None: all."""
    allowed = tool.allowed_tools
    names = allowed.tool_names if isinstance(allowed, ToolNames) else allowed
    return None if names is None else tool_names(names)


def _own_tools(body: AnswerOptions) -> tuple[str, ...] | None:
    """Return which of the agent's own tools are wanted; None: all."""
    for number, tool in enumerate(body.tools or ()):
        if tool.type == "mcp":
            _check_server(tool.server_label, f"tools[{number}].server_label")
            if tool.require_approval not in (None, "never"):
                text = "The agent's own rules say which of its calls ask: leave it out, or `never`."
                raise unsupported(text, f"tools[{number}].require_approval")
            return own_names(tool)
    return None


def _check_server(label: str | None, param: str) -> None:
    if label != SERVER:
        raise bad_value(f"The only MCP server here is `{SERVER}`, the agent itself.", param)


def tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of own tools that a request allows; `none` stands for none."""
    return tuple(name for each in names if (name := each.strip()) and name != "none")


async def with_own_tools(
    call: Call[Any, Any], agent_id: str, session_id: str | None, options: TurnOptions
) -> TurnOptions:
    """Return options with the agent's own tools that a request names; 400 if there is none such.

    The name of a toolset stands for its tools, unless it is also that of a tool.
    """
    header = call.headers.tools
    names = options.own_tools if header is None else tool_names(header.split(","))
    if not names:
        return replace(options, own_tools=names)
    tools = await call.context.own_tools(agent_id, session_id, _terms(call, agent_id))
    sets: dict[str, list[str]] = {}
    for tool, toolset in sorted(tools.items()):
        sets.setdefault(toolset, []).append(tool)
    if unknown := [f"`{name}`" for name in names if name not in tools and name not in sets]:
        there = "; ".join(f"{name} ({', '.join(sets[name])})" for name in sorted(sets))
        text = f"The agent has no tool or toolset {', '.join(unknown)}. It has: {there or 'none'}."
        raise bad_value(text, "tools" if header is None else "X-Hermes-Tools")
    chosen = (tool for name in names for tool in ([name] if name in tools else sets[name]))
    return replace(options, own_tools=tuple(dict.fromkeys(chosen)))


def _tool_choice(choice: str | ToolChoice | None, tools: tuple[ClientTool, ...]) -> str | None:
    if not isinstance(choice, ToolChoice):
        if choice not in (None, *CHOICES):
            raise bad_value("`tool_choice` is auto, none, required or a function.", "tool_choice")
        return None if choice == "auto" else choice
    if choice.type == "allowed_tools":
        return _allowed_mode(choice, tools)
    if choice.type != "function":
        text = f"A tool choice of type `{choice.type}` is not supported."
        raise bad_value(text, "tool_choice.type")
    if choice.function is not None:
        return _named(choice.function.name, tools, "tool_choice.function.name")
    return _named(choice.name, tools, "tool_choice.name")


def _allowed_mode(choice: ToolChoice, tools: tuple[ClientTool, ...]) -> str | None:
    place = "tool_choice.allowed_tools" if choice.allowed_tools else "tool_choice"
    mode = (choice.allowed_tools or choice).mode
    if mode not in (None, "auto", "required"):
        raise bad_value("`mode` is auto or required.", f"{place}.mode")
    for tool in _allowed(choice) or ():
        if tool.type == "mcp":
            _check_server(tool.server_label, f"{place}.tools")
        else:
            _named(name_of(tool), tools, f"{place}.tools")
    return "required" if mode == "required" else None


def _named(name: str | None, tools: Iterable[ClientTool], param: str) -> str:
    """Check that a function the client chose is among its tools."""
    if name is None or all(tool.name != name for tool in tools):
        raise bad_value(f"There is no function `{name}` in `tools`.", param)
    return name


def _allowed(choice: str | ToolChoice | None) -> tuple[AllowedTool, ...] | None:
    """Return the only tools that may be used; None for all of them."""
    if not isinstance(choice, ToolChoice) or choice.type != "allowed_tools":
        return None
    return (choice.allowed_tools or choice).tools or ()


def _own_allowed(
    allowed: Iterable[AllowedTool], wanted: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return which of the agent's own tools are left if only these tools are allowed."""
    named = [tool.name for tool in allowed if tool.type == "mcp"]
    if None in named:
        return wanted
    return tuple(name for name in named if name and (wanted is None or name in wanted))


def _names(allowed: Iterable[AllowedTool]) -> frozenset[str | None]:
    return frozenset(name_of(tool) for tool in allowed if tool.type != "mcp")


def name_of(tool: AllowedTool | ToolChoice) -> str | None:
    return tool.function.name if tool.function is not None else tool.name
