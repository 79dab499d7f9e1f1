"""Which session a request continues.

`X-Hermes-Session-Id` names a session by its id; a session that the key may not
reach does not exist for it. `X-Hermes-Session-Key` names a conversation in the
words of the client; the name is scoped to the API key, so two keys never meet
in one session. With neither, the request is a conversation of its own.
"""

from hermes.control.runs import PLATFORM, owner_tag
from hermes.domain.channel import ChatKind
from hermes.domain.keys import Action, Caller
from hermes.domain.ports.state import Ledger
from hermes.domain.runs import SessionChoice
from hermes.domain.session import Session, SessionKey
from hermes.entry.http.endpoint import CallHeaders
from hermes.entry.http.problems import Problem

__all__ = ["owns_session", "session_choice", "session_key_of", "session_of"]


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
