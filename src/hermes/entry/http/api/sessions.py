"""`/api/sessions`: conversations, kept and continued by their id."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from hermes.control.runs.runs import PLATFORM, Draining, owner_tag
from hermes.domain.errors import Conflict, SessionBusy
from hermes.domain.keys import Action
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    InputKind,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
    openai_part,
)
from hermes.domain.ports.ledger import SearchQuery, SessionQuery
from hermes.domain.runs import Run, RunKind, RunState, SessionChoice
from hermes.domain.session import Lineage, SearchHit, Session, StoredMessage
from hermes.domain.usage import Usage
from hermes.entry.http.access import (
    FACT,
    PageQuery,
    agent_name,
    agents_filter,
    check_agent,
    kept_instructions,
    page_of,
    reached_session,
    require_agent,
    retried_run,
    sees_everything,
)
from hermes.entry.http.api.conversation import InputItem, Short
from hermes.entry.http.api.options import AnswerOptions
from hermes.entry.http.api.runs import conversation, started
from hermes.entry.http.endpoint import (
    STARTS_RUN,
    Answer,
    Call,
    Events,
    JsonAnswer,
    Operations,
    StreamAnswer,
)
from hermes.entry.http.errors import Problem, problem_of
from hermes.entry.http.events import SessionEvent
from hermes.entry.http.sse import attended, chunks, stopper
from hermes.streaming.wire.frames import error_fields, handed_fields, usage_fields
from hermes.streaming.wire.runs import SessionStream

operation = Operations("sessions", Action.SESSIONS)


Role = Literal["user", "assistant", "tool"]


class SessionView(Struct, frozen=True, kw_only=True):
    """One session."""

    id: str
    source: str
    """The door it was opened at; `api_server` for this one."""
    user_id: str | None
    model: str
    """The agent, under the name it has in the `model` field of requests."""
    language_model: str
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    last_active: float
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float
    parent_session_id: str | None
    lineage: Lineage | None
    """Why it has a parent: `branch`, `compression` or `delegation`."""
    preview: str
    has_system_prompt: bool
    cwd: str | UnsetType | None = UNSET
    system_prompt: str | UnsetType | None = UNSET


class SessionBody(Struct, frozen=True, kw_only=True):
    """One session in its envelope."""

    object: Literal["hermes.session"] = "hermes.session"
    session: SessionView


class SessionList(Struct, frozen=True, kw_only=True):
    """A page of sessions, most recently used first."""

    object: Literal["list"] = "list"
    data: tuple[SessionView, ...]
    limit: int
    offset: int
    has_more: bool


class MessageView(Struct, frozen=True, kw_only=True):
    """One message of a session, as in chat completions, with its seat in the history."""

    id: int
    session_id: str
    seq: int
    timestamp: float
    active: bool
    """False once undone or summarised: the model is not shown it any more."""
    role: Role
    content: str | list[dict[str, Any]] | None
    kind: InputKind | UnsetType = UNSET
    """For user messages that nobody typed: `steer`, `notice` or `summary`."""
    name: str | UnsetType = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    outcome: ToolOutcome | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    finish_reason: FinishReason | UnsetType = UNSET


class MessageList(Struct, frozen=True, kw_only=True):
    """A page of messages, oldest first."""

    object: Literal["list"] = "list"
    session_id: str
    data: tuple[MessageView, ...]
    limit: int
    offset: int
    has_more: bool


_SAME = (
    *("id", "source", "user_id", "title", "started_at", "ended_at", "end_reason", "preview"),
    *("message_count", "tool_call_count"),
)
_USED = tuple(name for name in SessionView.__struct_fields__ if name in Usage.__struct_fields__)


def session_view(call: Call[Any, Any], session: Session, *, whole: bool = False) -> SessionView:
    """Return a session as the caller may see it; `whole` with its system prompt."""
    admin = sees_everything(call.caller)
    same = {name: getattr(session, name) for name in _SAME}
    used = {name: getattr(session.usage, name) for name in _USED}
    return SessionView(
        **same,
        **used,
        model=agent_name(call, session.agent_id),
        language_model=session.model,
        last_active=session.updated_at,
        estimated_cost_usd=session.cost_usd,
        parent_session_id=session.parent_id,
        lineage=session.lineage,
        has_system_prompt=session.system_prompt is not None,
        cwd=session.cwd if admin else UNSET,
        system_prompt=session.system_prompt if admin and whole else UNSET,
    )


def message_view(stored: StoredMessage) -> MessageView:
    message = stored.message
    fields: dict[str, Any] = {}
    match message:
        case UserMessage(kind=kind, content=said):
            fields = {
                "role": "user",
                "content": said if isinstance(said, str) else [openai_part(part) for part in said],
                "kind": UNSET if kind is InputKind.USER else kind,
                "name": message.sender or UNSET,
            }
        case AssistantMessage(tool_calls=calls, reasoning=reasoning):
            fields = {
                "role": "assistant",
                "content": message.text or None if calls else message.text,
                "finish_reason": message.finish,
                "reasoning": (reasoning and reasoning.text) or UNSET,
                **handed_fields(calls),
            }
        case ToolMessage():
            fields = {
                "role": "tool",
                "content": content_text(message.content),
                "tool_call_id": message.call_id,
                "tool_name": message.name,
                "outcome": message.outcome,
            }
    return MessageView(
        id=stored.id,
        session_id=stored.session_id,
        seq=stored.seq,
        timestamp=stored.at,
        active=stored.active,
        **fields,
    )


RESERVED = frozenset({"search"})
"""Ids that mean something else in a path."""

NewId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:\-]*(?!\n)$", max_length=128)]
Title = Annotated[str, Meta(min_length=1, max_length=100)]


class NewSessionBody(Struct, frozen=True, kw_only=True):
    """A session to open; an id is made up if there is none."""

    id: NewId | None = None
    session_id: NewId | None = None
    """The same as `id`."""
    model: Annotated[str, Meta(max_length=256)] | None = None
    """The name of an agent."""
    system_prompt: Annotated[str, Meta(max_length=65_536)] | None = None
    """Instructions for every turn that comes in over HTTP."""
    title: Title | None = None


class SessionsQuery(PageQuery, frozen=True, kw_only=True):
    source: Annotated[str, Meta(max_length=64)] | None = None
    include_children: bool = False
    """Also sessions in which work was delegated."""
    q: Annotated[str, Meta(max_length=200)] | None = None
    """A part of the title."""
    user: Annotated[str, Meta(max_length=512)] | None = None
    """Only those that were opened for this `user` of the key."""


class SessionChange(Struct, frozen=True, kw_only=True):
    """What to change."""

    title: Title | UnsetType = UNSET
    end_reason: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    """Ends the session for this reason."""


class DeletedSession(Struct, frozen=True, kw_only=True):
    """A session that is gone."""

    object: Literal["hermes.session.deleted"] = "hermes.session.deleted"
    id: str
    deleted: bool = True


def chosen_id(now: float, *given: str | None) -> str:
    ids = {each for each in given if each is not None}
    if len(ids) > 1:
        raise Problem(400, "`id` and `session_id` differ.", code="conflicting_ids", param="id")
    for each in ids:
        if each in RESERVED:
            raise Problem(400, f"`{each}` cannot be an id.", code="invalid_id", param="id")
        return each
    return f"api_{int(now)}_{secrets.token_hex(4)}"


async def _opened(
    call: Call[Any, Any], agent_id: str, body: "NewSessionBody | ForkBody", parent: Session | None
) -> Session:
    """Open a session, or a branch of `parent`; 409 for a taken id, 400 for a taken title."""
    ledger = call.context.ledger
    fresh = call.context.gateway.new_session(agent_id, PLATFORM, owner_tag(call.caller.key_id))
    new_id = chosen_id(fresh.started_at, body.id, body.session_id)
    taken = f"There is already a session `{new_id}`."
    if await ledger.session(new_id) is not None:
        raise Problem(409, taken, code="session_exists", param="id")
    title = body.title and call.context.redact(body.title)
    new = replace(fresh, id=new_id, title=title)
    try:
        if parent is None:
            return await ledger.create_session(new)
        branch = replace(
            new,
            model=parent.model or new.model,
            provider=parent.provider or new.provider,
            cwd=parent.cwd or new.cwd,
            lineage=Lineage.BRANCH,
            parent_id=parent.id,
        )
        return await ledger.branch_session(parent.id, branch)
    except Conflict as error:
        if await ledger.session(new_id) is not None:
            raise Problem(409, taken, code="session_exists", param="id") from error
        raise _title_taken(error) from error


def _title_taken(error: Conflict) -> Problem:
    return Problem(400, problem_of(error).message, code="title_taken", param="title")


@operation("POST /api/sessions", 404, 409, status=201)
async def create_session(call: Call[NewSessionBody, None]) -> SessionBody:
    """Open a session."""
    body, context = call.body, call.context
    session = await _opened(call, (await require_agent(call, body.model)).agent_id, body, None)
    if body.system_prompt:
        await context.ledger.remember(session.id, FACT, context.redact(body.system_prompt))
    return SessionBody(session=session_view(call, session))


@operation("GET /api/sessions")
async def list_sessions(call: Call[None, SessionsQuery]) -> SessionList:
    """List sessions, most recently used first."""
    query, caller = call.query, call.caller
    admin = sees_everything(caller)

    async def read(agent_id: str | None, limit: int) -> Sequence[Session]:
        if not admin and query.source not in (None, PLATFORM):
            return ()
        wanted = SessionQuery(
            agent_id=agent_id,
            source=query.source if admin else PLATFORM,
            user_id=owner_tag(caller.key_id, query.user) if query.user else None,
            owner=None if admin else owner_tag(caller.key_id),
            exclude_lineages=() if query.include_children else (Lineage.DELEGATION,),
            title=query.q or None,
            limit=limit,
        )
        return await call.context.ledger.sessions(wanted)

    shown, page = await page_of(call, read, lambda session: session.updated_at)
    return SessionList(data=tuple(session_view(call, session) for session in shown), **page)


@operation("GET /api/sessions/{session_id}", 404)
async def get_session(call: Call[None, None]) -> SessionBody:
    """Read a session."""
    session = await reached_session(call, call.path["session_id"])
    return SessionBody(session=session_view(call, session, whole=True))


@operation("PATCH /api/sessions/{session_id}", 404)
async def change_session(call: Call[SessionChange, None]) -> SessionBody:
    """Rename or end a session."""
    session = await reached_session(call, call.path["session_id"])
    body, ledger = call.body, call.context.ledger
    if body.title is UNSET and body.end_reason is UNSET:
        raise Problem(400, "Give a `title` or an `end_reason`.", code="nothing_to_change")
    if body.title is not UNSET:
        try:
            await ledger.rename_session(session.id, call.context.redact(body.title))
        except Conflict as error:
            raise _title_taken(error) from error
    if body.end_reason is not UNSET:
        reason = call.context.redact(body.end_reason)
        await ledger.end_session(session.id, reason, call.context.clock.now())
    changed = await reached_session(call, session.id)
    return SessionBody(session=session_view(call, changed))


@operation("DELETE /api/sessions/{session_id}", 404, 409)
async def delete_session(call: Call[None, None]) -> DeletedSession:
    """Delete a session and its history."""
    session = await reached_session(call, call.path["session_id"])
    try:
        await call.context.ledger.delete_session(session.id, idle=True)
    except SessionBusy as error:
        message = "The session is busy. Stop its run first, or wait until it ends."
        raise Problem(409, message, code="session_busy") from error
    return DeletedSession(id=session.id)


class MessagesQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    active_only: bool = False
    """Only what the model is shown."""


class FindQuery(Struct, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    newest_first: bool = False
    user: Annotated[str, Meta(max_length=512)] | None = None
    """Only in sessions that were opened for this `user` of the key."""


class HitView(Struct, frozen=True, kw_only=True):
    """One message that matches."""

    session_id: str
    title: str | None
    source: str
    message_id: int
    seq: int
    role: Role
    timestamp: float
    snippet: str
    """The matching part, with the match between `[` and `]`."""


class HitList(Struct, frozen=True, kw_only=True):
    """What was found."""

    object: Literal["list"] = "list"
    data: tuple[HitView, ...]


@operation("GET /api/sessions/{session_id}/messages", 404)
async def list_session_messages(call: Call[None, MessagesQuery]) -> MessageList:
    """Read what was said in a session."""
    session = await reached_session(call, call.path["session_id"])
    query, ledger = call.query, call.context.ledger
    read = ledger.history if query.active_only else ledger.transcript
    messages = await read(session.id)
    end = query.offset + query.limit
    return MessageList(
        session_id=session.id,
        data=tuple(message_view(each) for each in messages[query.offset : end]),
        limit=query.limit,
        offset=query.offset,
        has_more=len(messages) > end,
    )


@operation("GET /api/sessions/search")
async def search_sessions(call: Call[None, FindQuery]) -> HitList:
    """Search in the messages of all sessions."""
    query, caller = call.query, call.caller
    admin = sees_everything(caller)
    hits: list[SearchHit] = []
    for agent_id in agents_filter(caller):
        wanted = SearchQuery(
            text=query.q,
            agent_id=agent_id,
            user_id=owner_tag(caller.key_id, query.user) if query.user else None,
            owner=None if admin else owner_tag(caller.key_id),
            newest_first=query.newest_first,
            limit=query.limit,
        )
        hits += await call.context.ledger.search(wanted)
    if not admin:
        hits = [hit for hit in hits if hit.source == PLATFORM]
    found = (asdict(hit) for hit in hits[: query.limit])
    return HitList(data=tuple(HitView(timestamp=hit.pop("at"), **hit) for hit in found))


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


@operation("POST /api/sessions/{session_id}/fork", 404, 409, status=201)
async def fork_session(call: Call[ForkBody, None]) -> SessionBody:
    """Fork a session."""
    parent = await reached_session(call, call.path["session_id"])
    body, ledger = call.body, call.context.ledger
    cut = None
    if body.through is not None:
        cut = cut_after(await ledger.history(parent.id), body.through)
    session = await _opened(call, parent.agent_id, body, parent)
    if cut is not None:
        await ledger.rewind(session.id, cut + 1)
    kept = await kept_instructions(ledger, parent.id)
    if kept:
        await ledger.remember(session.id, FACT, kept)
    forked = await reached_session(call, session.id)
    return SessionBody(session=session_view(call, forked))


chat_operation = Operations("sessions", Action.RUN)

Said = Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
Instructions = Annotated[str, Meta(max_length=262_144)]


class SessionChatBody(AnswerOptions, frozen=True, kw_only=True):
    """What is said; either `message` or `input`."""

    message: Said | None = None
    """Text, content parts, or items such as results of the client's tools."""
    input: Said | None = None
    """The same."""
    system_message: Instructions | None = None
    """For this turn only."""
    instructions: Instructions | None = None
    """The same."""
    model: Short | None = None
    """The agent of the session; another one is refused."""


