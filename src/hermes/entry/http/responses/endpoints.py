"""`/v1/responses`: create, read, stream again, cancel, delete, list the input.

A request becomes a run; the response is what its turn says, folded. The
response before anything happened is kept with the run, so every later look at
it is made from the same parts.
"""

import asyncio
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from hermes.control.runs import RunRequest
from hermes.domain.errors import Conflict
from hermes.domain.ids import new_id
from hermes.domain.keys import Action
from hermes.domain.messages import Message, ToolMessage
from hermes.domain.runs import Run, RunKind
from hermes.entry.http.agents import require_agent
from hermes.entry.http.endpoint import EVENT_STREAM, Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.parts import AgentCard
from hermes.entry.http.problems import Problem
from hermes.entry.http.responses.continuity import find_place, reached_response
from hermes.entry.http.responses.forgetting import forget_response
from hermes.entry.http.responses.listing import input_page, listed_input
from hermes.entry.http.responses.options import Origin, base_resource, turn_options
from hermes.entry.http.responses.reading import InputReader, ReadInput
from hermes.entry.http.responses.serving import answer_at_once, answer_whole, streamed
from hermes.entry.http.responses.wire import (
    CreateResponse,
    DeletedResponse,
    GetQuery,
    InputItem,
    InputItemList,
    InputItemsQuery,
)
from hermes.streaming.responses.resource import ResponseResource

__all__ = ["ENDPOINTS"]

KEPT_WHEN_TRUNCATED = 100
STOPPING_SECONDS = 10.0
CreateCall = Call[CreateResponse, None]


async def create_response(call: CreateCall) -> Answer:
    """Answer a request: as one object, as a stream, or later."""
    agent = require_agent(call, call.body.model)
    run = await _earlier_run(call)
    if run is None:
        run = (await call.parts.runs.start(await _run_request(call, agent))).run
    if call.body.stream:
        return streamed(call.parts, run)
    if call.body.background:
        return await answer_at_once(call, run)
    return await answer_whole(call, run)


async def get_response(call: Call[None, GetQuery]) -> Answer:
    """Return a response as it stands, or its events."""
    run = await reached_response(call, call.path["response_id"])
    after = call.query.starting_after
    if not call.query.stream:
        return await answer_at_once(call, run)
    if not run.logged and (after is not None or run.outcome is None):
        message = "Only a response that was created with `background` can be streamed again."
        raise Problem(400, message, code="not_in_background", param="stream")
    return streamed(call.parts, run, after)


async def cancel_response(call: Call[None, None]) -> Answer:
    """Stop a response that is in progress; one that has ended stays as it is."""
    run = await reached_response(call, call.path["response_id"])
    await _stopped(call, run)
    return await answer_at_once(call, run)


async def delete_response(call: Call[None, None]) -> Answer:
    """Stop a response if need be, and forget it."""
    run = await reached_response(call, call.path["response_id"])
    if (await _stopped(call, run)).outcome is None:
        message = "The response is still in progress and could not be stopped."
        raise Problem(409, message, code="response_in_progress")
    await forget_response(call.parts.ledger, run)
    return JsonAnswer(value=DeletedResponse(id=run.id))


async def list_input_items(call: Call[None, InputItemsQuery]) -> Answer:
    """Return what was put into a response."""
    run = await reached_response(call, call.path["response_id"])
    return JsonAnswer(value=input_page(run, call.query))


async def _stopped(call: Call[Any, Any], run: Run) -> Run:
    """Stop a run and return it as it ended, or as it stands if that takes too long."""
    if run.outcome is not None:
        return run
    await call.parts.runs.stop(run)
    try:
        async with asyncio.timeout(STOPPING_SECONDS):
            return await call.parts.runs.ended(run)
    except TimeoutError:
        return run


async def _earlier_run(call: CreateCall) -> Run | None:
    """Return the run that the same request started before, under its idempotency key.

    What the request names may be gone by now, so it is not looked at again.
    """
    key = call.headers.idempotency_key
    run = await call.parts.ledger.run_under(call.caller.key_id, key) if key else None
    if run is not None and run.request.get("fingerprint") != call.fingerprint:
        raise Conflict("This Idempotency-Key was used for another request.", hint="Use a new one.")
    return run


async def _run_request(call: CreateCall, agent: AgentCard) -> RunRequest:
    body = call.body
    if body.background and body.store is False:
        message = "A response in the background has to be stored."
        raise Problem(400, message, code="background_needs_store", param="background")
    options = turn_options(body)
    said = await _read(call)
    given = "\n\n".join(text for text in (options.instructions, *said.instructions) if text)
    place = await find_place(call, agent.agent_id, said, given)
    response_id = new_id("resp")
    return RunRequest(
        id=response_id,
        kind=RunKind.RESPONSE,
        key_id=call.caller.key_id,
        agent_id=agent.agent_id,
        choice=place.choice,
        text=place.said.text,
        attachments=place.said.attachments,
        results=place.said.results,
        history=_truncated(place.said.history) if body.truncation == "auto" else place.said.history,
        options=replace(options, instructions=place.instructions, title=place.named),
        user=body.user or body.safety_identifier,
        request=_kept(call, response_id, agent, own=place.own),
        idempotency_key=call.headers.idempotency_key,
        fingerprint=call.fingerprint,
        logged=bool(body.background),
    )


async def _read(call: CreateCall) -> ReadInput:
    body, reader = call.body, InputReader(call.parts.media)
    await reader.read(body.conversation_history or (), "conversation_history")
    if isinstance(body.input, str):
        await reader.read((InputItem(role="user", content=body.input),), "input")
    else:
        await reader.read(body.input or (), "input")
    said = reader.done()
    if not said.text.strip() and not said.attachments and not said.results:
        message = "There is nothing to answer: `input` has no message of the user."
        raise Problem(400, message, code="missing_required_parameter", param="input")
    return said


def _kept(call: CreateCall, response_id: str, agent: AgentCard, *, own: bool) -> dict[str, Any]:
    """Return what later looks at the response are made from."""
    origin = Origin(id=response_id, model=agent.name, at=call.parts.clock.now())
    return {
        "response": to_builtins(base_resource(call.body, origin)),
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


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="createResponse",
        method="POST",
        path="/v1/responses",
        summary="Create a response",
        tag="responses",
        handler=create_response,
        action=Action.RUN,
        body=CreateResponse,
        answers={200: (ResponseResource, EVENT_STREAM)},
        problems=(404, 409, 429, 503),
    ),
    Endpoint(
        name="getResponse",
        method="GET",
        path="/v1/responses/{response_id}",
        summary="Read a response, or stream it again",
        tag="responses",
        handler=get_response,
        action=Action.RUN,
        query=GetQuery,
        answers={200: (ResponseResource, EVENT_STREAM)},
        problems=(404,),
    ),
    Endpoint(
        name="cancelResponse",
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        summary="Stop a response",
        tag="responses",
        handler=cancel_response,
        action=Action.RUN,
        answers={200: ResponseResource},
        problems=(404,),
    ),
    Endpoint(
        name="deleteResponse",
        method="DELETE",
        path="/v1/responses/{response_id}",
        summary="Delete a response",
        tag="responses",
        handler=delete_response,
        action=Action.RUN,
        answers={200: DeletedResponse},
        problems=(404, 409),
    ),
    Endpoint(
        name="listInputItems",
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        summary="List what was put into a response",
        tag="responses",
        handler=list_input_items,
        action=Action.RUN,
        query=InputItemsQuery,
        answers={200: InputItemList},
        problems=(404,),
    ),
)
