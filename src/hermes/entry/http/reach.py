"""What a key reaches: its own runs and sessions, or everything with `Action.ADMIN`.

What is out of reach is answered exactly like what does not exist.
"""

from typing import Any

from hermes.domain.approvals import Approval
from hermes.domain.keys import Action, Caller
from hermes.domain.runs import Run, RunQuery, RunState
from hermes.domain.session import Session
from hermes.entry.http.choices import owns_session
from hermes.entry.http.endpoint import Call
from hermes.entry.http.problems import Problem

__all__ = [
    "OPEN_STATES",
    "agents_filter",
    "pending_within_reach",
    "reached_approval",
    "reached_run",
    "reached_session",
    "sees_everything",
]

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
