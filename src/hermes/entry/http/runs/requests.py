"""From a conversation to the request for a turn, for runs and for session chats."""

from typing import Any

from msgspec.structs import replace

from hermes.control.runs import RunRequest
from hermes.domain.ids import new_id
from hermes.domain.runs import RunKind, SessionChoice
from hermes.domain.turn_options import ClientResult, TurnOptions
from hermes.entry.http.chat.messages import Conversation, history_of
from hermes.entry.http.choices import owns_session
from hermes.entry.http.endpoint import Call
from hermes.entry.http.media import picture
from hermes.entry.http.session_instructions import instructions_for

__all__ = ["request_for"]


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
