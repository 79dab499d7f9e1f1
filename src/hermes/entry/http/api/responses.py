"""`/v1/responses`: create, read, stream again, cancel, delete, list the input.

A request becomes a run; the response is what its turn says, folded. The
response before anything happened is kept with the run, so every later look at
it is made from the same parts.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from hermes.control.runs.runs import Draining, RunRequest
from hermes.domain.errors import Conflict, SessionBusy
from hermes.domain.events import TurnEvent, TurnFinished
from hermes.domain.ids import new_id
from hermes.domain.keys import Action
from hermes.domain.messages import Message, ToolMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import RETRIED_WITHIN, Run, RunKind, RunQuery, RunState, SessionChoice
from hermes.domain.session import Session
from hermes.entry.http.access import (
    AnyCall,
    check_agent,
    earlier_run,
    outcome_headers,
    owns_session,
    require_agent,
    retried_run,
    run_headers,
    session_choice,
    session_key_of,
    waiting_session,
)
from hermes.entry.http.api.consent import TypedAnswer, consent
from hermes.entry.http.api.conversation import Conversation, InputItem, Short, joined, read_items
from hermes.entry.http.api.media import shown_batches, shown_events
from hermes.entry.http.api.options import run_request, turn_options
from hermes.entry.http.api.responses_request import (
    CreateResponse,
    base_resource,
    conversation_name,
    listed_input,
)
from hermes.entry.http.api.same_chat import same_chat
from hermes.entry.http.endpoint import (
    STARTS_RUN,
    Answer,
    Call,
    Connection,
    Events,
    HttpContext,
    JsonAnswer,
    Operations,
    ServedAgent,
    StreamAnswer,
)
from hermes.entry.http.errors import Problem
from hermes.entry.http.events import ResponseStreamEvent
from hermes.entry.http.sse import Stop, attended, stopper
from hermes.streaming.wire.frames import DONE
from hermes.streaming.wire.response_resource import Item, ResponseResource
from hermes.streaming.wire.responses import ResponseEvent, ResponseStream

operation = Operations("responses", Action.RUN)
CreateCall = Call[CreateResponse, None]

CREATED = re.compile(r"conv_[0-9a-f]{24}\Z")
"""The id of a conversation that was created, and is no name of the client's choice."""
KEEP_FOR_REPEATS = 86400.0
KEEP_FOR_SOCKETS = 3600.0
"""As old as a connection may get that remembers what is not stored."""
KEPT_WHEN_TRUNCATED = 100
STOPPING_SECONDS = 10.0
_PAGE = 200
_LOG_PAGE = 1000
_ENDED = tuple(state for state in RunState if not state.open)


class GetQuery(Struct, frozen=True, kw_only=True):
    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """The number of the last event that the client has."""


class InputItemsQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: Short | None = None