class SessionChatMessage(Struct, frozen=True, kw_only=True):
    """What the agent says."""

    role: Literal["assistant"] = "assistant"
    content: str
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET


class SessionChatAnswer(Struct, frozen=True, kw_only=True):
    """The answer."""

    object: Literal["hermes.session.chat.completion"] = "hermes.session.chat.completion"
    session_id: str
    run_id: str
    model: str
    message: SessionChatMessage
    usage: dict[str, Any]
    incomplete: bool | UnsetType = UNSET
    """True if the answer was cut off."""


ChatCall = Call[SessionChatBody, None]


@chat_operation(
    "POST /api/sessions/{session_id}/chat", *STARTS_RUN, 502, answers={200: SessionChatAnswer}
)
async def chat_in_session(call: ChatCall) -> Answer:
    """Say something in a session."""
    run = await _started(call)
    ended = await attended(call, call.context.runs.wait(run), stopper(call, run))
    if ended.outcome is None and not call.context.gateway.draining:
        message = "The session was deleted before its answer was read."
        raise Problem(404, message, code="run_not_found")
    headers = {"X-Hermes-Session-Id": run.session_id}
    return JsonAnswer(value=_answer(call, ended), headers=headers)


@chat_operation(
    "POST /api/sessions/{session_id}/chat/stream", *STARTS_RUN, answers={200: Events(SessionEvent)}
)
async def stream_chat_in_session(call: ChatCall) -> Answer:
    """Say something in a session and follow the answer."""
    run, context = await _started(call), call.context
    stream = SessionStream(run.session_id, run.id, now=context.clock.now, redact=context.redact)
    return StreamAnswer(
        chunks=chunks(context.runs.batches(run), stream.feed),
        headers={"X-Hermes-Session-Id": run.session_id},
        left=stopper(call, run, streams=True),
    )


