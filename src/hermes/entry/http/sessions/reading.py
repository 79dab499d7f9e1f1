"""`/api/sessions`: what was said, by session and by search."""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.control.runs import PLATFORM, owner_tag
from hermes.domain.keys import Action
from hermes.domain.ports.state import SearchHit, SearchQuery
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.reach import agents_filter, reached_session, sees_everything
from hermes.entry.http.sessions.shapes import MessageList, message_view

__all__ = ["ENDPOINTS"]


class MessagesQuery(Struct, frozen=True, kw_only=True):
    """Which messages."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    active_only: bool = False
    """Only what the model is shown."""


class FindQuery(Struct, frozen=True, kw_only=True):
    """What to look for."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    newest_first: bool = False


class HitView(Struct, frozen=True, kw_only=True):
    """One message that matches."""

    session_id: str
    title: str | None
    source: str
    message_id: int
    seq: int
    role: str
    timestamp: float
    snippet: str
    """The matching part, with the match between `[` and `]`."""


class HitList(Struct, frozen=True, kw_only=True):
    """What was found."""

    object: str = "list"
    data: tuple[HitView, ...]


async def list_messages(call: Call[None, MessagesQuery]) -> Answer:
    """Return a page of a session's messages."""
    session = await reached_session(call, call.path["session_id"])
    query, ledger = call.query, call.parts.ledger
    read = ledger.history if query.active_only else ledger.transcript
    messages = await read(session.id)
    end = query.offset + query.limit
    return JsonAnswer(
        value=MessageList(
            session_id=session.id,
            data=tuple(message_view(each) for each in messages[query.offset : end]),
            limit=query.limit,
            offset=query.offset,
            has_more=len(messages) > end,
        )
    )


async def search_sessions(call: Call[None, FindQuery]) -> Answer:
    """Search the messages within reach; others are not even looked at."""
    query, caller = call.query, call.caller
    admin = sees_everything(caller)
    hits: list[SearchHit] = []
    for agent_id in agents_filter(caller):
        wanted = SearchQuery(
            text=query.q,
            agent_id=agent_id,
            user_id=None if admin else owner_tag(caller.key_id),
            newest_first=query.newest_first,
            limit=query.limit,
        )
        hits += await call.parts.ledger.search(wanted)
    if not admin:
        hits = [hit for hit in hits if hit.source == PLATFORM]
    return JsonAnswer(value=HitList(data=tuple(_hit(hit) for hit in hits[: query.limit])))


def _hit(hit: SearchHit) -> HitView:
    return HitView(
        session_id=hit.session_id,
        title=hit.title,
        source=hit.source,
        message_id=hit.message_id,
        seq=hit.seq,
        role=hit.role,
        timestamp=hit.at,
        snippet=hit.snippet,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="searchSessions",
        method="GET",
        path="/api/sessions/search",
        summary="Search in the messages of all sessions",
        tag="sessions",
        handler=search_sessions,
        action=Action.SESSIONS,
        query=FindQuery,
        answers={200: HitList},
    ),
    Endpoint(
        name="listSessionMessages",
        method="GET",
        path="/api/sessions/{session_id}/messages",
        summary="Read what was said in a session",
        tag="sessions",
        handler=list_messages,
        action=Action.SESSIONS,
        query=MessagesQuery,
        answers={200: MessageList},
        problems=(404,),
    ),
)
