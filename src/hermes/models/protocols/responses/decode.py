"""Decoding OpenAI Responses: text from deltas, items when they are done."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.messages import AssistantMessage, FinishReason, Reasoning, ToolCall
from hermes.domain.ports.model import FailureKind
from hermes.domain.usage import Usage
from hermes.models.wire import Decoded, Sink, WireFault

__all__ = ["ResponsesDecoder"]

_PROTOCOL = "responses"
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_LAST = frozenset({"response.completed", "response.incomplete", "response.done"})
_CODES = {"rate_limit_exceeded": 429, "server_error": 500, "server_is_overloaded": 503}


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    model: str | None = None
    status: str | None = None
    output: list[dict[str, Any]] | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item: dict[str, Any] | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None
    code: str | None = None


_event_decoder = msgspec.json.Decoder(_Event, strict=False)
_response_decoder = msgspec.json.Decoder(_Response, strict=False)


class ResponsesDecoder:
    """Builds one reply."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._items: dict[int, dict[str, Any]] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._response = _Response()
        self._refused = False
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take the data of one server-sent event."""
        if data.startswith(b"[DONE]"):
            return
        try:
            event = _event_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise _malformed(error) from error
        kind = event.type
        if kind in _TEXT:
            self._refused = self._refused or kind == "response.refusal.delta"
            self._text.append(event.delta or "")
            self._sink.text(event.delta or "")
        elif kind in _REASONING:
            self._reasoning.append(event.delta or "")
            self._sink.reasoning(event.delta or "")
        elif kind == "response.output_item.done" and event.item is not None:
            index = len(self._items) if event.output_index is None else event.output_index
            self._items[index] = event.item
        elif kind in _LAST and event.response is not None:
            self._end(event.response)
        elif kind in {"response.failed", "error"}:
            raise _stream_fault(event)

    def feed_document(self, data: bytes) -> None:
        """Take the whole answer of a server that does not stream."""
        try:
            response = _response_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise _malformed(error) from error
        if response.error is not None:
            raise _fault(response.error)
        self._end(response)
        text, thought = _item_text(self._ordered()), _thought(self._ordered())
        if thought:
            self._sink.reasoning(thought)
        if text:
            self._sink.text(text)

    def finish(self) -> Decoded:
        """Return what arrived."""
        items = self._ordered()
        details = tuple(_replayable(item) for item in items if item.get("type") == "reasoning")
        thought = "".join(self._reasoning) or _thought(items)
        reasoning = None
        if details or thought:
            reasoning = Reasoning(text=thought, details=details, protocol=_PROTOCOL)
        calls = tuple(_call(item) for item in items if item.get("type") == "function_call")
        message = AssistantMessage(
            text="".join(self._text) or _item_text(items),
            tool_calls=calls,
            reasoning=reasoning,
            finish=self._finish(calls),
        )
        return Decoded(
            message=message,
            usage=_usage(self._response.usage),
            model=self._response.model or "",
            complete=self.done,
        )

    def _end(self, response: _Response) -> None:
        self._response = response
        self.done = True
        if not self._items:
            self._items = dict(enumerate(response.output or []))

    def _ordered(self) -> list[dict[str, Any]]:
        return [self._items[index] for index in sorted(self._items)]

    def _finish(self, calls: tuple[ToolCall, ...]) -> FinishReason:
        reason = self._response.incomplete_details
        if reason is not None and reason.reason == "content_filter":
            return FinishReason.CONTENT_FILTER
        if self._response.status == "incomplete":
            return FinishReason.LENGTH
        if self._refused:
            return FinishReason.CONTENT_FILTER
        return FinishReason.TOOL_CALLS if calls else FinishReason.STOP


def _call(item: dict[str, Any]) -> ToolCall:
    return ToolCall(
        id=str(item.get("call_id") or item.get("id") or ""),
        name=str(item.get("name") or ""),
        arguments=str(item.get("arguments") or ""),
    )


def _replayable(item: dict[str, Any]) -> dict[str, Any]:
    """Return a reasoning item as the provider wants it back: without its status."""
    kept = {name: item[name] for name in ("id", "type", "encrypted_content") if item.get(name)}
    return {**kept, "summary": item.get("summary") or []}


def _item_text(items: list[dict[str, Any]]) -> str:
    return "".join(
        str(part.get("text") or part.get("refusal") or "")
        for item in items
        if item.get("type") == "message"
        for part in item.get("content") or []
    )


def _thought(items: list[dict[str, Any]]) -> str:
    return "\n".join(
        str(part.get("text") or "")
        for item in items
        if item.get("type") == "reasoning"
        for part in item.get("summary") or []
    )


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    given = usage.input_tokens_details or _InputDetails()
    made = usage.output_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=given.cached_tokens or 0,
        cache_write_tokens=given.cache_write_tokens or 0,
        reasoning_tokens=made.reasoning_tokens or 0,
    )


def _malformed(error: Exception) -> WireFault:
    return WireFault(
        f"The provider sent something that is not a Responses event: {error}.",
        kind=FailureKind.MALFORMED,
    )


def _stream_fault(event: _Event) -> WireFault:
    if event.response is not None and event.response.error is not None:
        return _fault(event.response.error)
    if event.error is not None:
        return _fault(event.error)
    return WireFault(event.message or "the response failed", code=event.code or "")


def _fault(error: Any) -> WireFault:
    if not isinstance(error, dict):
        return WireFault(str(error))
    code = str(error.get("code") or error.get("type") or "")
    return WireFault(str(error.get("message") or code), status=_CODES.get(code), code=code)