async def _started(call: ChatCall) -> Run:
    session = await reached_session(call, call.path["session_id"])
    body = call.body
    if body.model:
        check_agent(session, (await require_agent(call, body.model)).agent_id)
    if (body.message is None) == (body.input is None):
        raise Problem(400, "Give either `message` or `input`.", code="message_missing")
    if (retried := await retried_run(call)) is not None:
        return retried
    talk = conversation(body.input or body.message or "")
    told = body.instructions or body.system_message
    choice = SessionChoice(session_id=session.id)
    return await started(call, session.agent_id, choice, talk, told, RunKind.SESSION)


def _answer(call: ChatCall, run: Run) -> SessionChatAnswer:
    """Return the answer of a run that has one."""
    outcome = run.outcome
    if outcome is None:
        raise Draining(f"Hermes is stopping. The run {run.id} is kept and continues later.")
    if outcome.state is RunState.FAILED:
        raise Problem(502, str(error_fields(outcome.error)["message"]), code="agent_incomplete")
    if outcome.state is RunState.CANCELLED:
        raise Problem(409, "The run was stopped.", code="run_cancelled")
    return SessionChatAnswer(
        session_id=run.session_id,
        run_id=run.id,
        model=agent_name(call, run.agent_id),
        message=SessionChatMessage(content=outcome.text, **handed_fields(outcome.handed)),
        usage=usage_fields(outcome),
        incomplete=True if outcome.state is RunState.INCOMPLETE else UNSET,
    )
