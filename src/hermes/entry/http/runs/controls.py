"""`/v1/runs/{id}`: stopping it, speaking to it, and answering what it asks."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.domain.approvals import Approval, ApprovalKind
from hermes.domain.keys import Action
from hermes.domain.runs import Run
from hermes.entry.http.approvals import MAX_ANSWER, answer_approval, check_answer
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.problems import Problem
from hermes.entry.http.reach import reached_approval, reached_run
from hermes.entry.http.runs.pending import pending_of
from hermes.entry.http.runs.shapes import STATUS

__all__ = ["ENDPOINTS"]


class StoppedRun(Struct, frozen=True, kw_only=True):
    """What became of the wish to stop."""

    run_id: str
    status: str
    """`stopping`, or the status of a run that had ended."""


class SteerBody(Struct, frozen=True, kw_only=True):
    """Something to say to the running turn."""

    input: Annotated[str, Meta(min_length=1, max_length=65_536)]


class SteeredRun(Struct, frozen=True, kw_only=True):
    """The text was taken; the model sees it after the tool calls under way."""

    object: str = "hermes.run.steer"
    run_id: str
    status: str = "accepted"


class ApprovalBody(Struct, frozen=True, kw_only=True):
    """An answer to what the run asks."""

    choice: Annotated[str, Meta(max_length=MAX_ANSWER)] | UnsetType = UNSET
    """One of the choices that were offered: `once`, `session`, `always`, `deny`."""
    text: Annotated[str, Meta(max_length=MAX_ANSWER)] | UnsetType = UNSET
    """The answer to a question, or the reason for a denial."""
    approval_id: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    """Which; the oldest one if it is not given."""
    all: bool = False
    """Answer all pending approvals alike."""


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """What the answer did."""

    object: str = "hermes.run.approval_response"
    run_id: str
    choice: str | None
    resolved: int


async def stop_run(call: Call[None, None]) -> Answer:
    """Interrupt a run, or take it out of the queue."""
    run = await reached_run(call, call.path["run_id"])
    if await call.parts.runs.stop(run):
        return JsonAnswer(value=StoppedRun(run_id=run.id, status="stopping"))
    current = await reached_run(call, run.id)
    return JsonAnswer(value=StoppedRun(run_id=run.id, status=STATUS[current.state]))


async def steer_run(call: Call[SteerBody, None]) -> Answer:
    """Say something to the running turn."""
    run = await reached_run(call, call.path["run_id"])
    if not await call.parts.runs.steer(run, call.body.input):
        raise Problem(409, "The run is not running.", code="run_not_running")
    return JsonAnswer(value=SteeredRun(run_id=run.id), status=202)


async def answer_run(call: Call[ApprovalBody, None]) -> Answer:
    """Answer what a run asks."""
    run = await reached_run(call, call.path["run_id"])
    body = call.body
    choice = None if body.choice is UNSET else body.choice
    text = None if body.text is UNSET else body.text
    asked = await _asked(call, run)
    for approval in asked:
        check_answer(approval, choice, text)
    resolved = 0
    for approval in asked:
        resolved += await answer_approval(call, approval, choice, text) is not None
    if not resolved:
        raise Problem(409, "It was answered before, or its time is over.", code="already_answered")
    return JsonAnswer(value=ApprovalAnswer(run_id=run.id, choice=choice, resolved=resolved))


async def _asked(call: Call[ApprovalBody, None], run: Run) -> list[Approval]:
    """Return what the answer is for; 409 if nothing waits for it."""
    body: Any = call.body
    if body.approval_id is not UNSET:
        approval = await reached_approval(call, body.approval_id)
        if approval.request.turn_id != run.turn_id:
            raise Problem(404, "There is no such approval.", code="approval_not_found")
        return [approval]
    pending = await pending_of(call.parts.ledger, run)
    if body.all:
        pending = [each for each in pending if each.request.kind is ApprovalKind.APPROVAL]
    if not pending:
        raise Problem(409, "The run waits for no answer.", code="no_pending_approval")
    return pending if body.all else pending[:1]


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="stopRun",
        method="POST",
        path="/v1/runs/{run_id}/stop",
        summary="Stop a run",
        tag="runs",
        handler=stop_run,
        action=Action.RUN,
        answers={200: StoppedRun},
        problems=(404,),
    ),
    Endpoint(
        name="steerRun",
        method="POST",
        path="/v1/runs/{run_id}/steer",
        summary="Say something to a running turn",
        tag="runs",
        handler=steer_run,
        action=Action.RUN,
        body=SteerBody,
        answers={202: SteeredRun},
        problems=(404, 409),
    ),
    Endpoint(
        name="answerRun",
        method="POST",
        path="/v1/runs/{run_id}/approval",
        summary="Answer what a run asks",
        tag="runs",
        handler=answer_run,
        action=Action.APPROVE,
        body=ApprovalBody,
        answers={200: ApprovalAnswer},
        problems=(404, 409),
    ),
)
