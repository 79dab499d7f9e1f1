"""Access of a key: its own runs and sessions, or everything with `Action.ADMIN`.

What is out of reach is answered exactly like what does not exist.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from hermes.control.admission.routing import Facts, route_facts
from hermes.control.runs.runs import PLATFORM, is_owner
from hermes.domain.approvals import Approval
from hermes.domain.errors import NobodyChosen, NotFound
from hermes.domain.inbound import ChatKind
from hermes.domain.keys import Action, Caller
from hermes.domain.ports.ledger import SessionStore
from hermes.domain.runs import Run, RunQuery, RunState, SessionChoice
from hermes.domain.session import Session, SessionKey
from hermes.domain.wording import one_line
from hermes.entry.http.endpoint import Call, CallHeaders, ServedAgent
from hermes.entry.http.errors import Problem

RUN_ID = "X-Hermes-Run-Id"
OPEN_STATES = tuple(state for state in RunState if state.open)
RECENT_RUNS = 100
"""Ended runs of a key that are looked at: one may have ended with a question that waits."""
FACT = "instructions"
SYSTEM_ITEMS = "system_items"
"""The fact of a session that holds the system messages of its conversation, each with `text`."""
T = TypeVar("T")
AnyCall = Call[Any, Any]


class AgentQuery(Struct, frozen=True, kw_only=True):
    """Whose; the default agent's if nothing is given."""

    agent: str | None = None
    model: str | None = None
    """Another name for `agent`."""


class PageQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


def sees_everything(caller: Caller) -> bool:
    """Tell whether the key reaches what other keys and doors have made."""
    return Action.ADMIN in caller.actions


def agents_filter(caller: Caller) -> tuple[str | None, ...]:
    """Return the agents to ask about one by one; a single None for all of them."""
    return caller.agents or (None,)


async def page_of(
    call: AnyCall,
    read: Callable[[str | None, int], Awaitable[Sequence[T]]],
    newest: Callable[[T], float],
) -> tuple[list[T], dict[str, Any]]:
    """Return a page of what `read` finds for each agent, newest first, and what it says of itself.

    `read` takes an agent (None: all) and how many are needed at most.
    """
    limit, offset = call.query.limit, call.query.offset
    found: list[T] = []
    for agent_id in agents_filter(call.caller):
        found += await read(agent_id, offset + limit + 1)
    found.sort(key=newest, reverse=True)
    more = len(found) > offset + limit
    return found[offset : offset + limit], {"limit": limit, "offset": offset, "has_more": more}


# -- agents ----------------------------------------------------------------------


def reachable_agents(call: AnyCall) -> tuple[ServedAgent, ...]:
    """Return the agents that the key may talk to, the default agent first."""
    agents = {each.name: each for each in call.context.agents().values()}
    return tuple(
        each for each in agents.values() if each.listed and call.caller.may_reach(each.agent_id)
    )


def narrowed(agents: Mapping[str, ServedAgent], name: str, caller: Caller) -> tuple[str, Caller]:
    """Return the agent of a path, and a caller who reaches only this one."""
    agent = agents.get(name)
    if agent is None or not caller.may_reach(agent.agent_id):
        raise no_model(name)
    return agent.agent_id, replace(caller, agents=(agent.agent_id,))


def no_model(name: str | None) -> Problem:
    shown = f"There is no model `{name[:100]}`" if name else "There is no default agent"
    message = f"{shown} that this key may use."
    return Problem(404, message, code="model_not_found", param="model")


async def require_agent(call: AnyCall, name: str | None) -> ServedAgent:
    """Return the agent with this name, without one the agent that routes say; 404 if out of reach.

    The stable alias of the default agent is no name of an agent: routes are asked, too.
    """
    agents = call.context.agents()
    agent = agents.get(name.removeprefix("hermes/")) if name else next(iter(agents.values()))
    if agent is not None and agent.routed:
        agent = agents.get(call.agent) if call.agent else await _routed(call, agents)
    if agent is None or not call.caller.may_reach(agent.agent_id):
        raise no_model(name)
    return agent


async def _routed(call: AnyCall, agents: Mapping[str, ServedAgent]) -> ServedAgent | None:
    try:
        decision = await call.context.router.route(api_facts(call), text=_said(call.body))
    except NobodyChosen:
        raise
    except NotFound:
        return None
    return agents.get(decision.agent)


