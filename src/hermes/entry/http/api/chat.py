"""`POST /v1/chat/completions`: a request becomes a run, its turn the answer.

Without session headers the messages tell which conversation it is: the one in which exactly
these were said, in a branch of it if it has gone on since, or else a new one with the messages as
its history. This is equality, not guessing. Results of tools that the client carried out go
to the session in which their calls wait, so that what the agent did there
itself is not forgotten between the two requests.

A client that leaves interrupts its turn, unless it sent an `Idempotency-Key`:
then the repeat of the request picks the turn up. So does the retry of an SDK that counts
them, if it comes within seconds. A turn that is cut off by the end of the process is an error.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hermes.control.follow import goes_on_later
from hermes.control.runs.runs import Draining, RunRequest
from hermes.domain.events import MessageCompleted, TextDelta, TurnEvent, TurnFinished
from hermes.domain.keys import Action
from hermes.domain.messages import FinishReason
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.model import ModelFailure, ModelReply
from hermes.domain.runs import Run, RunKind, SessionChoice
from hermes.domain.turn import TurnState
from hermes.entry.http.access import (
    earlier_run,
    outcome_headers,
    require_agent,
    retried_run,
    run_headers,
    session_choice,
)
from hermes.entry.http.api.consent import TypedAnswer, consent
from hermes.entry.http.api.conversation import (
    ChatMessage,
    Conversation,
    digest_of,
    read_conversation,
)
from hermes.entry.http.api.helper_calls import HelperCall, helper_call
from hermes.entry.http.api.media import shown_batches, shown_events
from hermes.entry.http.api.options import AnswerOptions, run_request, turn_options
from hermes.entry.http.api.same_chat import same_chat
from hermes.entry.http.endpoint import (
    STARTS_RUN,
    Answer,
    Call,
    CallHeaders,
    Events,
    HttpContext,
    JsonAnswer,
    Operations,
    StreamAnswer,
)
from hermes.entry.http.errors import Problem
from hermes.entry.http.events import ChatCompletionChunk
from hermes.entry.http.sse import attended, chunks, stopper
from hermes.streaming.wire.chat import (
    FELL_SHORT,
    ChatResult,
    ChatStream,
    ChatUsage,
    Finish,
    Incomplete,
    chat_result,
    chat_usage,
    failure_fields,
)
from hermes.streaming.wire.frames import told_logprobs

operation = Operations("chat", Action.RUN)


class StreamOptions(Struct, frozen=True, kw_only=True):
    """How to stream."""

    include_usage: bool | None = None
    """Send the usage in a chunk of its own, as OpenAI does, not with the last one."""


class ChatRequest(AnswerOptions, frozen=True, kw_only=True):
    """A conversation and what is wanted of the answer."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=2000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class AnswerFunction(Struct, frozen=True, kw_only=True):
    """What the client should call."""

    name: str
    arguments: str


class AnswerCall(Struct, frozen=True, kw_only=True):
    """A call for the client to carry out."""

    id: str
    type: Literal["function"] = "function"
    function: AnswerFunction


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """What the agent says."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    """What the model thought, if it shows that."""
    refusal: str | None = None
    tool_calls: list[AnswerCall] | UnsetType = UNSET


class AnswerLogprobs(Struct, frozen=True, kw_only=True):
    """How probable the tokens of the answer were."""

    content: tuple[dict[str, Any], ...]
    refusal: None = None


class AnswerChoice(Struct, frozen=True, kw_only=True):
    """The one answer."""

    index: int = 0
    message: AnswerMessage
    logprobs: AnswerLogprobs | None = None
    finish_reason: Finish


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    """The name of the agent that answered."""
    choices: list[AnswerChoice]
    usage: ChatUsage
    hermes: Incomplete | UnsetType = UNSET
    """Only if the answer is not complete."""


def _completion(
    completion_id: str, created: float, model: str, result: ChatResult
) -> ChatCompletion:
    calls = [
        AnswerCall(id=call.id, function=AnswerFunction(name=call.name, arguments=call.arguments))
        for call in result.finished.handed
    ]
    message = AnswerMessage(
        content=None if calls and not result.text else result.text,
        reasoning_content=result.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
    told = result.finished.logprobs
    choice = AnswerChoice(
        message=message,
        logprobs=AnswerLogprobs(content=told_logprobs(told)) if told else None,
        finish_reason=result.finish_reason,
    )
    return ChatCompletion(
        id=completion_id,
        created=int(created),
        model=model,
        choices=[choice],
        usage=chat_usage(result.finished.usage),
        hermes=result.incomplete or UNSET,
    )


def _events(reply: ModelReply) -> tuple[TurnEvent, ...]:
    """Return the answer of a plain model call in the form of a turn's."""
    blocked = reply.message.finish is FinishReason.INTERRUPTED
    finished = TurnFinished(
        outcome=TurnState.INTERRUPTED if blocked else TurnState.DONE,
        text=reply.message.text,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        model_calls=1,
    )
    completed = MessageCompleted(message_id=0, message=reply.message)
    return TextDelta(reply.message.text), completed, finished


ChatCall = Call[ChatRequest, None]


