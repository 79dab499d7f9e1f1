"""Encoding Anthropic Messages.

A message becomes a run of content blocks; neighbours of the same role are
joined, because roles must alternate. Of the four cache breakpoints one goes
to the system prompt (which covers the tools before it) and three to the last
messages. What belongs to this call only follows the last breakpoint.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    ImagePart,
    Message,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    user_prefix,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.domain.usage import Usage
from hermes.models.bounds import CALLS, PARTS
from hermes.models.encode_common import (
    MARKED,
    LoweredCache,
    Mark,
    cache_mark,
    data_url,
    lowered_tools,
    object_arguments,
    own_reasoning,
    parts_of,
    sampled,
    wire_call,
)
from hermes.models.providers import ANTHROPIC_TIERS
from hermes.models.routes import ModelRoute
from hermes.models.wire import Decoded, Repairs, Sink, WireCall, encode_json, stream_fault

_PROTOCOL = "anthropic_messages"
_DEFAULT_OUTPUT = 16_000
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384}
_LARGE_BUDGET = 32_000
_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ADAPTIVE = re.compile(r"(opus|sonnet|haiku)-(4[-.][6-9]|[5-9])|fable|mythos")
_GO_ON = (
    b']},{"role":"user","content":[{"type":"text","text":"(Continue exactly where you stopped.)"}'
)
"""Newer models refuse to have their answer begun for them."""
_OPENING = b'{"role":"user","content":[{"type":"text","text":"(The conversation continues.)"}'


def encode(
    request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
) -> WireCall:
    lowering = _Lowering(route, repairs)
    chunks = cache.lower(request, lowering.chunks, _PROTOCOL, repairs)
    marked = lowering.with_marks(request.messages, chunks)
    body: dict[str, Any] = {"model": route.model}
    if request.tools:
        last = max(request.tools, key=lambda tool: tool.name)
        mark = None if request.system else lowering.mark
        body["tools"] = lowered_tools(
            request.tools, lambda tool: _marked(_tool(tool), mark if tool is last else None)
        )
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    if request.system:
        body["system"] = [_marked({"type": "text", "text": request.system}, lowering.mark)]
    said = [message for message in request.messages if not _is_empty(message)]
    goes_on = bool(said) and isinstance(said[-1], AssistantMessage)
    body["messages"] = _history([*marked, _GO_ON] if goes_on else marked)
    body["stream"] = not repairs.no_stream
    body |= _options(request, route)
    body |= route.extra_body
    for name in repairs.drop_fields - {"max_tokens"}:
        body.pop(name, None)
    version = "" if route.base_url.endswith("/v1") else "/v1"
    headers = {"anthropic-version": "2023-06-01", **_betas(body)}
    return wire_call(route, f"{route.base_url}{version}/messages", body, headers)


def _options(request: ModelRequest, route: ModelRoute) -> dict[str, Any]:
    limit = request.max_tokens or route.max_tokens
    ceiling = route.facts.max_output
    limit = limit or min(ceiling or _DEFAULT_OUTPUT, _DEFAULT_OUTPUT * 2)
    options: dict[str, Any] = {}
    output: dict[str, Any] = {}
    effort = request.reasoning_effort
    if effort and effort not in {"none", "false"}:
        if _ADAPTIVE.search(route.model):
            options["thinking"] = {"type": "adaptive"}
            output["effort"] = _effort(effort)
        else:
            budget = _BUDGETS.get(effort, _LARGE_BUDGET)
            options["thinking"] = {"type": "enabled", "budget_tokens": budget}
            limit = max(limit, budget + 4096)
    options |= _sampling(request, thinking="thinking" in options)
    if request.response_schema is not None:
        output["format"] = {"type": "json_schema", "schema": request.response_schema}
    if output:
        options["output_config"] = output
    options["max_tokens"] = min(limit, ceiling) if ceiling else limit
    return options


def _sampling(request: ModelRequest, *, thinking: bool) -> dict[str, Any]:
    given = sampled(request, _PROTOCOL)
    if thinking:
        given.pop("temperature", None)  # refused together with it
        given.pop("top_k", None)
    if given.get("top_k", 1) < 1:
        del given["top_k"]  # there is no word for all of them
    if isinstance(request.stop, str):
        given["stop_sequences"] = [request.stop]
    tier = ANTHROPIC_TIERS.get(given.pop("service_tier", ""))
    return {**given, "service_tier": tier} if tier else given


def _effort(effort: str) -> str:
    return {"minimal": "low", "ultra": "max"}.get(effort, effort)


def _betas(body: dict[str, Any]) -> dict[str, str]:
    budgeted = body.get("thinking", {}).get("type") == "enabled"
    if budgeted and "tools" in body:
        return {"anthropic-beta": "interleaved-thinking-2025-05-14"}
    return {}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    strict = {} if tool.strict is None else {"strict": tool.strict}
    described = {"name": tool.name, "description": tool.description}
    return {**described, "input_schema": tool.parameters, **strict}


def _marked(block: dict[str, Any], mark: Mark) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


def _history(chunks: list[bytes]) -> Raw:
    """Join chunks, each of which opens its own message where the role changes."""
    joined = b"".join(chunks)
    return Raw(b"[" + joined + b"]}]") if joined else Raw(b"[]")


def _role(message: Message) -> bytes:
    return b"assistant" if isinstance(message, AssistantMessage) else b"user"


def _role_before(messages: tuple[Message, ...], at: int) -> bytes:
    """Return whose message is open before `messages[at]`; empty answers are not sent."""
    while at and _is_empty(messages[at - 1]):
        at -= 1
    return _role(messages[at - 1]) if at else b""


def _is_empty(message: Message) -> bool:
    if not isinstance(message, AssistantMessage):
        return False
    return not message.tool_calls and not message.text.strip()


def _lead(before: bytes, role: bytes) -> bytes:
    """Return what goes between blocks: a comma, or the turn to the other role."""
    if before == role:
        return b","
    opening = b'{"role":"%b","content":[' % role
    if before:
        return b"]}," + opening
    return opening if role == b"user" else _OPENING + b"]}," + opening


class _Lowering:
    def __init__(self, route: ModelRoute, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._thinking = not repairs.drop_reasoning
        self.mark = cache_mark(route, repairs)

    def chunks(self, messages: tuple[Message, ...], start: int) -> list[bytes]:
        before = _role_before(messages, start)
        chunks: list[bytes] = []
        for message in messages[start:]:
            chunks.append(self._joined(message, before, None))
            if not _is_empty(message):
                before = _role(message)
        return chunks

    def with_marks(self, messages: tuple[Message, ...], chunks: list[bytes]) -> list[bytes]:
        marked = list(chunks)
        if self.mark is None:
            return marked
        for at in range(max(0, len(messages) - MARKED), len(messages)):
            marked[at] = self._joined(messages[at], _role_before(messages, at), self.mark)
        return marked

    def _joined(self, message: Message, before: bytes, mark: Mark) -> bytes:
        if _is_empty(message):
            return b""
        blocks = self._blocks(message)
        blocks[-1] = _marked(blocks[-1], mark)
        return _lead(before, _role(message)) + b",".join(map(encode_json, blocks))

    def _blocks(self, message: Message) -> list[dict[str, Any]]:
        match message:
            case UserMessage():
                blocks = self._content(message.content, user_prefix(message))
                return blocks or [{"type": "text", "text": "(nothing)"}]
            case ToolMessage():
                result: dict[str, Any] = {
                    "type": "tool_result",
                    "tool_use_id": _BAD_ID.sub("_", message.call_id),
                    "content": self._content(message.content),
                }
                if message.outcome is not ToolOutcome.OK:
                    result["is_error"] = True
                return [result]
            case AssistantMessage():
                return self._assistant(message)

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        ours = own_reasoning(message, _PROTOCOL) if self._thinking else None
        blocks: list[dict[str, Any]] = list(ours.details) if ours is not None else []
        if message.text.strip():
            blocks.append({"type": "text", "text": message.text})
        for call in message.tool_calls:
            given = Raw(object_arguments(call.arguments).encode())
            call_id = _BAD_ID.sub("_", call.id)
            blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": given})
        return blocks

    def _content(self, content: Content, prefix: str = "") -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for part in parts_of(content, prefix):
            if isinstance(part, TextPart):
                if part.text.strip():
                    blocks.append({"type": "text", "text": part.text})
            elif self._images:
                blocks.append(_image(part))
            else:
                blocks.append({"type": "text", "text": "[image]"})
        return blocks


def _image(part: ImagePart) -> dict[str, Any]:
    inline = data_url(part.url)
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    media_type, data = inline
    source = {"type": "base64", "media_type": part.media_type or media_type, "data": data}
    return {"type": "image", "source": source}


def _tool_choice(request: ModelRequest) -> dict[str, Any]:
    choice, alone = request.tool_choice, request.parallel_tool_calls is False
    if choice == "none" or (choice is None and not alone):
        return {"type": "none"} if choice else {}
    kinds = {None: {"type": "auto"}, "required": {"type": "any"}}
    wanted = kinds.get(choice, {"type": "tool", "name": choice})
    return {**wanted, "disable_parallel_tool_use": True} if alone else wanted


_FINISH = {
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
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
    __slots__ = ("head", "number", "pieces", "signature")

    def __init__(self, head: dict[str, Any], number: int) -> None:
        self.head = head
        self.number = number
        """Of a call: how many there were before it."""
        self.pieces: list[str] = []
        self.signature: list[str] = []


class MessagesDecoder:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._blocks: dict[int, _Block] = {}
        self._called = 0
        self._model = ""
        self._stop: str | None = None
        self._usage = _Usage()
        self.done = False

    def feed(self, data: bytes) -> None:
        event = _event_decoder.decode(data)
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
                raise stream_fault(event.error)

    def feed_document(self, data: bytes) -> None:
        message = _message_decoder.decode(data)
        self._model = message.model
        self._stop = message.stop_reason or "end_turn"
        self._count(message.usage)
        for index, block in enumerate(message.content):
            self._begin(index, block)
        self.done = True

    def finish(self) -> Decoded:
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
        self._add(index, head)
        if head["type"] == "text" and head.get("text"):
            self._sink.text(head["text"])
        elif head["type"] == "thinking" and head.get("thinking"):
            self._sink.reasoning(head["thinking"])

    def _delta(self, index: int, delta: _Delta) -> None:
        block = self._blocks.get(index)
        if block is None:
            kind = {"thinking_delta": "thinking", "input_json_delta": "tool_use"}
            block = self._add(index, {"type": kind.get(delta.type, "text")})
        if delta.text:
            block.pieces.append(delta.text)
            self._sink.text(delta.text)
        elif delta.thinking:
            block.pieces.append(delta.thinking)
            self._sink.reasoning(delta.thinking)
        elif delta.partial_json:
            block.pieces.append(delta.partial_json)
            self._sink.call(block.number, block.head.get("name") or "", delta.partial_json)
        elif delta.signature:
            block.signature.append(delta.signature)
            self._sink.count(len(delta.signature))

    def _add(self, index: int, head: dict[str, Any]) -> _Block:
        block = self._blocks[index] = _Block(head, self._called)
        PARTS.hold(len(self._blocks))
        if head["type"] == "tool_use":
            self._called += 1
            CALLS.hold(self._called)
        return block

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
            signature = str(block.head.get("signature") or "") + "".join(block.signature)
            texts.append(thought)
            if signature:
                details.append({"type": "thinking", "thinking": thought, "signature": signature})
    if not details and not texts:
        return None
    return Reasoning(text="\n".join(texts), details=tuple(details), protocol=_PROTOCOL)


decoder = MessagesDecoder
