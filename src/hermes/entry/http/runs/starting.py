"""`POST /v1/runs`: a request that is answered in the background.

The answer to the request is the id of the run; what comes of it is read from
`/v1/runs/{id}` and `/v1/runs/{id}/events`. Nothing is lost when the client
leaves or Hermes restarts.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from hermes.domain.ids import new_id
from hermes.domain.keys import Action
from hermes.domain.runs import RunKind, SessionChoice
from hermes.domain.turn_options import TurnOptions
from hermes.entry.http.agents import require_agent
from hermes.entry.http.choices import session_choice, session_of
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.problems import Problem
from hermes.entry.http.reach import reached_run
from hermes.entry.http.runs.items import InputItem, RunTool, conversation, tools_of
from hermes.entry.http.runs.requests import request_for

__all__ = ["ENDPOINTS"]


class RunBody(Struct, frozen=True, kw_only=True):
    """What is asked."""

    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(max_length=2000)]
    """Text, or messages of which the last ones are the question."""
    instructions: Annotated[str, Meta(max_length=262_144)] | None = None
    """For this run only."""
    session_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """The session to go on in."""
    previous_response_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """The run, or the response, to go on from."""
    conversation_history: Annotated[list[InputItem], Meta(max_length=2000)] = []
    """What was said before, if a new session is opened."""
    model: Annotated[str, Meta(max_length=256)] | None = None
    """The agent that answers; the default one if there is no name."""
    metadata: dict[str, Any] | None = None
    tools: Annotated[list[RunTool], Meta(max_length=128)] = []
    """Tools that the client carries out itself."""
    user: Annotated[str, Meta(max_length=512)] | None = None


class StartedBody(Struct, frozen=True, kw_only=True):
    """A run that was accepted."""

    run_id: str
    status: str = "started"
    session_id: str


async def start_run(call: Call[RunBody, None]) -> Answer:
    """Accept a run."""
    body = call.body
    agent_id = await _agent_id(call)
    talk = conversation(body.input, body.conversation_history)
    choice = await _choice(call, agent_id)
    options = TurnOptions(
        instructions=_joined(body.instructions, talk.instructions),
        client_tools=tools_of(body.tools),
    )
    request = await request_for(call, agent_id, choice, talk, options)
    started = await call.parts.runs.start(
        replace(
            request,
            id=new_id("run"),
            kind=RunKind.RUN,
            user=body.user,
            request={"metadata": body.metadata} if body.metadata else {},
            logged=True,
        )
    )
    run = started.run
    return JsonAnswer(
        value=StartedBody(run_id=run.id, session_id=run.session_id),
        status=202,
        headers={"X-Hermes-Session-Id": run.session_id, "Location": f"/v1/runs/{run.id}"},
    )


async def _agent_id(call: Call[RunBody, None]) -> str:
    """Return the agent that is named, or else the one of the session to go on in."""
    session_id = call.body.session_id or call.headers.session_id
    if call.body.model or session_id is None:
        return require_agent(call, call.body.model).agent_id
    session = await session_of(call.caller, session_id, call.parts.ledger)
    return session.agent_id


async def _choice(call: Call[RunBody, None], agent_id: str) -> SessionChoice:
    body, headers = call.body, call.headers
    if body.session_id is not None:
        if headers.session_id not in (None, body.session_id):
            message = "`session_id` and X-Hermes-Session-Id differ."
            raise Problem(400, message, code="conflicting_sessions", param="session_id")
        headers = replace(headers, session_id=body.session_id)
    choice = await session_choice(call.caller, headers, agent_id, call.parts.ledger)
    if body.previous_response_id is None:
        return choice
    if choice != SessionChoice():
        message = "`previous_response_id` cannot be used together with a session."
        raise Problem(400, message, code="conflicting_sessions", param="previous_response_id")
    earlier = await reached_run(call, body.previous_response_id)
    if earlier.agent_id != agent_id:
        message = "The earlier run belongs to another agent than the one asked for."
        raise Problem(400, message, code="agent_mismatch", param="model")
    return SessionChoice(after_run=earlier.id)


def _joined(*texts: str | None) -> str:
    return "\n\n".join(text for text in texts if text)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="startRun",
        method="POST",
        path="/v1/runs",
        summary="Start a run in the background",
        tag="runs",
        handler=start_run,
        action=Action.RUN,
        body=RunBody,
        answers={202: StartedBody},
        problems=(404, 409, 429, 503),
    ),
)