def _said(body: Any) -> str:
    """Return the text of the last message of the user in a request, in any of its shapes."""
    for name in ("messages", "input", "message"):
        given = getattr(body, name, None)
        if isinstance(given, str):
            return given
        for each in reversed(given or ()):
            content = getattr(each, "content", None)
            if getattr(each, "role", None) not in (None, "user"):
                continue
            if isinstance(content, str):
                return content
            parts = [each] if content is None else content
            if texts := [text for part in parts if (text := getattr(part, "text", None))]:
                return "\n".join(texts)
    return ""


def api_facts(call: AnyCall) -> Facts:
    """Return what routes can ask about a request."""
    headers = call.headers
    return route_facts(
        platform=(PLATFORM,),
        account=(call.caller.key_id, call.caller.name),
        chat_id=(headers.chat_id,),
        thread_id=(headers.thread_id,),
        user_id=(headers.user_id,),
        chat_type=(ChatKind.PRIVATE.value,),
    )


async def chosen_agent(call: Call[Any, AgentQuery], name: str | None = None) -> ServedAgent:
    return await require_agent(call, name or call.query.agent or call.query.model)


def agent_name(call: AnyCall, agent_id: str) -> str:
    """Return what an agent is called in the `model` field."""
    agent = call.context.agents().get(agent_id)
    return agent_id if agent is None else agent.name


def check_agent(found: Session | Run, agent_id: str) -> None:
    """Raise 400 if a session, run or response does not belong to the agent that was named."""
    if found.agent_id != agent_id:
        message = f"`{found.id}` belongs to another agent than the one asked for."
        raise Problem(400, message, code="agent_mismatch", param="model")


# -- sessions --------------------------------------------------------------------


def owns_session(caller: Caller, session: Session) -> bool:
    if not caller.may_reach(session.agent_id):
        return False
    own = session.source == PLATFORM and is_owner(caller.key_id, session.user_id)
    return own or sees_everything(caller)


async def reached_session(call: AnyCall, session_id: str, param: str | None = None) -> Session:
    session = await call.context.ledger.session(session_id)
    if session is None or not owns_session(call.caller, session):
        raise Problem(404, "There is no such session.", code="session_not_found", param=param)
    return session


NEW_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}\Z")
"""An id that a client may choose for a session."""


def session_key_of(agent_id: str, key_id: str, name: str) -> str:
    """Return the session key behind a name that a client chose: `X-Hermes-Session-Key`."""
    return _key_of(agent_id, f"{key_id}/{name}")


def own_id_key(agent_id: str, key_id: str, session_id: str) -> str:
    """Return the session key behind an id that a client chose, and another one before it."""
    return _key_of(agent_id, f"{key_id}#{session_id}")


def _key_of(agent_id: str, chat_id: str) -> str:
    kind = ChatKind.PRIVATE
    return str(SessionKey(agent_id=agent_id, platform=PLATFORM, kind=kind, chat_id=chat_id))


async def session_choice(
    call: AnyCall, agent_id: str, headers: CallHeaders | None = None
) -> SessionChoice:
    headers = headers or call.headers
    if headers.session_id is not None and headers.session_key is not None:
        message = "X-Hermes-Session-Id and X-Hermes-Session-Key cannot be used together."
        raise Problem(400, message, code="conflicting_headers", param="X-Hermes-Session-Key")
    if headers.session_key is not None:
        key = session_key_of(agent_id, call.caller.key_id, headers.session_key)
        return SessionChoice(key=key, opened=await call.context.ledger.session_for_key(key) is None)
    if headers.session_id is None:
        return SessionChoice()
    return await _by_id(call, agent_id, headers.session_id)


async def _by_id(call: AnyCall, agent_id: str, session_id: str) -> SessionChoice:
    """Return the session that a key means by an id: its own, or one that is opened for it.

    An id is a name that programs choose, so that two keys may choose the same: what belongs to
    another one is not in the way, nor out of reach; the second key has a session under this name.
    """
    ledger, param = call.context.ledger, "X-Hermes-Session-Id"
    session = await ledger.session(session_id)
    if session is not None and owns_session(call.caller, session):
        check_agent(session, agent_id)
        return SessionChoice(session_id=session_id)
    if not NEW_ID.match(session_id):
        message = "A session id has letters, digits, and `.`, `_`, `:` or `-` inside."
        raise Problem(400, message, code="invalid_header", param=param)
    key = own_id_key(agent_id, call.caller.key_id, session_id)
    known = await ledger.session_for_key(key)
    if session is None and known is None:
        return SessionChoice(session_id=session_id, opened=True)
    return SessionChoice(key=key, opened=known is None)


