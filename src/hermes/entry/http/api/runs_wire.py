"""How runs look from outside."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hermes.control.runs.request import RunRequest
from hermes.domain.approvals import Approval
from hermes.domain.ids import new_id
from hermes.domain.runs import Run, RunKind, RunState, SessionChoice
from hermes.domain.turn import ClientResult, ClientTool, TurnOptions
from hermes.entry.http.access import instructions_for, owns_session
from hermes.entry.http.api.approvals import ApprovalView, approval_view
from hermes.entry.http.api.chat_input import (
    Conversation,
    client_tools,
    history_of,
    read_conversation,
)
from hermes.entry.http.api.chat_wire import (
    CallIn,
    ChatMessage,
    ContentPart,
    FunctionIn,
    ImageUrl,
    ToolFunction,
    ToolIn,
)
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem
from hermes.entry.http.media import picture
from hermes.streaming.wire.frames import error_fields, tool_call_fields, usage_fields

__all__ = [
    "InputItem",
    "RunList",
    "RunTool",
    "RunView",
    "conversation",
    "request_for",
    "run_view",
    "tools_of",
]


STATUS = {
    RunState.QUEUED: "queued",
    RunState.RUNNING: "running",
    RunState.WAITING: "waiting_for_approval",
    RunState.COMPLETED: "completed",
    RunState.INCOMPLETE: "completed",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}
_LAST_EVENT = {
    RunState.RUNNING: "run.started",
    RunState.WAITING: "approval.request",
    RunState.COMPLETED: "run.completed",
    RunState.INCOMPLETE: "run.completed",
    RunState.FAILED: "run.failed",
    RunState.CANCELLED: "run.cancelled",
}


class RunView(Struct, frozen=True, kw_only=True):
    """One run."""

    object: str = "hermes.run"
    run_id: str
    kind: str
    """By which endpoint it came in: `run`, `chat`, `response` or `session`."""
    status: str
    """`queued`, `running`, `waiting_for_approval`, `completed`, `failed` or `cancelled`."""
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str | None
    """The last event that changed its status."""
    previous_run_id: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    output: str | UnsetType = UNSET
    incomplete: bool | UnsetType = UNSET
    """True if the output was cut off."""
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    """Calls of its own tools that the client has to carry out."""
    usage: dict[str, Any] | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET
    pending_approvals: tuple[ApprovalView, ...] | UnsetType = UNSET


class RunList(Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    object: str = "list"
    data: tuple[RunView, ...]
    limit: int
    offset: int
    has_more: bool


def run_view(call: Call[Any, Any], run: Run, pending: Sequence[Approval] = ()) -> RunView:
    """Return a run as clients see it."""
    names = {card.agent_id: card.name for card in call.parts.agents}
    fields: dict[str, Any] = {}
    if run.previous_id is not None:
        fields["previous_run_id"] = run.previous_id
    if isinstance(metadata := run.request.get("metadata"), dict) and metadata:
        fields["metadata"] = metadata
    if pending:
        fields["pending_approvals"] = tuple(approval_view(call, each) for each in pending)
    return RunView(
        run_id=run.id,
        kind=run.kind.value,
        status=STATUS[run.state],
        created_at=run.created_at,
        updated_at=run.updated_at,
        session_id=run.session_id,
        model=names.get(run.agent_id, run.agent_id),
        last_event=_LAST_EVENT.get(run.state),
        **fields,
        **_ended(run),
    )


def _ended(run: Run) -> dict[str, Any]:
    outcome = run.outcome
    if outcome is None:
        return {}
    fields: dict[str, Any] = {"usage": usage_fields(outcome.usage, outcome.cost_usd)}
    if outcome.state in (RunState.COMPLETED, RunState.INCOMPLETE):
        fields["output"] = outcome.text
    if outcome.state is RunState.INCOMPLETE:
        fields["incomplete"] = True
    if outcome.state is RunState.FAILED:
        fields["error"] = error_fields(outcome.error)
    if outcome.handed:
        fields["tool_calls"] = [tool_call_fields(each) for each in outcome.handed]
    return fields


PARTS = frozenset({"text", "input_text", "image_url", "input_image"})
CallId = Annotated[str, Meta(min_length=1, max_length=256)]


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a `function_call`, a `function_call_output`, or a part of a user message."""

    type: str = "message"
    role: str | None = None
    content: str | list[ContentPart] | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: CallId | None = None
    call_id: CallId | None = None
    name: str | None = None
    arguments: str = ""
    output: str | list[ContentPart] | None = None
    text: str | None = None
    image_url: ImageUrl | str | None = None