class InputItemList(Struct, frozen=True, kw_only=True):
    """What was put into a response."""

    object: Literal["list"] = "list"
    data: tuple[Item, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Struct, frozen=True, kw_only=True):
    """A response that is no more."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


# -- endpoints ---------------------------------------------------------------------


@operation(
    "POST /v1/responses",
    *STARTS_RUN,
    answers={200: (ResponseResource, Events(ResponseStreamEvent))},
    socket="response.create",
)
async def create_response(call: CreateCall) -> Answer:
    """Create a response."""
    agent = await require_agent(call, call.body.model)
    run = await _same_request(call)
    if run is None:
        items = await with_items(call, call.body.input or ())
        call = replace(call, body=replace(call.body, input=items))
        request, given = await _run_request(call, agent)
        run = (await call.context.runs.start(request)).run
        await given.give(call)
    if call.body.stream:
        return _streamed(call, run)
    if call.body.background:
        return await _answer_at_once(call, run)
    stop = None if run.idempotency_key else _stopper(call, run)
    ended = await attended(call, call.context.runs.wait(run), stop)
    if ended.outcome is None:
        raise Draining(f"Hermes is stopping. The response {run.id} is kept and continues later.")
    value = await _response(call.context, ended)
    await _forget_unstored(call.context, ended)
    return JsonAnswer(value=value, headers={**run_headers(run), **_flags(value)})


@operation(
    "GET /v1/responses/{response_id}",
    404,
    answers={200: (ResponseResource, Events(ResponseStreamEvent))},
)
async def get_response(call: Call[None, GetQuery]) -> Answer:
    """Read a response, or stream it again."""
    run = await _reached(call)
    after = call.query.starting_after
    if not call.query.stream:
        return await _answer_at_once(call, run)
    if not run.logged and (after is not None or run.outcome is None):
        message = "Only a response that was created with `background` can be streamed again."
        raise Problem(400, message, code="not_in_background", param="stream")
    return _streamed(call, run, after)


@operation("POST /v1/responses/{response_id}/cancel", 404, answers={200: ResponseResource})
async def cancel_response(call: Call[None, None]) -> Answer:
    """Stop a response."""
    run = await _reached(call)
    await _stopped(call, run)
    return await _answer_at_once(call, run)


@operation("DELETE /v1/responses/{response_id}", 404, 409)
async def delete_response(call: Call[None, None]) -> DeletedResponse:
    """Delete a response."""
    run = await _reached(call)
    if (await _stopped(call, run)).outcome is None:
        message = "The response is still in progress and could not be stopped."
        raise Problem(409, message, code="response_in_progress")
    await _forget(call.context.ledger, run)
    return DeletedResponse(id=run.id)


@operation("GET /v1/responses/{response_id}/input_items", 404)
async def list_input_items(call: Call[None, InputItemsQuery]) -> InputItemList:
    """List what was put into a response."""
    return input_page(await _reached(call), call.query)


def input_page(run: Run, query: InputItemsQuery) -> InputItemList:
    return item_page(convert(run.request.get("input", []), list[Item]), query)


def item_page(items: list[Item], query: InputItemsQuery) -> InputItemList:
    if query.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    start = ids.index(query.after) + 1 if query.after in ids else 0
    page = tuple(items[start : start + query.limit])
    return InputItemList(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=start + len(page) < len(items),
    )


async def _reached(call: AnyCall, previous: str | None = None) -> Run:
    """Return the stored response that is named in the path, or as `previous`; 404 otherwise."""
    response_id = call.path["response_id"] if previous is None else previous
    run = await call.context.runs.get(response_id)
    here = call.connection is not None and response_id in call.connection.unstored
    known = run is not None and run.kind is RunKind.RESPONSE and (here or _is_stored(run))
    if run is None or not known or not call.caller.owns(run.key_id, run.agent_id):
        message = f"There is no response `{response_id}`."
        if previous is None:
            raise Problem(404, message, code="response_not_found")
        status, code = 404 if call.connection is None else 400, "previous_response_not_found"
        raise Problem(status, message, code=code, param="previous_response_id")
    return run


async def with_items(
    call: AnyCall, given: str | Sequence[InputItem]
) -> str | tuple[InputItem, ...]:
    """Put the items that are referred to by their id in the place of the references."""
    if isinstance(given, str):
        return given
    found, known = list[InputItem](), dict[str, dict[str, Item]]()
    for number, item in enumerate(given):
        named = item.type == "item_reference" or (item.id and item == InputItem(id=item.id))
        if not named:
            found.append(item)
            continue
        token = (item.id or "").partition("_")[2].rpartition("_")[0]
        response_id = f"resp_{token}"
        if response_id not in known:
            known[response_id] = await _items_of(call, response_id)
        meant = known[response_id].get(item.id or "")
        if meant is None:
            message = f"There is no item `{item.id}`."
            raise Problem(404, message, code="item_not_found", param=f"input[{number}].id")
        found.append(convert(to_builtins(meant), InputItem))
    return tuple(found)


async def _items_of(call: AnyCall, response_id: str) -> dict[str, Item]:
    """Return the items of a response by their ids; none if it is out of reach."""
    try:
        run = await _reached(call, response_id)
    except Problem:
        return {}
    listed = convert(run.request.get("input", []), list[Item])
    made = (await _response(call.context, run)).output
    return {item.id: item for item in (*listed, *made)}


async def _stopped(call: AnyCall, run: Run) -> Run:
    """Stop a run and return it as it ended, or as it stands if that takes too long."""
    if run.outcome is not None:
        return run
    await call.context.runs.stop(run)
    try:
        async with asyncio.timeout(STOPPING_SECONDS):
            return await call.context.runs.wait(run)
    except TimeoutError:
        return run


# -- from the request to the run ---------------------------------------------------


async def _same_request(call: CreateCall) -> Run | None:
    """Return the run that the same request started before: under its key, or as an SDK's retry.

    What the request names may be gone by now, so it is not looked at again.
    """
    run = await earlier_run(call) or await retried_run(call)
    if run is not None and run.request.get("fingerprint") != call.fingerprint:
        raise Conflict("This Idempotency-Key was used for another request.", hint="Use a new one.")
    return run


async def _run_request(call: CreateCall, agent: ServedAgent) -> tuple[RunRequest, TypedAnswer]:
    body = call.body
    if body.background and body.store is False:
        message = "A response in the background has to be stored."
        raise Problem(400, message, code="background_needs_store", param="background")
    options = turn_options(body, body.instructions or "")
    options = replace(options, stream_calls=bool(body.stream and not body.background))
    said = read_items(
        ("conversation_history", body.conversation_history or ()), ("input", body.input or ())
    )
    given = joined([options.instructions, said.instructions])
    place = await find_session(call, agent.agent_id, said)
    answered = await consent(call, agent.agent_id, place.choice, place.said)
    if answered.choice != place.choice:
        new = replace(place.said, earlier=(), results=())
        known = answered.choice.session_id
        place = replace(place, choice=answered.choice, said=new, session_id=known)
    response_id = new_id("resp")
    request = await run_request(
        call,
        agent.agent_id,
        place.choice,
        place.said,
        replace(options, instructions=given),
        session_id=place.session_id,
        title=place.named,
        id=response_id,
        kind=RunKind.RESPONSE,
        digest=place.digest,
        request=_kept(call, response_id, agent, own=place.own) | answered.kept(call),
        logged=bool(body.background),
    )
    if body.truncation == "auto":
        request = replace(request, history=_truncated(request.history))
    return request, answered


def _kept(call: CreateCall, response_id: str, agent: ServedAgent, *, own: bool) -> dict[str, Any]:
    """Return what later looks at the response are made from."""
    base = base_resource(call.body, response_id, agent.name, call.context.clock.now())
    return {
        "response": to_builtins(base),
        "input": to_builtins(listed_input(call.body, response_id)),
        "store": base.store,
        "own_session": own,
        "retries": call.headers.retry_count is not None and call.connection is None,
        "fingerprint": call.fingerprint,
    }


def _truncated(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the last messages, never a result without its call."""
    kept = history[-KEPT_WHEN_TRUNCATED:]
    while kept and isinstance(kept[0], ToolMessage):
        kept = kept[1:]
    return kept


