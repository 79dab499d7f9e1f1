"""How runs look from outside."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from hermes.domain.approvals import Approval
from hermes.domain.runs import Run, RunState
from hermes.domain.turn import ClientTool
from hermes.entry.http.api.approvals import ApprovalView, approval_view
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItem,
    ToolFunction,
    bad_value,
    client_tools,
    read_items,
)
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.frames import error_fields, tool_call_fields, usage_fields

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


class RunTool(Struct, frozen=True, kw_only=True):
    """A function of the client, in the form of chat completions or of responses."""

    type: str = "function"
    function: ToolFunction | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


def conversation(given: str | Sequence[InputItem], before: Sequence[InputItem]) -> Conversation:
    """Take an input apart, and what was said before it; 400 if they make no conversation."""
    try:
        return read_items(("conversation_history", before), ("input", given))
    except Problem as problem:
        raise bad_value(problem.message, "input") from problem


def tools_of(tools: Sequence[RunTool]) -> tuple[ClientTool, ...]:
    """Check the tools that a client brings."""
    return client_tools((tool.type, "function.name", _function(tool)) for tool in tools)


def _function(tool: RunTool) -> ToolFunction | None:
    if tool.function is not None or tool.name is None:
        return tool.function
    return ToolFunction(name=tool.name, description=tool.description, parameters=tool.parameters)
