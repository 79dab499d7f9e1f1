"""Decoding chat completions: deltas of choice 0; all that servers vary is optional."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.messages import AssistantMessage, FinishReason, Reasoning
from hermes.domain.ports.model import FailureKind
from hermes.domain.usage import Usage
from hermes.models.thinking import ThinkSplitter
from hermes.models.tool_call_deltas import CallAssembler
from hermes.models.wire import Decoded, Sink, WireFault

__all__ = ["ChatDecoder"]

_PROTOCOL = "chat_completions"
_FINISH = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
}


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | list[Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None


class _Groq(Struct):
    usage: _Usage | None = None


class _Chunk(Struct):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    error: Any = None
    message: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk, strict=False)


class ChatDecoder:
    """Builds one reply."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._split = ThinkSplitter(sink.text, sink.reasoning)
        self._calls = CallAssembler()
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self._model = ""
        self._refused = False
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take the data of one server-sent event."""
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        self._take(self._decode(data), whole=False)

    def feed_document(self, data: bytes) -> None:
        """Take the whole answer of a server that does not stream."""
        chunk = self._decode(data)
        if not chunk.choices and chunk.error is None:
            raise WireFault("The provider's answer holds no choices.", kind=FailureKind.MALFORMED)
        self._take(chunk, whole=True)
        self.done = True
        if self._finish is None:
            self._finish = "stop"

    def finish(self) -> Decoded:
        """Return what arrived."""
        self._split.close()
        text, thought = "".join(self._split.text), "".join(self._split.reasoning)
        if (halves := self._split.unopened()) is not None:
            thought, text = halves
            self._sink.restart()
            self._sink.reasoning(thought)
            self._sink.text(text)
        reasoning = "".join(self._reasoning) or thought.strip()
        if self._split.opened:
            text = text.strip()
        calls = self._calls.calls()
        found = None
        if reasoning or self._details:
            details = tuple(_joined(self._details))
            found = Reasoning(text=reasoning, details=details, protocol=_PROTOCOL)
        message = AssistantMessage(
            text=text, tool_calls=calls, reasoning=found, finish=self._reason(bool(calls))
        )
        return Decoded(
            message=message,
            usage=_usage(self._usage),
            model=self._model,
            complete=self._finish is not None or self.done,
            cost_usd=self._usage.cost if self._usage is not None else None,
        )

    def _reason(self, called: bool) -> FinishReason:  # noqa: FBT001 - private, one caller
        if self._refused:
            return FinishReason.CONTENT_FILTER
        reason = _FINISH.get((self._finish or "stop").lower(), FinishReason.STOP)
        if called and reason is FinishReason.STOP:
            return FinishReason.TOOL_CALLS
        if reason is FinishReason.TOOL_CALLS and not called:
            return FinishReason.STOP
        return reason

    @staticmethod
    def _decode(data: bytes) -> _Chunk:
        try:
            return _chunk_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise WireFault(
                f"The provider sent something that is not a chat completion: {error}.",
                kind=FailureKind.MALFORMED,
            ) from error

    def _take(self, chunk: _Chunk, *, whole: bool) -> None:
        if chunk.error is not None:
            raise _stream_fault(chunk.error)
        if chunk.model:
            self._model = chunk.model
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is not None:
            self._usage = usage
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        if choice.error is not None:
            raise _stream_fault(choice.error)
        delta = choice.message if whole or choice.delta is None else choice.delta
        if delta is not None:
            self._take_delta(delta)
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _take_delta(self, delta: _Delta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._reasoning.append(thought)
            self._sink.reasoning(thought)
        if delta.reasoning_details:
            self._details += delta.reasoning_details
        content = delta.content
        if content:
            self._split.feed(content if isinstance(content, str) else _part_texts(content))
        if delta.refusal:
            self._refused = True
            self._split.feed(delta.refusal)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._take_call(call)

    def _take_call(self, call: _CallDelta) -> None:
        function = call.function or _Function()
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        self._calls.add(call.index, call.id or "", function.name or "", arguments or "")


def _part_texts(parts: list[Any]) -> str:
    return "".join(
        str(part.get("text") or "") if isinstance(part, dict) else str(part) for part in parts
    )


def _stream_fault(error: Any) -> WireFault:
    if not isinstance(error, dict):
        return WireFault(str(error))
    code = error.get("code") or error.get("type") or ""
    status = code if isinstance(code, int) else None
    if isinstance(code, str) and code.isdigit():
        status = int(code)
    return WireFault(str(error.get("message") or error), status=status, code=str(code))


def _joined(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the fragments of each reasoning block, by index and type."""
    blocks: list[dict[str, Any]] = []
    for piece in details:
        last = blocks[-1] if blocks else None
        same = (
            last is not None
            and last.get("type") == piece.get("type")
            and last.get("index") == piece.get("index")
        )
        if last is None or not same:
            blocks.append(dict(piece))
            continue
        for name, value in piece.items():
            if name in {"text", "summary", "data"} and isinstance(value, str):
                last[name] = str(last.get(name) or "") + value
            elif value is not None:
                last[name] = value
    return blocks


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    prompt = usage.prompt_tokens_details or _PromptDetails()
    output = usage.completion_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=prompt.cached_tokens
        or usage.prompt_cache_hit_tokens
        or usage.cached_tokens
        or usage.cache_read_input_tokens
        or 0,
        cache_write_tokens=prompt.cache_write_tokens
        or prompt.cache_creation_tokens
        or usage.cache_creation_input_tokens
        or 0,
        reasoning_tokens=output.reasoning_tokens or usage.reasoning_tokens or 0,
    )