class ResponseSession(Struct, frozen=True, kw_only=True):
    choice: SessionChoice
    said: Conversation
    """What is new there."""
    session_id: str | None = None
    """The session, if it exists already."""
    own: bool = False
    """The session is there for this response and those that it goes on from."""
    named: bool = False
    """The client knows the conversation: it deserves a title."""
    digest: str | None = None
    """Of all that was said, if the client sent it."""


async def find_session(call: CreateCall, agent_id: str, said: Conversation) -> ResponseSession:
    body, ledger = call.body, call.context.ledger
    _only_one(call)
    if body.previous_response_id is not None:
        previous = await previous_response(call, agent_id, body.previous_response_id)
        handed = previous.outcome.handed if previous.outcome else ()
        _check_results(said, {waiting.id for waiting in handed})
        place = _continued(SessionChoice(after_run=previous.id), previous.session_id, said)
        return replace(place, own=bool(previous.request.get("own_session")))
    name = conversation_name(body)
    if name is not None:
        kept = await named_conversation(call, agent_id, name)
        choice = SessionChoice(session_id=kept.id) if kept else SessionChoice()
        if kept is None:
            choice = SessionChoice(key=session_key_of(agent_id, call.caller.key_id, name))
    else:
        choice = await session_choice(call, agent_id)
    if choice == SessionChoice():
        return await _own_or_waiting(call, agent_id, said)
    session = await ledger.session_for_key(choice.key) if choice.key else None
    known = choice.session_id or (session.id if session else None)
    if known is None or choice.opened:
        return ResponseSession(choice=choice, said=replace(said, results=()), named=True)
    calls = [one.call_id for one in said.results if await ledger.handed_call(one.call_id) == known]
    _check_results(said, set(calls))
    return _continued(choice, known, said)


