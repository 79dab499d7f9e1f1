"""What a key reaches: its own runs and sessions, or everything with `Action.ADMIN`.

What is out of reach is answered exactly like what does not exist.
"""

from collections.abc import Iterable
from typing import Any

from hermes.control.runs.request import PLATFORM, owner_tag
from hermes.domain.approvals import Approval
from hermes.domain.inbound import ChatKind
from hermes.domain.keys import Action, Caller
from hermes.domain.ports.ledger import Ledger, SessionStore
from hermes.domain.runs import Run, RunQuery, RunState, SessionChoice
from hermes.domain.session import Session, SessionKey
from hermes.entry.http.context import HttpContext, ServedAgent
from hermes.entry.http.endpoint import Call, CallHeaders
from hermes.entry.http.errors import Problem


def owns_session(caller: Caller, session: Session) -> bool:
    """Tell whether a key may see and continue a session."""
    if not caller.may_reach(session.agent_id):
        return False
    own = session.source == PLATFORM and session.user_id == owner_tag(caller.key_id)
    return own or Action.ADMIN in caller.actions


def session_key_of(agent_id: str, key_id: str, name: str) -> str:
    """Return the session key behind a name that a client chose: `X-Hermes-Session-Key`."""
    return str(
        SessionKey(
            agent_id=agent_id,
            platform=PLATFORM,
            kind=ChatKind.PRIVATE,
            chat_id=f"{key_id}/{name}",
        )
    )


async def session_of(caller: Caller, session_id: str, ledger: Ledger) -> Session:
    """Return a session that the key may reach; for any other it is a 404."""
    session = await ledger.session(session_id)
    if session is None or not owns_session(caller, session):
        raise Problem(
            404,
            f"There is no session `{session_id}`.",
            code="session_not_found",
            param="X-Hermes-Session-Id",
        )
    return session


async def session_choice(
    caller: Caller, headers: CallHeaders, agent_id: str, ledger: Ledger
) -> SessionChoice:
    """Return the session that the headers choose."""
    if headers.session_id is not None and headers.session_key is not None:
        raise Problem(
            400,
            "X-Hermes-Session-Id and X-Hermes-Session-Key cannot be used together.",
            code="conflicting_headers",
            param="X-Hermes-Session-Key",
        )
    if headers.session_key is not None:
        return SessionChoice(key=session_key_of(agent_id, caller.key_id, headers.session_key))
    if headers.session_id is None:
        return SessionChoice()
    session = await session_of(caller, headers.session_id, ledger)
    if session.agent_id != agent_id:
        raise Problem(
            400,
            f"Session `{session.id}` belongs to another agent than the one asked for.",
            code="agent_mismatch",
            param="model",
        )
    return SessionChoice(session_id=session.id)


OPEN_STATES = tuple(state for state in RunState if state.open)


def sees_everything(caller: Caller) -> bool:
    """Tell whether the key reaches what other keys and doors have made."""
    return Action.ADMIN in caller.actions


def agents_filter(caller: Caller) -> tuple[str | None, ...]:
    """Return the agents to ask about one by one; a single None for all of them."""
    return caller.agents or (None,)


async def reached_session(call: Call[Any, Any], session_id: str) -> Session:
    """Return a session within reach; 404 otherwise."""
    session = await call.parts.ledger.session(session_id)
    if session is None or not owns_session(call.caller, session):
        raise Problem(404, "There is no such session.", code="session_not_found")
    return session


async def reached_run(call: Call[Any, Any], run_id: str) -> Run:
    """Return a run within reach; 404 otherwise."""
    run = await call.parts.runs.get(run_id)
    if run is None or not call.caller.owns(run.key_id, run.agent_id):
        raise Problem(404, "There is no such run.", code="run_not_found")
    return run


async def pending_within_reach(call: Call[Any, Any]) -> list[Approval]:
    """Return what waits for an answer and is within reach, oldest first.

    What waits for others costs no work, or their number would show in the time.
    """
    ledger, caller = call.parts.ledger, call.caller
    if sees_everything(caller):
        return [each for each in await ledger.pending_approvals() if await _reaches(call, each)]
    sessions: dict[str, None] = {}
    for agent_id in agents_filter(caller):
        own = RunQuery(key_id=caller.key_id, agent_id=agent_id, states=OPEN_STATES, limit=None)
        sessions.update((run.session_id, None) for run in await ledger.runs(own))
    found = [each for session_id in sessions for each in await ledger.pending_approvals(session_id)]
    return sorted(found, key=lambda each: each.request.created_at)


async def _reaches(call: Call[Any, Any], approval: Approval) -> bool:
    session = await call.parts.ledger.session(approval.request.session_id)
    return session is not None and owns_session(call.caller, session)


async def reached_approval(call: Call[Any, Any], approval_id: str) -> Approval:
    """Return an approval of a session within reach; 404 otherwise.

    The session is looked up also if there is no approval: it must not show in
    the time it takes whether somebody else has one with this id.
    """
    approval = await call.parts.ledger.approval(approval_id)
    session_id = approval.request.session_id if approval is not None else ""
    session = await call.parts.ledger.session(session_id)
    if approval is not None and session is not None and owns_session(call.caller, session):
        return approval
    raise Problem(404, "There is no such approval.", code="approval_not_found")


def reachable_agents(parts: HttpContext, caller: Caller) -> tuple[ServedAgent, ...]:
    """Return the agents that a key may talk to, the default agent first."""
    return tuple(card for card in parts.agents if caller.may_reach(card.agent_id))


def agent_named(parts: HttpContext, caller: Caller, name: str | None) -> ServedAgent:
    """Return the agent with this name, without one the default agent; 404 if out of reach."""
    if not name:
        card = parts.agents[0] if parts.agents else None
    else:
        known = (each for each in parts.agents if name in (each.name, *each.aliases))
        card = next(known, None)
    if card is None or not caller.may_reach(card.agent_id):
        shown = f"There is no model `{name[:100]}`" if name else "There is no default agent"
        raise Problem(
            404,
            f"{shown} that this key may use.",
            code="model_not_found",
            param="model",
        )
    return card


def require_agent(call: Call[Any, Any], model: str | None) -> ServedAgent:
    """Return the agent a call is for; 404 `model_not_found` if its key reaches no such agent."""
    return agent_named(call.parts, call.caller, model)


FACT = "instructions"


async def keep_instructions(ledger: SessionStore, session_id: str, instructions: str) -> None:
    """Keep instructions with a session."""
    await ledger.remember(session_id, FACT, instructions)


async def kept_instructions(ledger: SessionStore, session_id: str) -> str:
    """Return the instructions kept with a session; empty if there are none."""
    kept = await ledger.recall(session_id, FACT)
    return kept if isinstance(kept, str) else ""


async def instructions_for(ledger: SessionStore, session_id: str, given: str) -> str:
    """Return what a turn is told: what was kept, then what came with the request."""
    kept = await kept_instructions(ledger, session_id)
    return "\n\n".join(text for text in (kept, given) if text)


async def waiting_session(
    call: Call[Any, Any], agent_id: str, call_ids: Iterable[str]
) -> Session | None:
    """Return the one session of the caller in which calls with these ids wait."""
    ledger = call.parts.ledger
    waiting = {await ledger.handed_call(call_id) for call_id in call_ids}
    session = await ledger.session(waiting.pop() or "") if len(waiting) == 1 else None
    if session is None or session.agent_id != agent_id or not owns_session(call.caller, session):
        return None
    return session
