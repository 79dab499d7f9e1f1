"""`/v1/approvals`: approvals and questions of any run, answered by their id.

Clients of chat completions, responses and session chats learn the id from a
named event in their stream and answer here, on another connection.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.domain.approvals import Approval, ApprovalKind, ApprovalState, Choice
from hermes.domain.keys import Action
from hermes.entry.http.access import pending_within_reach, reached_approval
from hermes.entry.http.endpoint import Call, Operations
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.frames import approval_fields, decision_fields

operation = Operations("approvals", Action.APPROVE)

MAX_ANSWER = 65_536


class DecisionView(Struct, frozen=True, kw_only=True):
    """How it was answered."""

    state: ApprovalState
    choice: Choice | None
    text: str
    by: str
    at: float


class ApprovalView(Struct, frozen=True, kw_only=True):
    """Something that needs, or needed, an answer."""

    object: Literal["hermes.approval"] = "hermes.approval"
    id: str
    kind: ApprovalKind
    state: ApprovalState
    session_id: str
    tool: str
    call_id: str
    command: str
    """What would be done, or the question."""
    description: str
    """Why it was stopped."""
    pattern_key: str
    """What `session` and `always` would allow from now on."""
    choices: tuple[str, ...]
    created_at: float
    expires_at: float | None
    decision: DecisionView | None


class ApprovalList(Struct, frozen=True, kw_only=True):
    """What waits for an answer, oldest first."""

    object: Literal["list"] = "list"
    data: tuple[ApprovalView, ...]


class AnswerBody(Struct, frozen=True, kw_only=True):
    """An answer: one of the offered choices, or text if it is a question."""

    choice: Annotated[str, Meta(max_length=MAX_ANSWER)] | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=MAX_ANSWER)] | UnsetType = UNSET


def approval_view(call: Call[Any, Any], approval: Approval) -> ApprovalView:
    decision = None
    if approval.decision is not None:
        at = approval.decision.at
        decision = DecisionView(**decision_fields(approval.decision), at=at)
    return ApprovalView(
        **approval_fields(approval.request, call.context.redact),
        state=approval.state,
        session_id=approval.request.session_id,
        decision=decision,
    )


async def answer(
    call: Call[Any, Any], asked: Sequence[Approval], body: AnswerBody
) -> list[Approval]:
    """Give all of them this answer; return those to which nobody was quicker, 409 if none."""
    choice, text = body.choice or None, body.text or ""
    for approval in asked:
        _check(approval, choice, text)
    decided = [await _hand_in(call, approval, choice, text) for approval in asked]
    resolved = [approval for approval in decided if approval is not None]
    if not resolved:
        raise Problem(409, "It was answered before, or its time is over.", code="already_answered")
    return resolved


def _check(approval: Approval, choice: str | None, text: str) -> None:
    request = approval.request
    if request.kind is ApprovalKind.QUESTION:
        if not (text or choice):
            message = "A question is answered with `text`."
            raise Problem(400, message, code="text_missing", param="text")
    elif choice is None or choice not in request.choices:
        offered = ", ".join(request.choices)
        raise Problem(400, f"Choose one of: {offered}.", code="choice_not_offered", param="choice")


async def _hand_in(
    call: Call[Any, Any], approval: Approval, choice: str | None, text: str
) -> Approval | None:
    request, by, answers = approval.request, call.caller.name, call.context.answers
    if request.kind is ApprovalKind.QUESTION:
        return await answers.reply(request.id, text or choice or "", by=by)
    assert choice is not None
    return await answers.answer(request.id, Choice(choice), by=by, text=text)


@operation("GET /v1/approvals")
async def list_approvals(call: Call[None, None]) -> ApprovalList:
    """List approvals and questions that wait for an answer."""
    pending = await pending_within_reach(call)
    return ApprovalList(data=tuple(approval_view(call, each) for each in pending))


@operation("GET /v1/approvals/{approval_id}", 404)
async def get_approval(call: Call[None, None]) -> ApprovalView:
    """Read an approval or a question."""
    approval = await reached_approval(call, call.path["approval_id"])
    return approval_view(call, approval)


@operation("POST /v1/approvals/{approval_id}", 404, 409)
async def answer_approval(call: Call[AnswerBody, None]) -> ApprovalView:
    """Answer an approval or a question."""
    approval = await reached_approval(call, call.path["approval_id"])
    (decided,) = await answer(call, [approval], call.body)
    return approval_view(call, decided)