@operation(
    "POST /v1/chat/completions",
    *STARTS_RUN,
    502,
    answers={200: (ChatCompletion, Events(ChatCompletionChunk))},
)
async def create_chat_completion(call: ChatCall) -> Answer:
    """Answer a conversation, in the form that OpenAI clients know."""
    agent = await require_agent(call, call.body.model)
    helper = helper_of(call.body, call.headers, call.context.helper_patterns)
    if helper is not None:
        return await _help(call, agent.agent_id, agent.name, helper)
    run = await retried_run(call)
    if run is None:
        request, given = await _run_request(call, agent.agent_id)
        run = (await call.context.runs.start(request)).run
        await given.give(call)
    headers, stop = run_headers(run), stopper(call, run, streams=bool(call.body.stream))
    if call.body.stream:
        stream = _stream(call, run.id, run.created_at, agent.name)
        batches = shown_batches(call.context, run, call.context.runs.batches(run))
        told = chunks(batches, stream.feed, stream.opening())
        return StreamAnswer(chunks=told, headers=headers, left=stop)
    result = await attended(call, _result(call.context, run), stop)
    if goes_on_later(result.finished):
        raise Draining(f"Hermes is stopping. The run {run.id} is kept and continues later.")
    redact = call.context.redact
    result = replace(result, text=redact(result.text), reasoning=redact(result.reasoning))
    missing = result.incomplete
    headers |= outcome_headers(
        partial=missing is not None and missing.partial,
        error=redact(missing.error or missing.error_code) if missing else "",
    )
    empty = not result.text.strip() and not result.finished.handed
    if empty and missing is not None and missing.cause not in FELL_SHORT:
        error = {**failure_fields(result.finished), "hermes": missing}
        return JsonAnswer(value={"error": error}, status=502, headers=headers)
    answer = _completion(run.id, run.created_at, agent.name, result)
    return JsonAnswer(value=answer, headers=headers)


def helper_of(
    request: ChatRequest, headers: CallHeaders, patterns: Sequence[SafePattern] = ()
) -> HelperCall | None:
    bare = not request.tools and request.response_format is None
    named = (request.metadata or {}).get("task")
    return helper_call(request.messages, headers, named, patterns, bare=bare)


async def _run_request(call: ChatCall, agent_id: str) -> tuple[RunRequest, TypedAnswer]:
    body = call.body
    talk = read_conversation(body.messages)
    options = turn_options(body, talk.instructions)
    options = replace(options, stream_calls=bool(body.stream))
    choice, digest = await _session(call, agent_id, talk), None
    if choice == SessionChoice():
        digest = digest_of(talk.earlier[:-1]) if talk.prefill else talk.digest
        found = await same_chat(call, agent_id, talk)
        choice, talk = found.choice, found.talk
    given = await consent(call, agent_id, choice, talk)
    choice = given.choice
    named = call.headers.session_id is not None or call.headers.session_key is not None
    prefill = talk.prefill or None
    if choice != SessionChoice() and not choice.opened:
        talk = replace(talk, earlier=())
    request = await run_request(
        call,
        agent_id,
        choice,
        talk,
        options,
        title=named,
        id=_completion_id(),
        kind=RunKind.CHAT,
        digest=digest,
        request={**given.kept(call), "prefill": prefill},
    )
    return request, given


async def _session(call: ChatCall, agent_id: str, talk: Conversation) -> SessionChoice:
    ledger = call.context.ledger
    choice = await session_choice(call, agent_id)
    if choice == SessionChoice():
        return choice
    waiting = {await ledger.handed_call(result.call_id) for result in talk.results}
    expected = choice.session_id
    known = waiting - {None} if expected is None else waiting & {expected}
    new = known or talk.text or talk.pictures or not talk.results
    if not new and await earlier_run(call) is None:
        message = "No call with one of these ids waits for its result in this session."
        raise Problem(400, message, code="tool_call_not_found", param="messages")
    return choice


async def _result(context: HttpContext, run: Run) -> ChatResult:
    return chat_result([event async for event in shown_events(context, run)])


async def _help(call: ChatCall, agent_id: str, name: str, helper: HelperCall) -> Answer:
    """Answer a helper call of a web interface: no agent, no session."""
    body = call.body
    limit = body.max_completion_tokens or body.max_tokens
    try:
        reply = await call.context.side_calls.answer(agent_id, helper.task, helper.messages, limit)
    except ModelFailure as error:
        text = f"{error.message} {error.hint}".strip()
        raise Problem(502, text, code="agent_incomplete") from error
    headers = {"X-Hermes-Task": helper.task}
    completion_id, now = _completion_id(), call.context.clock.now()
    if body.stream:
        stream = _stream(call, completion_id, now, name)
        whole = stream.opening() + b"".join(map(stream.feed, _events(reply)))
        return StreamAnswer(chunks=_one(whole), headers=headers)
    answer = _completion(completion_id, now, name, chat_result(_events(reply)))
    return JsonAnswer(value=answer, headers=headers)


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


def _stream(call: ChatCall, completion_id: str, created: float, model: str) -> ChatStream:
    options = call.body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    redact = call.context.redact
    return ChatStream(completion_id, created, model, include_usage=include_usage, redact=redact)


def _completion_id() -> str:
    return f"chatcmpl-{secrets.token_urlsafe(9)}"
