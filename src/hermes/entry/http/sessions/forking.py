"""`POST /api/sessions/{id}/fork`: go on from some point in a session of its own."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from hermes.control.runs import PLATFORM, owner_tag
from hermes.domain.keys import Action
from hermes.domain.messages import ToolMessage
from hermes.domain.session import Lineage, StoredMessage
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.problems import Problem
from hermes.entry.http.reach import reached_session
from hermes.entry.http.session_instructions import keep_instructions, kept_instructions
from hermes.entry.http.sessions.keeping import NewId, Title, chosen_id, open_with
from hermes.entry.http.sessions.shapes import SessionBody, session_view

__all__ = ["ENDPOINTS", "cut_after"]


class ForkBody(Struct, frozen=True, kw_only=True):
    """How to fork."""

    id: NewId | None = None
    session_id: NewId | None = None
    """The same as `id`: that of the new session."""
    title: Title | None = None
    through: Annotated[int, Meta(ge=1)] | None = None
    """The `seq` of the last message to take over; everything if it is not given."""


def cut_after(history: Sequence[StoredMessage], through: int) -> int:
    """Return the last seat to take over; a call is never parted from its results."""
    kept = [stored for stored in history if stored.seq <= through]
    if not kept:
        raise Problem(
            400, f"The session has no message up to {through}.", code="no_message", param="through"
        )
    last = kept[-1].seq
    for stored in history[len(kept) :]:
        if not isinstance(stored.message, ToolMessage):
            break
        last = stored.seq
    return last


async def fork_session(call: Call[ForkBody, None]) -> Answer:
    """Open a copy of a session; the original stays as it is."""
    parent = await reached_session(call, call.path["session_id"])
    body, ledger = call.body, call.parts.ledger
    cut = None
    if body.through is not None:
        cut = cut_after(await ledger.history(parent.id), body.through)
    fresh = call.parts.gateway.new_session(parent.agent_id, PLATFORM, owner_tag(call.caller.key_id))
    new = replace(
        fresh,
        id=chosen_id(fresh.started_at, body.id, body.session_id),
        model=parent.model or fresh.model,
        provider=parent.provider or fresh.provider,
        cwd=parent.cwd or fresh.cwd,
        title=body.title,
        lineage=Lineage.BRANCH,
        parent_id=parent.id,
    )
    session = await open_with(call, new, parent.id)
    if cut is not None:
        await ledger.rewind(session.id, cut + 1)
    kept = await kept_instructions(ledger, parent.id)
    if kept:
        await keep_instructions(ledger, session.id, kept)
    forked = await reached_session(call, session.id)
    return JsonAnswer(value=SessionBody(session=session_view(call, forked)), status=201)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="forkSession",
        method="POST",
        path="/api/sessions/{session_id}/fork",
        summary="Fork a session",
        tag="sessions",
        handler=fork_session,
        action=Action.SESSIONS,
        body=ForkBody,
        answers={201: SessionBody},
        problems=(404, 409),
    ),
)