async def waiting_session(call: AnyCall, agent_id: str, call_ids: Iterable[str]) -> Session | None:
    """Return the one session of the caller in which calls with these ids wait."""
    ledger = call.context.ledger
    waiting = {await ledger.handed_call(call_id) for call_id in call_ids}
    session = await ledger.session(waiting.pop() or "") if len(waiting) == 1 else None
    if session is None or session.agent_id != agent_id or not owns_session(call.caller, session):
        return None
    return session


async def kept_instructions(ledger: SessionStore, session_id: str) -> str:
    kept = await ledger.recall(session_id, FACT)
    items = await ledger.recall(session_id, SYSTEM_ITEMS) or ()
    texts = [kept if isinstance(kept, str) else "", *(each["text"] for each in items)]
    return "\n\n".join(filter(None, texts))


# -- runs and approvals ------------------------------------------------------------


async def reached_run(call: AnyCall, run_id: str) -> Run:
    run = await call.context.runs.get(run_id)
    if run is None or not call.caller.owns(run.key_id, run.agent_id):
        raise Problem(404, "There is no such run.", code="run_not_found")
    return run


async def earlier_run(call: AnyCall) -> Run | None:
    """Return the run that was started before under the idempotency key of this request."""
    key = call.headers.idempotency_key
    return await call.context.ledger.run_under(call.caller.key_id, key) if key else None


async def retried_run(call: AnyCall) -> Run | None:
    """Return the run that a retry of an SDK repeats, which it joins; None for a first try.

    The same body under the same key says which; a session in the headers has to be the run's.
    """
    headers, context = call.headers, call.context
    if headers.idempotency_key or (headers.retry_count or "0").strip("0") == "":
        return None
    for run in await context.runs.retried(call.caller.key_id, call.fingerprint):
        if await _means(call, run) and call.caller.owns(run.key_id, run.agent_id):
            context.runs.join(run)
            return run
    return None


async def _means(call: AnyCall, run: Run) -> bool:
    """Tell whether the session that a request names, if any, is that of a run."""
    headers, key_id = call.headers, call.caller.key_id
    if headers.session_key is not None:
        key = session_key_of(run.agent_id, key_id, headers.session_key)
    elif headers.session_id in (None, run.session_id):
        return True
    else:
        key = own_id_key(run.agent_id, key_id, headers.session_id or "")
    bound = await call.context.ledger.session_for_key(key)
    return bound is not None and bound.id == run.session_id


def run_headers(run: Run) -> dict[str, str]:
    return {"X-Hermes-Session-Id": run.session_id, RUN_ID: run.id}


def outcome_headers(*, partial: bool, error: str) -> dict[str, str]:
    """Return what tells programs whether an answer is whole; `error` says why it is not."""
    headers = {
        "X-Hermes-Completed": "false" if error else "true",
        "X-Hermes-Partial": "true" if partial else "false",
    }
    return headers | ({"X-Hermes-Error": one_line(error, 200)} if error else {})


async def pending_within_reach(call: AnyCall) -> list[Approval]:
    """Return what waits for an answer and is within reach, oldest first.

    What waits for others costs no work, or their number would show in the time.
    """
    ledger, caller = call.context.ledger, call.caller
    if sees_everything(caller):
        return [each for each in await ledger.pending_approvals() if await _reaches(call, each)]
    sessions: dict[str, None] = {}
    for agent_id in agents_filter(caller):
        own = RunQuery(key_id=caller.key_id, agent_id=agent_id, states=OPEN_STATES, limit=None)
        ended = RunQuery(key_id=caller.key_id, agent_id=agent_id, limit=RECENT_RUNS)
        asked = [run for run in await ledger.runs(ended) if run.outcome and run.outcome.asked]
        found = [*await ledger.runs(own), *asked]
        sessions.update((run.session_id, None) for run in found)
    wait = [each for session_id in sessions for each in await ledger.pending_approvals(session_id)]
    return sorted(wait, key=lambda each: each.request.created_at)


async def reached_approval(call: AnyCall, approval_id: str) -> Approval:
    """Return an approval of a session within reach; 404 otherwise.

    The session is looked up also if there is no approval: it must not show in
    the time it takes whether somebody else has one with this id.
    """
    approval = await call.context.ledger.approval(approval_id)
    if not await _reaches(call, approval) or approval is None:
        raise Problem(404, "There is no such approval.", code="approval_not_found")
    return approval


async def _reaches(call: AnyCall, approval: Approval | None) -> bool:
    session_id = approval.request.session_id if approval is not None else ""
    session = await call.context.ledger.session(session_id)
    return session is not None and owns_session(call.caller, session)
