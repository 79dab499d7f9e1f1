"""What a key reaches: its own runs and sessions, or everything with `Action.ADMIN`.

What is out of reach is answered exactly like what does not exist.
"""

from typing import Any

from hermes.domain.approvals import Approval
from hermes.domain.keys import Action, Caller
from hermes.domain.runs import Run
from hermes.domain.session import Session
from hermes.entry.http.choices import owns_session
from hermes.entry.http.endpoint import Call
from hermes.entry.http.problems import Problem

__all__ = [
    "agents_filter",
    "reached_approval",
    "reached_run",
    "reached_session",
    "sees_everything",
]


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


async def reached_approval(call: Call[Any, Any], approval_id: str) -> Approval:
    """Return an approval of a session within reach; 404 otherwise."""
    approval = await call.parts.ledger.approval(approval_id)
    if approval is not None:
        session = await call.parts.ledger.session(approval.request.session_id)
        if session is not None and owns_session(call.caller, session):
            return approval
    raise Problem(404, "There is no such approval.", code="approval_not_found")
