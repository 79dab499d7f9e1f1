"""`/api/sessions/{id}/chat`: say something in a session and get the answer at once.

A client that leaves interrupts its turn, unless it sent an `Idempotency-Key`:
then the repeat of the request picks the turn up.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.domain.keys import Action
from hermes.domain.runs import Run, RunKind, RunOutcome, RunState, SessionChoice
from hermes.entry.http.access import agent_name, reached_session, require_agent
from hermes.entry.http.api.conversation import InputItem
from hermes.entry.http.api.runs import RunTool, conversation, started
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    STARTS_RUN,
    Answer,
    Call,
    JsonAnswer,
    Operations,
    StreamAnswer,
)
from hermes.entry.http.errors import Problem
from hermes.entry.http.sse import attended, stopper
from hermes.streaming.wire.frames import error_fields, tool_call_fields, usage_fields
from hermes.streaming.wire.sessions import SessionStream

operation = Operations("sessions", Action.RUN)

Said = Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
Instructions = Annotated[str, Meta(max_length=262_144)]


class SessionChatBody(Struct, frozen=True, kw_only=True):
    """What is said; either `message` or `input`."""

    message: Said | None = None
    """Text, content parts, or items such as results of the client's tools."""
    input: Said | None = None
    """The same."""
    system_message: Instructions | None = None
    """For this turn only."""
    instructions: Instructions | None = None
    """The same."""
    model: Annotated[str, Meta(max_length=256)] | None = None
    """The agent of the session; another one is refused."""
    tools: Annotated[list[RunTool], Meta(max_length=128)] = []
    """Tools that the client carries out itself."""
    metadata: dict[str, Any] | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None


class SessionChatMessage(Struct, frozen=True, kw_only=True):
    """What the agent says."""

    role: str = "assistant"
    content: str
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET


class SessionChatAnswer(Struct, frozen=True, kw_only=True):
    """The answer."""

    object: str = "hermes.session.chat.completion"
    session_id: str
    run_id: str
    model: str
    message: SessionChatMessage
    usage: dict[str, Any]
    incomplete: bool | UnsetType = UNSET
    """True if the answer was cut off."""


ChatCall = Call[SessionChatBody, None]


@operation(
    "POST /api/sessions/{session_id}/chat", *STARTS_RUN, 502, answers={200: SessionChatAnswer}
)
async def chat_in_session(call: ChatCall) -> Answer:
    """Say something in a session."""
    run = await _started(call)
    ended = await attended(call, call.context.runs.wait(run), stopper(call, run))
    if ended.outcome is None and not call.context.runs.draining:
        message = "The session was deleted before its answer was read."
        raise Problem(404, message, code="run_not_found")
    headers = {"X-Hermes-Session-Id": run.session_id}
    return JsonAnswer(value=_answer(call, ended), headers=headers)


@operation("POST /api/sessions/{session_id}/chat/stream", *STARTS_RUN, answers={200: EVENT_STREAM})
async def stream_chat_in_session(call: ChatCall) -> Answer:
    """Say something in a session and follow the answer."""
    run = await _started(call)
    return StreamAnswer(
        chunks=_frames(call, run),
        headers={"X-Hermes-Session-Id": run.session_id},
        left=stopper(call, run),
    )


async def _started(call: ChatCall) -> Run:
    session = await reached_session(call, call.path["session_id"])
    body = call.body
    if body.model and require_agent(call, body.model).agent_id != session.agent_id:
        message = "The session belongs to another agent."
        raise Problem(400, message, code="agent_mismatch", param="model")
    talk = conversation(_said(body))
    told = body.instructions or body.system_message
    choice = SessionChoice(session_id=session.id)
    return await started(call, session.agent_id, choice, talk, told, RunKind.SESSION)


def _said(body: SessionChatBody) -> str | list[InputItem]:
    if (body.message is None) == (body.input is None):
        raise Problem(400, "Give either `message` or `input`.", code="message_missing")
    said = body.input if body.message is None else body.message
    assert said is not None
    return said


def _answer(call: ChatCall, run: Run) -> SessionChatAnswer:
    outcome = _good(run)
    handed = [tool_call_fields(each) for each in outcome.handed]
    return SessionChatAnswer(
        session_id=run.session_id,
        run_id=run.id,
        model=agent_name(call, run.agent_id),
        message=SessionChatMessage(content=outcome.text, tool_calls=handed or UNSET),
        usage=usage_fields(outcome.usage, outcome.cost_usd),
        incomplete=True if outcome.state is RunState.INCOMPLETE else UNSET,
    )


def _good(run: Run) -> RunOutcome:
    """Return the outcome of a run that has an answer."""
    outcome = run.outcome
    if outcome is None:
        message = f"Hermes is stopping. The run {run.id} is kept and goes on later."
        raise Problem(503, message, code="draining")
    if outcome.state is RunState.FAILED:
        raise Problem(502, str(error_fields(outcome.error)["message"]), code="agent_incomplete")
    if outcome.state is RunState.CANCELLED:
        raise Problem(409, "The run was stopped.", code="run_cancelled")
    return outcome


async def _frames(call: ChatCall, run: Run) -> AsyncIterator[bytes]:
    context = call.context
    stream = SessionStream(run.session_id, run.id, now=context.clock.now, redact=context.redact)
    async for batch in context.runs.batches(run):
        if frames := b"".join([stream.feed(event) for event in batch]):
            yield frames
