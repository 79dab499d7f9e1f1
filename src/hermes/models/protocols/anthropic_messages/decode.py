"""Decoding Anthropic Messages: blocks by index, usage counted our way."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.messages import AssistantMessage, FinishReason, Reasoning, ToolCall
from hermes.domain.ports.model import FailureKind
from hermes.domain.usage import Usage
from hermes.models.wire import Decoded, Sink, WireFault

__all__ = ["MessagesDecoder"]

_PROTOCOL = "anthropic_messages"
_FINISH = {
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
}
_STATUS = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "timeout_error": 504,
}


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Message(Struct):
    model: str = ""
    content: list[dict[str, Any]] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_event_decoder = msgspec.json.Decoder(_Event, strict=False)
_message_decoder = msgspec.json.Decoder(_Message, strict=False)


class _Block:
    __slots__ = ("head", "pieces", "signature")

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self.pieces: list[str] = []
        self.signature = ""


class MessagesDecoder:
    """Builds one reply."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._blocks: dict[int, _Block] = {}
        self._model = ""
        self._stop: str | None = None
        self._usage = _Usage()
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take the data of one server-sent event."""
        try:
            event = _event_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise _malformed(error) from error
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._delta(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                self._begin(event.index, event.content_block)
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
            case "message_stop":
                self.done = True
            case "error":
                raise _stream_fault(event.error)

    def feed_document(self, data: bytes) -> None:
        """Take the whole answer of a server that does not stream."""
        try:
            message = _message_decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise _malformed(error) from error
        self._model = message.model
        self._stop = message.stop_reason or "end_turn"
        self._count(message.usage)
        for index, block in enumerate(message.content):
            self._begin(index, block)
        self.done = True

    def finish(self) -> Decoded:
        """Return what arrived."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(_text(block) for block in blocks if block.head["type"] == "text")
        calls = tuple(_call(block) for block in blocks if block.head["type"] == "tool_use")
        message = AssistantMessage(
            text=text,
            tool_calls=calls,
            reasoning=_reasoning(blocks),
            finish=_FINISH.get(self._stop or "", FinishReason.STOP),
        )
        if calls and message.finish is FinishReason.STOP:
            message = msgspec.structs.replace(message, finish=FinishReason.TOOL_CALLS)
        return Decoded(
            message=message,
            usage=self._total(),
            model=self._model,
            complete=self.done or self._stop is not None,
        )

    def _begin(self, index: int, head: dict[str, Any]) -> None:
        head.setdefault("type", "text")
        self._blocks[index] = _Block(head)
        if head["type"] == "text" and head.get("text"):
            self._sink.text(head["text"])
        elif head["type"] == "thinking" and head.get("thinking"):
            self._sink.reasoning(head["thinking"])

    def _delta(self, index: int, delta: _Delta) -> None:
        block = self._blocks.get(index)
        if block is None:
            kind = {"thinking_delta": "thinking", "input_json_delta": "tool_use"}
            block = self._blocks[index] = _Block({"type": kind.get(delta.type, "text")})
        if delta.text:
            block.pieces.append(delta.text)
            self._sink.text(delta.text)
        elif delta.thinking:
            block.pieces.append(delta.thinking)
            self._sink.reasoning(delta.thinking)
        elif delta.partial_json:
            block.pieces.append(delta.partial_json)
        elif delta.signature:
            block.signature += delta.signature

    def _count(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        for name in usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)

    def _total(self) -> Usage:
        read = self._usage.cache_read_input_tokens or 0
        write = self._usage.cache_creation_input_tokens or 0
        return Usage(
            input_tokens=(self._usage.input_tokens or 0) + read + write,
            output_tokens=self._usage.output_tokens or 0,
            cache_read_tokens=read,
            cache_write_tokens=write,
        )


def _text(block: _Block) -> str:
    return str(block.head.get("text") or "") + "".join(block.pieces)


def _call(block: _Block) -> ToolCall:
    arguments = "".join(block.pieces)
    if not arguments:
        given = block.head.get("input") or {}
        arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    return ToolCall(
        id=str(block.head.get("id") or ""),
        name=str(block.head.get("name") or ""),
        arguments=arguments,
    )


def _reasoning(blocks: list[_Block]) -> Reasoning | None:
    details: list[dict[str, Any]] = []
    texts: list[str] = []
    for block in blocks:
        if block.head["type"] == "redacted_thinking":
            details.append({"type": "redacted_thinking", "data": block.head.get("data", "")})
        elif block.head["type"] == "thinking":
            thought = str(block.head.get("thinking") or "") + "".join(block.pieces)
            signature = str(block.head.get("signature") or "") + block.signature
            texts.append(thought)
            if signature:
                details.append({"type": "thinking", "thinking": thought, "signature": signature})
    if not details and not texts:
        return None
    return Reasoning(text="\n".join(texts), details=tuple(details), protocol=_PROTOCOL)


def _malformed(error: Exception) -> WireFault:
    return WireFault(
        f"The provider sent something that is not a Messages event: {error}.",
        kind=FailureKind.MALFORMED,
    )


def _stream_fault(error: Any) -> WireFault:
    if not isinstance(error, dict):
        return WireFault(str(error))
    code = str(error.get("type") or "")
    return WireFault(str(error.get("message") or code), status=_STATUS.get(code), code=code)
