"""Questions put as text: which a request answers, and what becomes of it.

A client that does not say `X-Hermes-Events: approvals` reads what waits for a person as the answer
to its request (`control/runs/sections.py`). Its next message in that chat decides:

    yes, no, or the answer to a question   the request gets the rest of the turn that waits
    anything else                          means no; the turn ends, and the message is a new one
    yes or no, but settled before          says so, and gets the rest of the turn

The chat is known as always: by session, by `previous_response_id`, by the same history. Only the
key that asked decides, for the same person (`user`): what anybody else says there, and what is said
elsewhere, is an ordinary message, whatever id it quotes.
"""

from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from hermes.control.admission.approval_replies import Answer, read_answer, settled_text
from hermes.control.approvals import ApprovalAnswers
from hermes.control.runs.sections import Progress, TurnSection
from hermes.domain.approvals import Approval, ApprovalKind, ApprovalState, Choice, Decision
from hermes.domain.keys import Action
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import Run, RunQuery, SessionChoice
from hermes.entry.http.access import OPEN_STATES, AnyCall
from hermes.entry.http.api.conversation import Conversation, bad_value
from hermes.entry.http.api.options import user_of
from hermes.entry.http.errors import Problem

MAX_REASON = 2000
ANSWER = "answer"
"""Where a run keeps the answer that its request gives."""
_PROGRESS: dict[str, Progress] = {"text": "text", "reasoning": "reasoning"}


class TypedAnswer(Struct, frozen=True, kw_only=True):
    """Where a request goes on, and what it answers there."""

    choice: SessionChoice
    section: TurnSection
    answer: Answer | None = None

    def kept(self, call: AnyCall) -> dict[str, Any]:
        """Return what is kept with the run: how it is told, and the answer it gives."""
        given = {} if self.answer is None else {**to_builtins(self.answer), "by": call.caller.name}
        return {"section": to_builtins(self.section), ANSWER: given}

    async def give(self, call: AnyCall) -> None:
        """Hand the answer in, once somebody waits for the rest of the turn."""
        if self.answer is not None:
            await _hand_in(call.context.answers, self.answer, call.caller.name)


async def hand_in_left(ledger: Ledger, answers: ApprovalAnswers) -> None:
    """Hand in answers that a crash kept from it, after their runs were opened."""
    for run in await ledger.runs(RunQuery(states=OPEN_STATES, limit=None)):
        if given := dict(run.request.get(ANSWER) or {}):
            by = given.pop("by")
            await _hand_in(answers, convert(given, Answer), by)


async def _hand_in(answers: ApprovalAnswers, answer: Answer, by: str) -> None:
    """Record an answer; one that is settled stays as it is."""
    if answer.choice is None:
        await answers.reply(answer.approval_id, answer.text, by=by)
    else:
        await answers.answer(answer.approval_id, answer.choice, by=by, text=answer.text)


def wanted_section(call: AnyCall) -> TurnSection:
    """Return how a request wants to be told of questions and tools."""
    told = [each.strip().lower() for each in (call.headers.events or "").split(",")]
    progress = (call.headers.progress or "events").strip().lower()
    if progress not in ("events", *_PROGRESS):
        raise bad_value("It is `text`, `reasoning` or `events`.", "X-Hermes-Progress")
    return TurnSection(
        asks="approvals" not in told,
        may_answer=call.caller.may(Action.APPROVE),
        progress=_PROGRESS.get(progress),
    )


async def consent(
    call: AnyCall, agent_id: str, choice: SessionChoice, talk: Conversation
) -> TypedAnswer:
    """Tell what a request answers, if it goes on from a question."""
    given = TypedAnswer(choice=choice, section=wanted_section(call))
    run = await _asking_run(call, agent_id, choice)
    if run is None or run.outcome is None or run.outcome.asked is None:
        return given
    request, context = run.outcome.asked, call.context
    words = not talk.pictures and not talk.results
    answer = read_answer(talk.text, request) if words and talk.text.strip() else None
    approval = await context.ledger.approval(request.id)
    here = SessionChoice(session_id=run.session_id, after_run=run.id)
    if approval is not None and _pending(approval, context.clock.now()):
        if answer is not None:
            _check(call, answer)
            return _joined(given, here, run, answer)
        reason = talk.text[:MAX_REASON]
        await context.answers.answer(request.id, Choice.DENY, by=call.caller.name, text=reason)
        context.gateway.interrupt(run.session_id, turn_id=run.turn_id)
        return replace(given, choice=here)
    later = await context.ledger.runs(RunQuery(session_id=run.session_id, limit=1))
    if later and later[0].id != run.id:
        return given
    if answer is None or request.kind is ApprovalKind.QUESTION:
        return replace(given, choice=here)
    return _joined(given, here, run, None, note=_settled(approval))


def _joined(
    given: TypedAnswer, here: SessionChoice, run: Run, answer: Answer | None, note: str = ""
) -> TypedAnswer:
    assert run.outcome is not None
    assert run.outcome.asked is not None
    asked = run.outcome.asked
    section = replace(given.section, asks=True, after=asked.id, after_call=asked.call_id, note=note)
    return TypedAnswer(choice=replace(here, turn_id=run.turn_id), section=section, answer=answer)


def _pending(approval: Approval, now: float) -> bool:
    end = approval.request.expires_at
    return approval.state is ApprovalState.PENDING and (end is None or now < end)


def _settled(approval: Approval | None) -> str:
    if approval is not None and approval.state is ApprovalState.PENDING:
        late = Decision(state=ApprovalState.EXPIRED)
        approval = replace(approval, state=ApprovalState.EXPIRED, decision=late)
    return settled_text(approval)


def _check(call: AnyCall, answer: Answer) -> None:
    if answer.choice is not Choice.DENY and not call.caller.may(Action.APPROVE):
        message = "This key may not answer approvals: whoever runs Hermes can, or a key that may."
        raise Problem(403, message, code="action_not_allowed")


async def _asking_run(call: AnyCall, agent_id: str, choice: SessionChoice) -> Run | None:
    """Return the run that a request goes on from, if its key and person asked there."""
    ledger, session_id = call.context.ledger, choice.session_id
    if choice.after_run is not None:
        run = await ledger.run(choice.after_run)
    else:
        if choice.key is not None:
            session = await ledger.session_for_key(choice.key)
            session_id = session.id if session else None
        if session_id is None:
            return None
        newest = await ledger.runs(RunQuery(session_id=session_id, limit=1))
        run = newest[0] if newest else None
    if run is None or (run.key_id, run.agent_id) != (call.caller.key_id, agent_id):
        return None
    return run if run.request.get("user") == user_of(call.body) else None