async def named_conversation(call: AnyCall, agent_id: str, name: str) -> Session | None:
    """Return a conversation that was created, by its id; 404 if there was one and it is gone."""
    session = await call.context.ledger.session(name)
    if session is not None and owns_session(call.caller, session):
        check_agent(session, agent_id)
        return session
    if CREATED.match(name):
        message = f"There is no conversation `{name}`."
        raise Problem(404, message, code="conversation_not_found", param="conversation")
    return None


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


async def previous_response(call: AnyCall, agent_id: str, response_id: str) -> Run:
    run = await _reached(call, response_id)
    check_agent(run, agent_id)
    if run.outcome is None:
        message, param = f"Response `{response_id}` is still in progress.", "previous_response_id"
        raise Problem(409, message, code="response_in_progress", param=param)
    return run


def _check_results(said: Conversation, waiting: set[str]) -> None:
    for result in said.results:
        if result.call_id not in waiting:
            message = f"No call `{result.call_id}` waits for its output there."
            raise Problem(400, message, code="tool_call_not_found", param="input")


def _continued(choice: SessionChoice, session_id: str, said: Conversation) -> ResponseSession:
    if said.quotes_agent:
        message = "A conversation that is stored cannot be given further words of the agent."
        hint = "Send only what is new, or everything without naming a conversation."
        raise Problem(400, f"{message} {hint}", code="unsupported_value", param="input")
    new = said.continuing()
    return ResponseSession(choice=choice, session_id=session_id, said=new, named=True)


async def _own_or_waiting(call: CreateCall, agent_id: str, said: Conversation) -> ResponseSession:
    """Continue where all the calls wait whose results came; else in a session of its own."""
    session = await waiting_session(call, agent_id, (one.call_id for one in said.results))
    if session is None:
        new, choice = replace(said, results=()), SessionChoice()
        if not said.prefill:
            found = await same_chat(call, agent_id, new)
            new, choice = found.talk, found.choice
        if choice != SessionChoice():
            new = replace(new, earlier=())
        return ResponseSession(choice=choice, said=new, own=True, digest=said.digest)
    choice = SessionChoice(session_id=session.id)
    return ResponseSession(choice=choice, session_id=session.id, said=replace(said, earlier=()))


# -- from the run to the answer ----------------------------------------------------


def _flags(value: ResponseResource) -> dict[str, str]:
    if value.status == "completed":
        return outcome_headers(partial=False, error="")
    details = value.incomplete_details
    why = value.error.message if value.error else details.reason if details else value.status
    return outcome_headers(partial=bool(value.output), error=why)


async def _answer_at_once(call: AnyCall, run: Run) -> Answer:
    current = await call.context.runs.get(run.id) or run
    return JsonAnswer(value=await _response(call.context, current), headers=run_headers(run))


def _streamed(call: AnyCall, run: Run, after: int | None = None) -> StreamAnswer:
    """Answer with the events of a response whose numbers are greater than `after`."""
    context, lasting = call.context, run.logged or run.idempotency_key
    stop = None if lasting else _stopper(call, run, streams=True)
    chunks = _chunks(context, run, after, call.connection)
    return StreamAnswer(chunks=chunks, headers=run_headers(run), left=stop)


async def _response(context: HttpContext, run: Run) -> ResponseResource:
    stream = _stream(context, run)
    if run.outcome is not None:
        async for event in shown_events(context, run):
            stream.feed(event, run)
        return stream.resource
    after = 0
    while run.logged and (
        page := await context.ledger.run_log(run.id, after=after, limit=_LOG_PAGE)
    ):
        for logged in page:
            stream.feed(logged.event)
        after = page[-1].seq
    return stream.resource


