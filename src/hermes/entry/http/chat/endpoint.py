"""`POST /v1/chat/completions`: a request becomes a run, its turn the answer.

Without session headers the request is a conversation of its own, with the
messages it brings as history. Results of tools that the client carried out go
to the session in which their calls wait, so that what the agent did there
itself is not forgotten between the two requests.

A client that leaves interrupts its turn, unless it sent an `Idempotency-Key`:
then the repeat of the request picks the turn up.
"""

import secrets
from collections.abc import AsyncIterator

from msgspec.structs import replace

from hermes.control.runs import RunDesk, RunRequest
from hermes.domain.keys import Action
from hermes.domain.ports.model import ModelFailure
from hermes.domain.runs import Run, RunKind, SessionChoice
from hermes.domain.turn_options import ClientResult
from hermes.entry.http.agents import require_agent
from hermes.entry.http.chat.answers import completion, failure, helper_result, streamed
from hermes.entry.http.chat.helper_calls import HelperCall, helper_call
from hermes.entry.http.chat.messages import Conversation, history_of, read_conversation
from hermes.entry.http.chat.options import turn_options
from hermes.entry.http.chat.wire import ChatCompletion, ChatRequest
from hermes.entry.http.choices import owns_session, session_choice
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    Answer,
    Call,
    Endpoint,
    JsonAnswer,
    StreamAnswer,
)
from hermes.entry.http.leaving import attended, stopper
from hermes.entry.http.media import picture
from hermes.entry.http.problems import Problem
from hermes.entry.http.session_instructions import instructions_for
from hermes.streaming.chat_outcome import ChatCollector, ChatResult
from hermes.streaming.sse_chat import ChatStream

__all__ = ["ENDPOINTS"]

ChatCall = Call[ChatRequest, None]


async def complete(call: ChatCall) -> Answer:
    """Answer a conversation, as one body or as a stream."""
    agent = require_agent(call, call.body.model)
    helper = helper_call(call.body, call.headers, call.parts.helper_patterns)
    if helper is not None:
        return await _help(call, agent.agent_id, agent.name, helper)
    request = await _run_request(call, agent.agent_id)
    started = await call.parts.runs.start(request)
    run = started.run
    headers = {"X-Hermes-Session-Id": run.session_id, "X-Hermes-Run-Id": run.id}
    stop = None if call.headers.idempotency_key else stopper(call.parts.runs, run)
    if call.body.stream:
        chunks = _chunks(call.parts.runs, run, _stream(call, run.id, run.created_at, agent.name))
        return StreamAnswer(chunks=chunks, headers=headers, left=stop)
    result = await attended(call, _result(call.parts.runs, run), stop)
    result = replace(result, text=call.parts.redact(result.text))
    if not result.text.strip() and not result.finished.handed and result.incomplete is not None:
        return JsonAnswer(value=failure(result), status=502, headers=headers)
    body = completion(run.id, run.created_at, agent.name, result)
    return JsonAnswer(value=body, headers=headers)


async def _run_request(call: ChatCall, agent_id: str) -> RunRequest:
    body = call.body
    talk = read_conversation(body.messages)
    options = turn_options(body, talk.instructions)
    choice, results = await _session(call, agent_id, talk)
    media = call.parts.media
    own = choice == SessionChoice()
    named = call.headers.session_id is not None or call.headers.session_key is not None
    if choice.session_id is not None:
        kept = await instructions_for(call.parts.ledger, choice.session_id, options.instructions)
        options = replace(options, instructions=kept)
    return RunRequest(
        id=_completion_id(),
        kind=RunKind.CHAT,
        key_id=call.caller.key_id,
        agent_id=agent_id,
        choice=choice,
        text=talk.text,
        attachments=tuple([await picture(one.url, media, one.param) for one in talk.pictures]),
        results=results,
        options=replace(options, title=named),
        history=await history_of(talk.earlier, media) if own else (),
        user=body.user,
        request={"metadata": body.metadata} if body.metadata else {},
        idempotency_key=call.headers.idempotency_key,
        fingerprint=call.fingerprint,
    )


async def _session(
    call: ChatCall, agent_id: str, talk: Conversation
) -> tuple[SessionChoice, tuple[ClientResult, ...]]:
    """Return the session that the request continues and the results for calls in it."""
    ledger = call.parts.ledger
    choice = await session_choice(call.caller, call.headers, agent_id, ledger)
    waiting = {await ledger.handed_call(result.call_id) for result in talk.results}
    if choice != SessionChoice():
        expected = choice.session_id
        known = waiting - {None} if expected is None else waiting & {expected}
        if not known and not talk.text and not talk.pictures and not await _repeated(call):
            raise Problem(
                400,
                "No call with one of these ids waits for its result in this session.",
                code="tool_call_not_found",
                param="messages",
            )
        return choice, talk.results
    if len(waiting) != 1:
        return choice, ()
    session = await ledger.session(waiting.pop() or "")
    if session is None or session.agent_id != agent_id or not owns_session(call.caller, session):
        return choice, ()
    return SessionChoice(session_id=session.id), talk.results


async def _repeated(call: ChatCall) -> bool:
    """Tell whether the request was accepted before: its calls do not wait any more."""
    key = call.headers.idempotency_key
    if key is None:
        return False
    return await call.parts.ledger.run_under(call.caller.key_id, key) is not None


async def _result(runs: RunDesk, run: Run) -> ChatResult:
    collector = ChatCollector()
    async for event in runs.events(run):
        result = collector.feed(event)
        if result is not None:
            return result
    raise AssertionError("the last event of a run is always its end")


async def _chunks(runs: RunDesk, run: Run, stream: ChatStream) -> AsyncIterator[bytes]:
    yield stream.opening()
    async for batch in runs.batches(run):
        if chunk := b"".join([stream.feed(event) for event in batch]):
            yield chunk


async def _help(call: ChatCall, agent_id: str, name: str, helper: HelperCall) -> Answer:
    """Answer a helper call of a web interface: no agent, no session."""
    body = call.body
    limit = body.max_completion_tokens or body.max_tokens
    try:
        reply = await call.parts.side_calls.answer(agent_id, helper.task, helper.messages, limit)
    except ModelFailure as error:
        text = f"{error.message} {error.hint}".strip()
        raise Problem(502, text, code="agent_incomplete") from error
    headers = {"X-Hermes-Task": helper.task}
    completion_id, now = _completion_id(), call.parts.clock.now()
    if body.stream:
        whole = streamed(_stream(call, completion_id, now, name), reply)
        return StreamAnswer(chunks=_one(whole), headers=headers)
    answer = completion(completion_id, now, name, helper_result(reply))
    return JsonAnswer(value=answer, headers=headers)


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


def _stream(call: ChatCall, completion_id: str, created: float, model: str) -> ChatStream:
    options = call.body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    return ChatStream(
        completion_id,
        created,
        model,
        include_usage=include_usage,
        redact=call.parts.redact,
    )


def _completion_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="createChatCompletion",
        method="POST",
        path="/v1/chat/completions",
        summary="Answer a conversation, in the form that OpenAI clients know.",
        tag="chat",
        handler=complete,
        action=Action.RUN,
        body=ChatRequest,
        answers={200: (ChatCompletion, EVENT_STREAM)},
        problems=(404, 409, 429, 502, 503),
    ),
)
