"""Encoding chat completions: the system message, one chunk of bytes a message, the rest.

What belongs to this call only comes after the stable prefix. Images that
tools return follow their batch of results in a user message, because tool
messages take text only.
"""

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
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import FailureKind, ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.domain.usage import Usage
from hermes.models.encode_common import (
    EPHEMERAL_LABEL,
    LoweredCache,
    images_of,
    object_arguments,
    own_reasoning,
    parts_of,
    text_of,
    user_prefix,
    wire_call,
)
from hermes.models.routes import ModelRoute
from hermes.models.thinking import ThinkSplitter
from hermes.models.tool_calls import CallAssembler
from hermes.models.wire import Decoded, Repairs, Sink, WireCall, WireFault, encode_json

_PROTOCOL = "chat_completions"
_MARKED = 3


def encode(
    request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
) -> WireCall:
    lowering = _Lowering(route, repairs)
    chunks = cache.lower(request, lowering.chunks, _PROTOCOL, repairs, route.quirks.replay)
    messages = lowering.with_marks(request.messages, chunks)
    if trailing := lowering.trailing_images(request.messages):
        messages.append(trailing)
    if request.ephemeral:
        _add_ephemeral(messages, request, route)
    if request.system:
        messages.insert(0, lowering.system(request.system))
    history = Raw(b"[" + b",".join(messages) + b"]")
    body: dict[str, Any] = {"model": route.model, "messages": history}
    body |= _options(request, route, repairs)
    return wire_call(route, f"{route.base_url}/chat/completions", body)


def _options(request: ModelRequest, route: ModelRoute, repairs: Repairs) -> dict[str, Any]:
    quirks, stream = route.quirks, not repairs.no_stream
    options: dict[str, Any] = {"stream": stream}
    if stream and quirks.stream_usage:
        options["stream_options"] = {"include_usage": True}
    if quirks.usage_include:
        options["usage"] = {"include": True}
    if request.tools:
        options["tools"] = [Raw(chunk) for chunk in _tools(request.tools)]
        if request.tool_choice:
            options["tool_choice"] = _tool_choice(request.tool_choice)
    limit = request.max_tokens or route.max_tokens
    if limit:
        options[_limit_field(route, repairs)] = limit
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.reasoning_effort:
        options |= _effort(request.reasoning_effort, quirks.effort)
    if request.response_schema is not None:
        schema = {"name": "reply", "schema": request.response_schema}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if quirks.session_field and request.session_id:
        options[quirks.session_field] = request.session_id
    options |= route.extra_body
    return {name: value for name, value in options.items() if name not in repairs.drop_fields}


def _limit_field(route: ModelRoute, repairs: Repairs) -> str:
    name = route.quirks.output_limit_field
    if not repairs.rename_output_limit:
        return name
    return "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"


def _effort(effort: str, style: str) -> dict[str, Any]:
    off = effort in {"none", "false"}
    match style:
        case "openrouter":
            return {"reasoning": {"enabled": False} if off else {"effort": _capped(effort)}}
        case "openai":
            return {"reasoning_effort": "none" if off else _capped(effort)}
        case "deepseek":
            if off:
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "enabled"}, "reasoning_effort": _deepseek(effort)}
    return {}


def _capped(effort: str) -> str:
    return "xhigh" if effort in {"max", "ultra"} else effort


def _deepseek(effort: str) -> str:
    if effort in {"max", "ultra"}:
        return "max"
    return "low" if effort in {"minimal", "low"} else "high"


def _tools(tools: tuple[ToolSpec, ...]) -> list[bytes]:
    return [
        encode_json(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
        )
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]


def _add_ephemeral(messages: list[bytes], request: ModelRequest, route: ModelRoute) -> None:
    """Put context for this call after the stable prefix."""
    if route.quirks.late_system:
        messages.append(encode_json({"role": "system", "content": request.ephemeral}))
        return
    text = f"{EPHEMERAL_LABEL}\n{request.ephemeral}"
    last = request.messages[-1] if request.messages else None
    if isinstance(last, UserMessage) and isinstance(last.content, str):
        # Templates of local models refuse two user messages in a row.
        joined = f"{text_of(last.content, user_prefix(last))}\n\n{text}"
        messages[-1] = encode_json({"role": "user", "content": joined})
        return
    messages.append(encode_json({"role": "user", "content": text}))


