"""`/v1/runs`: requests that are answered in the background, durably."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hermes.domain.approvals import Approval, ApprovalKind
from hermes.domain.keys import Action
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import Run, RunKind, RunOutcome, RunQuery, RunState, SessionChoice
from hermes.entry.http.access import (
    PageQuery,
    agent_name,
    check_agent,
    page_of,
    reached_approval,
    reached_run,
    reached_session,
    require_agent,
    retried_run,
    sees_everything,
    session_choice,
)
from hermes.entry.http.api.approvals import AnswerBody, ApprovalView, answer, approval_view
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItem,
    bad_value,
    joined,
    read_items,
)
from hermes.entry.http.api.options import AnswerOptions, run_request, turn_options
from hermes.entry.http.endpoint import (
    STARTS_RUN,
    Answer,
    Call,
    Events,
    JsonAnswer,
    Operations,
    StreamAnswer,
    TextAnswer,
)
from hermes.entry.http.errors import Problem
from hermes.entry.http.events import RunEvent
from hermes.entry.http.request import MAX_ID_DIGITS
from hermes.streaming.wire.frames import error_fields, handed_fields, usage_fields
from hermes.streaming.wire.runs import run_frame

operation = Operations("runs", Action.RUN)

RunStatus = Literal["queued", "running", "waiting_for_approval", "completed", "failed", "cancelled"]
STATUS: dict[RunState, RunStatus] = {
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

    object: Literal["hermes.run"] = "hermes.run"
    run_id: str
    kind: RunKind
    """By which endpoint it came in: `run`, `chat`, `response` or `session`."""
    status: RunStatus
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str | None
    """The last event that changed its status."""
    previous_run_id: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    user: str | UnsetType = UNSET
    """The person behind it, as the program that asked names them."""
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

    object: Literal["list"] = "list"
    data: tuple[RunView, ...]
    limit: int
    offset: int
    has_more: bool


def run_view(call: Call[Any, Any], run: Run, pending: Sequence[Approval] = ()) -> RunView:
    return RunView(
        run_id=run.id,
        kind=run.kind,
        status=STATUS[run.state],
        created_at=run.created_at,
        updated_at=run.updated_at,
        session_id=run.session_id,
        model=agent_name(call, run.agent_id),
        last_event=_LAST_EVENT.get(run.state),
        previous_run_id=run.previous_id or UNSET,
        metadata=run.request.get("metadata") or UNSET,
        user=run.request.get("user") or UNSET,
        pending_approvals=tuple(approval_view(call, each) for each in pending) or UNSET,
        **({} if run.outcome is None else _ended(run.outcome)),
    )


def _ended(outcome: RunOutcome) -> dict[str, Any]:
    incomplete, failed = outcome.state is RunState.INCOMPLETE, outcome.state is RunState.FAILED
    return {
        "usage": usage_fields(outcome),
        "output": outcome.text if incomplete or outcome.state is RunState.COMPLETED else UNSET,
        "incomplete": incomplete or UNSET,
        "error": error_fields(outcome.error) if failed else UNSET,
        **handed_fields(outcome.handed),
    }


def conversation(
    given: str | Sequence[InputItem], before: Sequence[InputItem] = ()
) -> Conversation:
    """Take an input apart, and what was said before it; 400 if they make no conversation."""
    try:
        return read_items(("conversation_history", before), ("input", given))
    except Problem as problem:
        raise bad_value(problem.message, "input") from problem


class RunBody(AnswerOptions, frozen=True, kw_only=True):
    """What is asked."""

    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(max_length=2000)]
    """Text, or messages of which the last ones are the question."""
    instructions: Annotated[str, Meta(max_length=262_144)] | None = None
    """For this run only."""
    session_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """The session to go on in."""
    previous_response_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """The run, or the response, to go on from."""
    conversation_history: Annotated[tuple[InputItem, ...], Meta(max_length=2000)] = ()
    """What was said before, if a new session is opened."""


class StartedBody(Struct, frozen=True, kw_only=True):
    """A run that was accepted."""

    run_id: str
    status: Literal["started"] = "started"
    session_id: str


@operation("POST /v1/runs", *STARTS_RUN, answers={202: StartedBody})
async def start_run(call: Call[RunBody, None]) -> Answer:
    """Start a run in the background."""
    run = await retried_run(call)
    if run is None:
        agent_id = await _agent_id(call)
        talk = conversation(call.body.input, call.body.conversation_history)
        choice = await _choice(call, agent_id)
        run = await started(call, agent_id, choice, talk, call.body.instructions, RunKind.RUN)
    return JsonAnswer(
        value=StartedBody(run_id=run.id, session_id=run.session_id),
        status=202,
        headers={"X-Hermes-Session-Id": run.session_id, "Location": f"/v1/runs/{run.id}"},
    )


async def _agent_id(call: Call[RunBody, None]) -> str:
    """Return the agent that is named, or else the one of the session to go on in."""
    session_id = call.body.session_id or call.headers.session_id
    if call.body.model or session_id is None:
        return (await require_agent(call, call.body.model)).agent_id
    session = await reached_session(call, session_id, "X-Hermes-Session-Id")
    return session.agent_id


async def _choice(call: Call[RunBody, None], agent_id: str) -> SessionChoice:
    body, headers = call.body, call.headers
    if body.session_id is not None:
        if headers.session_id not in (None, body.session_id):
            message = "`session_id` and X-Hermes-Session-Id differ."
            raise Problem(400, message, code="conflicting_sessions", param="session_id")
        headers = replace(headers, session_id=body.session_id)
    choice = await session_choice(call, agent_id, headers)
    if body.previous_response_id is None:
        return choice
    if choice != SessionChoice():
        message = "`previous_response_id` cannot be used together with a session."
        raise Problem(400, message, code="conflicting_sessions", param="previous_response_id")
    earlier = await reached_run(call, body.previous_response_id)
    check_agent(earlier, agent_id)
    return SessionChoice(after_run=earlier.id)


async def started(
    call: Call[Any, Any],
    agent_id: str,
    choice: SessionChoice,
    talk: Conversation,
    instructions: str | None,
    kind: RunKind,
) -> Run:
    """Start the run of a request."""
    options = turn_options(call.body, joined([instructions or "", talk.instructions]))
    logged = kind is RunKind.RUN
    request = await run_request(call, agent_id, choice, talk, options, kind=kind, logged=logged)
    return (await call.context.runs.start(request)).run


async def pending_of(ledger: Ledger, run: Run) -> list[Approval]:
    """Return the approvals and questions that a run waits for, oldest first."""
    if run.turn_id is None:
        return []
    pending = await ledger.pending_approvals(run.session_id)
    return [each for each in pending if each.request.turn_id == run.turn_id]


class StoppedRun(Struct, frozen=True, kw_only=True):
    """What became of the wish to stop."""

    run_id: str
    status: RunStatus | Literal["stopping"]
    """`stopping`, or the status of a run that had ended."""


class SteerBody(Struct, frozen=True, kw_only=True):
    """Something to say to the running turn."""

    input: Annotated[str, Meta(min_length=1, max_length=65_536)]


class SteeredRun(Struct, frozen=True, kw_only=True):
    """The text was taken; the model sees it after the tool calls under way."""

    object: Literal["hermes.run.steer"] = "hermes.run.steer"
    run_id: str
    status: Literal["accepted"] = "accepted"


class ApprovalBody(AnswerBody, frozen=True, kw_only=True):
    """An answer to what the run asks."""

    approval_id: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    """Which; the oldest one if it is not given."""
    all: bool = False
    """Answer all pending approvals alike."""


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """What the answer did."""

    object: Literal["hermes.run.approval_response"] = "hermes.run.approval_response"
    run_id: str
    choice: str | None
    resolved: int


@operation("POST /v1/runs/{run_id}/stop", 404)
async def stop_run(call: Call[None, None]) -> StoppedRun:
    """Stop a run."""
    run = await reached_run(call, call.path["run_id"])
    if await call.context.runs.stop(run):
        return StoppedRun(run_id=run.id, status="stopping")
    current = await reached_run(call, run.id)
    return StoppedRun(run_id=run.id, status=STATUS[current.state])


@operation("POST /v1/runs/{run_id}/steer", 404, 409, status=202)
async def steer_run(call: Call[SteerBody, None]) -> SteeredRun:
    """Say something to a running turn."""
    run = await reached_run(call, call.path["run_id"])
    if not await call.context.runs.steer(run, call.body.input):
        raise Problem(409, "The run is not running.", code="run_not_running")
    return SteeredRun(run_id=run.id)


@operation("POST /v1/runs/{run_id}/approval", 404, 409, action=Action.APPROVE)
async def answer_run(call: Call[ApprovalBody, None]) -> ApprovalAnswer:
    """Answer what a run asks."""
    run = await reached_run(call, call.path["run_id"])
    resolved = await answer(call, await _asked(call, run), call.body)
    return ApprovalAnswer(run_id=run.id, choice=call.body.choice or None, resolved=len(resolved))


async def _asked(call: Call[ApprovalBody, None], run: Run) -> list[Approval]:
    """Return what the answer is for; 409 if nothing waits for it."""
    body: Any = call.body
    if body.approval_id is not UNSET:
        approval = await reached_approval(call, body.approval_id)
        if approval.request.turn_id != run.turn_id:
            raise Problem(404, "There is no such approval.", code="approval_not_found")
        return [approval]
    pending = await pending_of(call.context.ledger, run)
    if body.all:
        pending = [each for each in pending if each.request.kind is ApprovalKind.APPROVAL]
    if not pending:
        raise Problem(409, "The run waits for no answer.", code="no_pending_approval")
    return pending if body.all else pending[:1]


class RunsQuery(PageQuery, frozen=True, kw_only=True):
    session_id: Annotated[str, Meta(max_length=256)] | None = None
    status: (
        Annotated[str, Meta(extra_json_schema={"enum": sorted(set(STATUS.values()))})] | None
    ) = None


class EventsQuery(Struct, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=10**MAX_ID_DIGITS)] = 0
    """The id of the last event that was seen; `Last-Event-ID` counts more."""


@operation("GET /v1/runs")
async def list_runs(call: Call[None, RunsQuery]) -> RunList:
    """List runs, newest first."""
    query, caller = call.query, call.caller

    async def read(agent_id: str | None, limit: int) -> Sequence[Run]:
        wanted = RunQuery(
            key_id=None if sees_everything(caller) else caller.key_id,
            agent_id=agent_id,
            session_id=query.session_id,
            states=_states(query.status),
            limit=limit,
        )
        return await call.context.ledger.runs(wanted)

    shown, page = await page_of(call, read, lambda run: run.created_at)
    return RunList(data=tuple(run_view(call, run) for run in shown), **page)


def _states(status: str | None) -> tuple[RunState, ...]:
    if status is None:
        return ()
    states = tuple(state for state, name in STATUS.items() if name == status)
    if not states:
        names = ", ".join(dict.fromkeys(STATUS.values()))
        message = f"`status` is one of: {names}."
        raise Problem(400, message, code="unknown_status", param="status")
    return states


@operation("GET /v1/runs/{run_id}", 404)
async def get_run(call: Call[None, None]) -> RunView:
    """Read how a run stands."""
    run = await reached_run(call, call.path["run_id"])
    pending = await pending_of(call.context.ledger, run) if run.state.open else []
    return run_view(call, run, pending)


@operation("GET /v1/runs/{run_id}/events", 404, 410, answers={200: Events(RunEvent), 204: None})
async def stream_run_events(call: Call[None, EventsQuery]) -> Answer:
    """Follow the events of a run."""
    run = await reached_run(call, call.path["run_id"])
    if not run.logged:
        message = "This run keeps no event log: it was answered on its own connection."
        raise Problem(404, message, code="no_event_log")
    after = _seen(call)
    log = await call.context.ledger.run_log(run.id, after=max(after - 1, 0), limit=2)
    if after and (not log or log[0].seq != after):
        await _check_there(call, run)
        raise Problem(
            400, f"The run has no event {after}.", code="unknown_event_id", param="Last-Event-ID"
        )
    if not log:
        await _check_there(call, run)
    if after and len(log) == 1 and not run.state.open:
        return TextAnswer(text="", status=204)
    headers = {"X-Hermes-Session-Id": run.session_id}
    return StreamAnswer(chunks=_frames(call, run, after), headers=headers)


async def _check_there(call: Call[Any, Any], run: Run) -> None:
    """Raise 410 if the log of a run was deleted: every run that has ended had one."""
    if not run.state.open and not await call.context.ledger.run_log(run.id, limit=1):
        raise Problem(410, "The events of this run were deleted.", code="log_expired")


def _seen(call: Call[None, EventsQuery]) -> int:
    text = call.headers.last_event_id
    if text is None:
        return call.query.after
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS):
        raise Problem(
            400, "Last-Event-ID is a number.", code="invalid_event_id", param="Last-Event-ID"
        )
    return int(text)


async def _frames(call: Call[Any, Any], run: Run, after: int) -> AsyncIterator[bytes]:
    async for logged in call.context.runs.log(run, after):
        yield run_frame(run.id, logged, call.context.redact)
