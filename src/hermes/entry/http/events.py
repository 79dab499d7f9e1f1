"""Schemas of streamed events: the `data` of each event, by the stream that sends it.

Streams are put together from bytes in `streaming/wire`; what stands here is for the OpenAPI
document, and the tests read real streams with it. A field that only some events have is left out
of the others.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from hermes.streaming.wire.chat import ChatUsage, Finish, Incomplete
from hermes.streaming.wire.response_resource import Item, OutputText, ResponseResource, SummaryText

Fields = dict[str, Any]


class StreamEvent(Struct, frozen=True, kw_only=True):
    """A server-sent event as it is on the wire."""

    data: str
    """The JSON of what the stream tells, or `[DONE]`."""
    event: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class ChunkFunction(Struct, frozen=True, kw_only=True):
    """A piece of what the client should call."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    """To be joined with those before."""


class ChunkCall(Struct, frozen=True, kw_only=True):
    """A piece of a call for the client to carry out."""

    index: int
    """Which call it belongs to."""
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: ChunkFunction | UnsetType = UNSET


class ChunkDelta(Struct, frozen=True, kw_only=True):
    """What has come since the last chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    """What the model thought."""
    tool_calls: tuple[ChunkCall, ...] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    """The one answer, as far as this chunk goes."""

    index: int
    delta: ChunkDelta
    logprobs: Fields | None = None
    finish_reason: Finish | None
    """Null until the last chunk."""


class ChatCompletionChunk(Struct, frozen=True, kw_only=True):
    """A chunk of a chat completion, or an event named `hermes.*` in the form of one.

    After the last one comes `[DONE]`.
    """

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    """The name of the agent that answers."""
    choices: tuple[ChunkChoice, ...] | UnsetType = UNSET
    """In every chunk but one that has nothing but an `error`."""
    usage: ChatUsage | UnsetType | None = UNSET
    """In the last chunk."""
    hermes: Incomplete | UnsetType = UNSET
    """Only if the answer is not complete."""
    error: Fields | UnsetType = UNSET
    """Why there is no answer."""
    tool: str | UnsetType = UNSET
    """`hermes.tool.progress`: the tool that the agent runs itself."""
    toolCallId: str | UnsetType = UNSET  # noqa: N815 - its name on the wire
    emoji: str | UnsetType = UNSET
    label: str | UnsetType = UNSET
    """What the tool is called for, in a few words."""
    status: Literal["running", "completed", "failed"] | UnsetType = UNSET
    approval: Fields | UnsetType = UNSET
    """`hermes.approval.*`: what waits for an answer, or how it was answered."""
    code: str | UnsetType = UNSET
    """`hermes.notice`: what it is about."""
    level: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class ResponseStreamEvent(Struct, frozen=True, kw_only=True):
    """An event of a response: `response.*`, `error`, or one of Hermes itself."""

    type: str
    """`response.created`, `response.output_text.delta`, `response.completed`, ..."""
    sequence_number: int
    """From 0, without a gap."""
    response: ResponseResource | UnsetType = UNSET
    """The response as it is, in `response.created`, `.in_progress`, `.completed`, ..."""
    output_index: int | UnsetType = UNSET
    """Which item of the output it is about."""
    item: Item | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: OutputText | SummaryText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    """What has come of a text or of arguments since the last event."""
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    logprobs: tuple[Fields, ...] | UnsetType = UNSET
    code: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
    error: Fields | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    """Of Hermes' own events, with further fields."""


class EventFields(Struct, frozen=True, kw_only=True):
    """What the events of runs and of chats with sessions have in common."""

    delta: str | UnsetType = UNSET
    """What has come of the text, or of the reasoning."""
    text: str | UnsetType | None = UNSET
    call_id: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    emoji: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    tool_calls: tuple[Fields, ...] | UnsetType = UNSET
    """Calls that the client has to carry out, or those of a message."""
    id: str | UnsetType = UNSET
    """Of an approval, whose further fields are those of `ApprovalView`."""
    code: str | UnsetType = UNSET
    usage: Fields | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    """`usage`: what the turn has used so far, with the fields below."""
    output_tokens: int | UnsetType = UNSET
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET
    cost_usd: float | UnsetType | None = UNSET


class RunEvent(EventFields, frozen=True, kw_only=True):
    """An event of a run; its id is that of the stream, for `Last-Event-ID`."""

    event: str
    """`run.started`, `message.delta`, `message.completed`, `message.reset`, `reasoning.delta`,
    `tool.started`, `tool.progress`, `tool.completed`, `approval.request`, `approval.responded`,
    `steer.taken`, `notice`, `usage`, and at the end `run.completed`, `run.failed` or
    `run.cancelled`."""
    run_id: str
    timestamp: float
    session_id: str | UnsetType = UNSET
    turn_id: str | UnsetType = UNSET
    message_id: int | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """`message.reset`: `retry` or `resume`."""
    messages: tuple[Fields, ...] | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    """The answer."""
    error: bool | Fields | UnsetType = UNSET
    """Why the run failed; of a tool, whether it did."""
    level: str | UnsetType = UNSET
    context_tokens: int | UnsetType = UNSET
    context_window: int | UnsetType | None = UNSET


class SessionEvent(EventFields, frozen=True, kw_only=True):
    """An event of a chat with a session; its name is that of the event in the stream."""

    session_id: str
    run_id: str
    seq: int
    ts: float
    message: Fields | str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    completed: bool | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET
    resumes: int | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