class RunTool(Struct, frozen=True, kw_only=True):
    """A function of the client, in the form of chat completions or of responses."""

    type: str = "function"
    function: ToolFunction | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


def conversation(given: str | Sequence[InputItem], before: Sequence[InputItem]) -> Conversation:
    """Take an input apart, and what was said before it; 400 if they make no conversation."""
    items = (InputItem(role="user", content=given),) if isinstance(given, str) else given
    try:
        return read_conversation(list(_messages([*before, *items])))
    except Problem as problem:
        raise Problem(400, problem.message, code=problem.problem_code, param="input") from problem


def tools_of(tools: Sequence[RunTool]) -> tuple[ClientTool, ...]:
    """Check the tools that a client brings."""
    return client_tools([_tool(tool) for tool in tools])


def _tool(tool: RunTool) -> ToolIn:
    function = tool.function
    if function is None and tool.name is not None:
        function = ToolFunction(
            name=tool.name, description=tool.description, parameters=tool.parameters
        )
    return ToolIn(type=tool.type, function=function)


def _messages(items: Sequence[InputItem]) -> Iterator[ChatMessage]:
    calls: list[CallIn] = []
    for item in items:
        if item.type == "function_call":
            calls.append(_call(item))
            continue
        if calls:
            yield ChatMessage(role="assistant", tool_calls=calls)
            calls = []
        if (message := _message(item)) is not None:
            yield message
    if calls:
        yield ChatMessage(role="assistant", tool_calls=calls)


def _call(item: InputItem) -> CallIn:
    if item.call_id is None or item.name is None:
        raise _bad("A function_call needs `call_id` and `name`.")
    return CallIn(id=item.call_id, function=FunctionIn(name=item.name, arguments=item.arguments))


def _message(item: InputItem) -> ChatMessage | None:
    if item.type == "reasoning":
        return None
    if item.type in PARTS:
        part = ContentPart(type=item.type, text=item.text, image_url=item.image_url)
        return ChatMessage(role="user", content=[part])
    if item.type == "function_call_output":
        return ChatMessage(role="tool", tool_call_id=item.call_id, content=item.output)
    if item.type != "message" or item.role is None:
        raise _bad("An item is a message with a role, a function_call or a function_call_output.")
    return ChatMessage(
        role=item.role,
        content=item.content,
        tool_calls=item.tool_calls,
        tool_call_id=item.tool_call_id,
    )


def _bad(message: str) -> Problem:
    return Problem(400, message, code="invalid_value", param="input")


async def request_for(
    call: Call[Any, Any],
    agent_id: str,
    choice: SessionChoice,
    talk: Conversation,
    options: TurnOptions,
) -> RunRequest:
    """Return the request for one turn; results of client tools find their session."""
    parts, results = call.parts, talk.results
    if results and choice == SessionChoice():
        choice, results = await _waiting(call, agent_id, results)
    new = choice.session_id is None and choice.after_run is None
    if choice.session_id is not None:
        told = await instructions_for(parts.ledger, choice.session_id, options.instructions)
        options = replace(options, instructions=told)
    pictures = [await picture(each.url, parts.media, each.param) for each in talk.pictures]
    return RunRequest(
        id=new_id("run"),
        kind=RunKind.SESSION,
        key_id=call.caller.key_id,
        agent_id=agent_id,
        choice=choice,
        text=talk.text,
        attachments=tuple(pictures),
        results=results,
        options=replace(options, title=choice != SessionChoice()),
        history=await history_of(talk.earlier, parts.media) if new else (),
        idempotency_key=call.headers.idempotency_key,
        fingerprint=call.fingerprint,
    )


async def _waiting(
    call: Call[Any, Any], agent_id: str, results: tuple[ClientResult, ...]
) -> tuple[SessionChoice, tuple[ClientResult, ...]]:
    """Return the session in which the calls wait; without one they are part of the history."""
    ledger = call.parts.ledger
    waiting = {await ledger.handed_call(result.call_id) for result in results}
    session = await ledger.session(waiting.pop() or "") if len(waiting) == 1 else None
    if session is None or session.agent_id != agent_id or not owns_session(call.caller, session):
        return SessionChoice(), ()
    return SessionChoice(session_id=session.id), results
