"""`/v1/responses`: create, read, stream again, cancel, delete, list the input.

A request becomes a run; the response is what its turn says, folded. The
response before anything happened is kept with the run, so every later look at
it is made from the same parts.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from msgspec import convert, to_builtins
from msgspec.structs import replace

from hermes.control.runs.runs import RunRequest
from hermes.domain.errors import Conflict, SessionBusy
from hermes.domain.events import TurnEvent, TurnFinished
from hermes.domain.ids import new_id
from hermes.domain.keys import Action
from hermes.domain.messages import Message, ToolMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import Run, RunKind, RunQuery, RunState
from hermes.entry.http.access import require_agent, run_headers
from hermes.entry.http.api.conversation import (
    ContentPart,
    ImageUrl,
    InputItem,
    read_items,
    run_request,
)
from hermes.entry.http.api.responses_request import (
    CreateResponse,
    DeletedResponse,
    GetQuery,
    InputItemList,
    InputItemsQuery,
    base_resource,
    find_session,
    reached_response,
    turn_options,
)
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    STARTS_RUN,
    Answer,
    Call,
    HttpContext,
    JsonAnswer,
    Operations,
    ServedAgent,
    StreamAnswer,
)
from hermes.entry.http.errors import Problem
from hermes.entry.http.sse import Stop, attended
from hermes.streaming.wire.frames import DONE
from hermes.streaming.wire.responses import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputText,
    ResponseEvent,
    ResponseResource,
    ResponseStream,
)

operation = Operations("responses", Action.RUN)

KEEP_FOR_REPEATS = 86400.0
_PAGE = 200
_ENDED = tuple(state for state in RunState if not state.open)


def is_stored(run: Run) -> bool:
    """Tell whether a response may be asked for later."""
    return bool(run.request.get("store", True))


async def forget_response(ledger: Ledger, run: Run) -> None:
    """Delete a response, and the session that was opened for it alone."""
    await ledger.delete_run(run.id)
    if not run.request.get("own_session"):
        return
    if not await ledger.runs(RunQuery(session_id=run.session_id, limit=1)):
        # Somebody may be going on in it just now; then it is not ours alone any more.
        with suppress(SessionBusy):
            await ledger.delete_session(run.session_id, idle=True)


async def forget_unstored(ledger: Ledger, now: float) -> int:
    """Delete what should have been deleted before; return how many responses."""
    forgotten = offset = 0
    while True:
        query = RunQuery(kinds=(RunKind.RESPONSE,), states=_ENDED, limit=_PAGE, offset=offset)
        page = await ledger.runs(query)
        due = [run for run in page if not is_stored(run) and _due(run, now)]
        for run in due:
            await forget_response(ledger, run)
        forgotten += len(due)
        offset += len(page) - len(due)
        if len(page) < _PAGE:
            return forgotten


def _due(run: Run, now: float) -> bool:
    return run.idempotency_key is None or run.updated_at < now - KEEP_FOR_REPEATS


_LOG_PAGE = 1000


async def answer_whole(call: Call[Any, Any], run: Run) -> Answer:
    """Answer when the response has ended; a client that leaves meanwhile interrupts it."""
    stop = None if run.idempotency_key else _stopper(call.context, run)
    ended = await attended(call, call.context.runs.wait(run), stop)
    value = await response_of(call.context, ended)
    await _forget_unstored(call.context, ended)
    return JsonAnswer(value=value, headers=run_headers(run))


async def answer_at_once(call: Call[Any, Any], run: Run) -> Answer:
    """Answer with the response as it stands."""
    current = await call.context.runs.get(run.id) or run
    value = await response_of(call.context, current)
    return JsonAnswer(value=value, headers=run_headers(run))


def streamed(context: HttpContext, run: Run, after: int | None = None) -> StreamAnswer:
    """Answer with the events of a response whose numbers are greater than `after`."""
    stop = None if run.logged or run.idempotency_key else _stopper(context, run)
    return StreamAnswer(chunks=_chunks(context, run, after), headers=run_headers(run), left=stop)


async def response_of(context: HttpContext, run: Run) -> ResponseResource:
    fold = _fold(context, run)
    if run.outcome is None:
        await _catch_up(context, run, fold)
        return fold.resource
    async for event in context.runs.events(run):
        _feed(fold, event, run)
    return fold.resource


def _fold(context: HttpContext, run: Run) -> ResponseStream:
    base = convert(run.request["response"], ResponseResource)
    return ResponseStream(base, context.redact)


def _feed(fold: ResponseStream, event: TurnEvent, ended: Run) -> list[ResponseEvent]:
    if not isinstance(event, TurnFinished):
        return fold.feed(event)
    state = ended.outcome.state if ended.outcome else None
    return fold.finish(event, state, ended.updated_at)


async def _catch_up(context: HttpContext, run: Run, fold: ResponseStream) -> None:
    """Fold what the log has so far."""
    after = 0
    while run.logged and (
        page := await context.ledger.run_log(run.id, after=after, limit=_LOG_PAGE)
    ):
        for logged in page:
            fold.feed(logged.event)
        after = page[-1].seq


async def _chunks(context: HttpContext, run: Run, after: int | None) -> AsyncIterator[bytes]:
    fold, ended = _fold(context, run), run
    seen = -1 if after is None else after
    if chunk := _framed(fold.begin(), seen):
        yield chunk
    async for batch in _batches(context, run):
        if isinstance(batch[-1], TurnFinished):
            ended = await context.runs.wait(run)
        told = [each for event in batch for each in _feed(fold, event, ended)]
        if chunk := _framed(told, seen):
            yield chunk
    yield DONE
    await _forget_unstored(context, ended)


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


def _stopper(context: HttpContext, run: Run) -> Stop:
    async def stop() -> None:
        await context.runs.stop(run, left=True)
        if not is_stored(run):
            await _forget_unstored(context, await context.runs.wait(run))

    return stop


async def _forget_unstored(context: HttpContext, run: Run) -> None:
    if not is_stored(run) and run.idempotency_key is None and run.outcome is not None:
        await forget_response(context.ledger, run)


_Asking = Literal["user", "system", "developer"]


def listed_input(body: CreateResponse, response_id: str) -> tuple[Item, ...]:
    """Return the items of a request under the ids they are listed with."""
    token = response_id.removeprefix("resp_")
    items: Sequence[InputItem]
    if isinstance(body.input, str):
        items = (InputItem(role="user", content=body.input),)
    else:
        items = body.input or ()
    listed = (_listed(item, f"{token}_in{number}") for number, item in enumerate(items))
    return tuple(item for item in listed if item is not None)


def input_page(run: Run, query: InputItemsQuery) -> InputItemList:
    items = convert(run.request.get("input", []), list[Item])
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


def _listed(item: InputItem, token: str) -> Item | None:
    if item.type == "function_call":
        return FunctionCallItem(
            id=f"fc_{token}",
            call_id=item.call_id or "",
            name=item.name or "",
            arguments=item.arguments or "{}",
            status="completed",
        )
    if item.type == "function_call_output":
        return FunctionCallOutputItem(
            id=f"fco_{token}",
            call_id=item.call_id or "",
            output=_given_parts(item.output or ""),
            status="completed",
        )
    if item.type == "reasoning":
        return None
    return _message(item, f"msg_{token}")


def _message(item: InputItem, item_id: str) -> MessageItem:
    content = item.content or ""
    if item.role == "assistant":
        return MessageItem(
            id=item_id, status="completed", role="assistant", content=_said_parts(content)
        )
    parts = _given_parts(content)
    shown = (InputText(text=parts),) if isinstance(parts, str) else parts
    role = item.role if item.role in ("system", "developer") else "user"
    return MessageItem(id=item_id, status="completed", role=cast("_Asking", role), content=shown)


def _said_parts(content: str | Sequence[ContentPart]) -> tuple[OutputText, ...]:
    if isinstance(content, str):
        return (OutputText(text=content),)
    return tuple(OutputText(text=part.text or part.refusal or "") for part in content)


def _given_parts(
    content: str | Sequence[ContentPart],
) -> str | tuple[InputText | InputImage, ...]:
    if isinstance(content, str):
        return content
    return tuple(_given_part(part) for part in content)


def _given_part(part: ContentPart) -> InputText | InputImage:
    if part.type not in ("input_image", "image_url"):
        return InputText(text=part.text or part.refusal or "")
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    inline = url is None or url[:5].lower() == "data:"
    return InputImage(image_url=None if inline else url, detail=part.detail or "auto")


KEPT_WHEN_TRUNCATED = 100
STOPPING_SECONDS = 10.0
CreateCall = Call[CreateResponse, None]


@operation("POST /v1/responses", *STARTS_RUN, answers={200: (ResponseResource, EVENT_STREAM)})
async def create_response(call: CreateCall) -> Answer:
    """Create a response."""
    agent = require_agent(call, call.body.model)
    run = await _earlier_run(call)
    if run is None:
        run = (await call.context.runs.start(await _run_request(call, agent))).run
    if call.body.stream:
        return streamed(call.context, run)
    if call.body.background:
        return await answer_at_once(call, run)
    return await answer_whole(call, run)


@operation("GET /v1/responses/{response_id}", 404, answers={200: (ResponseResource, EVENT_STREAM)})
async def get_response(call: Call[None, GetQuery]) -> Answer:
    """Read a response, or stream it again."""
    run = await reached_response(call, call.path["response_id"])
    after = call.query.starting_after
    if not call.query.stream:
        return await answer_at_once(call, run)
    if not run.logged and (after is not None or run.outcome is None):
        message = "Only a response that was created with `background` can be streamed again."
        raise Problem(400, message, code="not_in_background", param="stream")
    return streamed(call.context, run, after)


@operation("POST /v1/responses/{response_id}/cancel", 404, answers={200: ResponseResource})
async def cancel_response(call: Call[None, None]) -> Answer:
    """Stop a response."""
    run = await reached_response(call, call.path["response_id"])
    await _stopped(call, run)
    return await answer_at_once(call, run)


@operation("DELETE /v1/responses/{response_id}", 404, 409)
async def delete_response(call: Call[None, None]) -> DeletedResponse:
    """Delete a response."""
    run = await reached_response(call, call.path["response_id"])
    if (await _stopped(call, run)).outcome is None:
        message = "The response is still in progress and could not be stopped."
        raise Problem(409, message, code="response_in_progress")
    await forget_response(call.context.ledger, run)
    return DeletedResponse(id=run.id)


@operation("GET /v1/responses/{response_id}/input_items", 404)
async def list_input_items(call: Call[None, InputItemsQuery]) -> InputItemList:
    """List what was put into a response."""
    run = await reached_response(call, call.path["response_id"])
    return input_page(run, call.query)


async def _stopped(call: Call[Any, Any], run: Run) -> Run:
    """Stop a run and return it as it ended, or as it stands if that takes too long."""
    if run.outcome is not None:
        return run
    await call.context.runs.stop(run)
    try:
        async with asyncio.timeout(STOPPING_SECONDS):
            return await call.context.runs.wait(run)
    except TimeoutError:
        return run


async def _earlier_run(call: CreateCall) -> Run | None:
    """Return the run that the same request started before, under its idempotency key.

    What the request names may be gone by now, so it is not looked at again.
    """
    key = call.headers.idempotency_key
    run = await call.context.ledger.run_under(call.caller.key_id, key) if key else None
    if run is not None and run.request.get("fingerprint") != call.fingerprint:
        raise Conflict("This Idempotency-Key was used for another request.", hint="Use a new one.")
    return run


async def _run_request(call: CreateCall, agent: ServedAgent) -> RunRequest:
    body = call.body
    if body.background and body.store is False:
        message = "A response in the background has to be stored."
        raise Problem(400, message, code="background_needs_store", param="background")
    options = turn_options(body)
    said = read_items(
        ("conversation_history", body.conversation_history or ()), ("input", body.input or ())
    )
    given = "\n\n".join(text for text in (options.instructions, said.instructions) if text)
    place = await find_session(call, agent.agent_id, said)
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
        user=body.user or body.safety_identifier,
        request=_kept(call, response_id, agent, own=place.own),
        logged=bool(body.background),
    )
    if body.truncation == "auto":
        request = replace(request, history=_truncated(request.history))
    return request


def _kept(call: CreateCall, response_id: str, agent: ServedAgent, *, own: bool) -> dict[str, Any]:
    """Return what later looks at the response are made from."""
    base = base_resource(call.body, response_id, agent.name, call.context.clock.now())
    return {
        "response": to_builtins(base),
        "input": to_builtins(listed_input(call.body, response_id)),
        "store": call.body.store is not False,
        "own_session": own,
        "fingerprint": call.fingerprint,
    }


def _truncated(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the last messages, never a result without its call."""
    kept = history[-KEPT_WHEN_TRUNCATED:]
    while kept and isinstance(kept[0], ToolMessage):
        kept = kept[1:]
    return kept