class _Lowering:
    def __init__(self, route: ModelRoute, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._replay = "" if repairs.drop_reasoning else route.quirks.replay
        self._mark: dict[str, str] | None = None
        if "claude" in route.model and "cache_control" not in repairs.drop_fields:
            marks = route.provider == "openrouter" or "openrouter" in route.base_url
            hour = route.cache_ttl == "1h"
            ttl = {"ttl": "1h"} if hour else {}
            self._mark = {"type": "ephemeral", **ttl} if marks else None

    def system(self, text: str) -> bytes:
        if self._mark is None:
            return encode_json({"role": "system", "content": text})
        part = {"type": "text", "text": text, "cache_control": self._mark}
        return encode_json({"role": "system", "content": [part]})

    def chunks(self, messages: tuple[Message, ...], start: int) -> list[bytes]:
        chunks: list[bytes] = []
        images: list[ImagePart] = []
        for message in messages[start:]:
            chunk = self.message(message)
            if isinstance(message, ToolMessage):
                images += images_of(message.content) if self._images else []
            elif images:
                chunk = self._image_message(images) + b"," + chunk
                images = []
            chunks.append(chunk)
        return chunks

    def trailing_images(self, messages: tuple[Message, ...]) -> bytes:
        """Return the images of a batch of results that ends the history, as a message."""
        images: list[ImagePart] = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            images[:0] = images_of(message.content)
        return self._image_message(images) if images and self._images else b""

    def with_marks(self, messages: tuple[Message, ...], chunks: list[bytes]) -> list[bytes]:
        """Mark the last messages for the provider's cache, where it wants that."""
        if self._mark is None:
            return list(chunks)
        marked = list(chunks)
        for at in range(max(0, len(messages) - _MARKED), len(messages)):
            message = messages[at]
            bare = self.message(message)
            lead = chunks[at][: len(chunks[at]) - len(bare)]
            marked[at] = lead + self.message(message, self._mark)
        return marked

    def message(self, message: Message, mark: dict[str, str] | None = None) -> bytes:
        match message:
            case UserMessage():
                content = self._content(message.content, user_prefix(message), mark)
                return encode_json({"role": "user", "content": content})
            case ToolMessage():
                text: Any = text_of(message.content)
                return encode_json(
                    {
                        "role": "tool",
                        "tool_call_id": message.call_id,
                        "content": _marked_text(text, mark),
                    }
                )
            case AssistantMessage():
                return encode_json(self._assistant(message, mark))

    def _assistant(self, message: AssistantMessage, mark: dict[str, str] | None) -> dict[str, Any]:
        lowered: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if message.text:
            lowered["content"] = _marked_text(message.text, mark)
        if message.tool_calls:
            lowered["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": object_arguments(call.arguments),
                    },
                }
                for call in message.tool_calls
            ]
        elif not message.text:
            lowered["content"] = ""
        if self._replay == "content" and message.tool_calls:
            lowered["reasoning_content"] = message.reasoning.text if message.reasoning else ""
        ours = own_reasoning(message, _PROTOCOL) if self._replay == "details" else None
        if ours is not None and ours.details:
            lowered["reasoning_details"] = list(ours.details)
        return lowered

    def _content(self, content: Content, prefix: str, mark: dict[str, str] | None) -> Any:
        if isinstance(content, str) or not (self._images and images_of(content)):
            return _marked_text(text_of(content, prefix), mark)
        parts = [_part(part) for part in parts_of(content, prefix)]
        if mark is not None:
            parts[-1]["cache_control"] = mark
        return parts

    @staticmethod
    def _image_message(images: list[ImagePart]) -> bytes:
        lead: dict[str, Any] = {"type": "text", "text": "[Images from the tool results above]"}
        return encode_json({"role": "user", "content": [lead, *map(_part, images)]})


def _marked_text(text: str, mark: dict[str, str] | None) -> Any:
    if mark is None or not text:
        return text
    return [{"type": "text", "text": text, "cache_control": mark}]


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    image: dict[str, Any] = {"url": part.url}
    if part.detail:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _tool_choice(choice: str) -> Any:
    if choice in {"none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}


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
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        self._take(_chunk_decoder.decode(data), whole=False)

    def feed_document(self, data: bytes) -> None:
        chunk = _chunk_decoder.decode(data)
        if not chunk.choices and chunk.error is None:
            raise WireFault("The provider's answer holds no choices.", kind=FailureKind.MALFORMED)
        self._take(chunk, whole=True)
        self.done = True
        if self._finish is None:
            self._finish = "stop"

    def finish(self) -> Decoded:
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


decoder = ChatDecoder