def _stream(context: HttpContext, run: Run) -> ResponseStream:
    return ResponseStream(convert(run.request["response"], ResponseResource), context.redact)


async def _chunks(
    context: HttpContext, run: Run, after: int | None, connection: Connection | None
) -> AsyncIterator[bytes]:
    stream, ended = _stream(context, run), run
    seen = -1 if after is None else after
    if chunk := _framed(stream.begin(), seen):
        yield chunk
    async for batch in shown_batches(context, run, _batches(context, run)):
        if isinstance(batch[-1], TurnFinished):
            ended = await context.runs.wait(run)
        told = [each for event in batch for each in stream.feed(event, ended)]
        if chunk := _framed(told, seen):
            yield chunk
    if connection is None:
        yield DONE
        await _forget_unstored(context, ended)
        return
    if ended.outcome is not None and ended.outcome.state is RunState.FAILED:
        await connection.forget(run.request["response"].get("previous_response_id") or "")
    if not _is_stored(run):
        await connection.remember(run.id, partial(_forget_unstored, context, ended))


async def _batches(context: HttpContext, run: Run) -> AsyncIterator[Sequence[TurnEvent]]:
    told = False
    if run.logged:
        async for logged in context.runs.log(run):
            told = True
            yield [logged.event]
    if not told:  # never logged, or the log is older than logs are kept
        async for batch in context.runs.batches(run):
            yield batch


def _framed(events: list[ResponseEvent], after: int) -> bytes:
    return b"".join(event.frame() for event in events if event.sequence_number > after)


def _stopper(call: AnyCall, run: Run, *, streams: bool = False) -> Stop:
    context, leave = call.context, stopper(call, run, streams=streams)

    async def stop() -> None:
        if leave is not None:
            await leave()
        if not _is_stored(run):
            await _forget_unstored(context, await context.runs.wait(run))

    return stop


# -- responses that are not stored -------------------------------------------------


def _is_stored(run: Run) -> bool:
    """Tell whether a response may be asked for later."""
    return bool(run.request.get("store", True))


async def _forget_unstored(context: HttpContext, run: Run) -> None:
    if _is_stored(run) or run.outcome is None or not _due(run, context.clock.now()):
        return
    if run.request.get("retries"):
        # The answer may be lost on its way: a retry gets it, and does nothing once more.
        context.runs.later(RETRIED_WITHIN, partial(_forget, context.ledger, run))
    else:
        await _forget(context.ledger, run)


async def forget_unstored(ledger: Ledger, now: float, *, at_start: bool = False) -> int:
    """Delete what should have been deleted before; return how many responses.

    At the start of a process the sockets of earlier ones are gone; only retries may still come.
    """

    def kept(run: Run) -> float:
        own = RETRIED_WITHIN if run.request.get("retries") else 0.0
        return own if at_start else KEEP_FOR_SOCKETS

    forgotten = offset = 0
    while True:
        query = RunQuery(kinds=(RunKind.RESPONSE,), states=_ENDED, limit=_PAGE, offset=offset)
        page = await ledger.runs(query)
        due = [run for run in page if not _is_stored(run) and _due(run, now - kept(run))]
        for run in due:
            await _forget(ledger, run)
        forgotten += len(due)
        offset += len(page) - len(due)
        if len(page) < _PAGE:
            return forgotten


def _due(run: Run, now: float) -> bool:
    asked = run.outcome is not None and run.outcome.asked is not None
    kept = run.idempotency_key is not None or asked
    return run.updated_at <= now - (KEEP_FOR_REPEATS if kept else 0.0)


async def _forget(ledger: Ledger, run: Run) -> None:
    """Delete a response, and the session that was opened for it alone."""
    await ledger.delete_run(run.id)
    if not run.request.get("own_session"):
        return
    if not await ledger.runs(RunQuery(session_id=run.session_id, limit=1)):
        # Somebody may continue it just now; then it is not ours alone any more.
        with suppress(SessionBusy):
            await ledger.delete_session(run.session_id, idle=True)
