"""Session of a response: the one it goes on in, or one of its own."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.runs import Run, RunKind, SessionChoice
from hermes.entry.http.access import session_choice, session_key_of, waiting_session
from hermes.entry.http.api.conversation import Conversation
from hermes.entry.http.api.responses_options import conversation_name
from hermes.entry.http.api.responses_wire import CreateResponse
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem

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
    run = await call.parts.runs.get(response_id)
    known = run is not None and run.kind is RunKind.RESPONSE and run.request.get("store", True)
    if run is None or not known or not call.caller.owns(run.key_id, run.agent_id):
        raise response_missing(response_id, param)
    return run


async def find_session(call: CreateCall, agent_id: str, said: Conversation) -> ResponseSession:
    """Return the session that the request continues."""
    body, ledger = call.body, call.parts.ledger
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
        choice = await session_choice(call.caller, call.headers, agent_id, ledger)
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
