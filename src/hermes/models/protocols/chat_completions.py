"""Encoding chat completions: the system message, one chunk of bytes a message, the rest.

What belongs to this call only comes after the stable prefix. Images that
tools return follow their batch of results in a user message, because tool
messages take text only.
"""

from collections.abc import Callable
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
    ToolCall,
    ToolMessage,
    UserMessage,
    openai_part,
    user_prefix,
)
from hermes.domain.ports.model import FailureKind, ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.bounds import PARTS
from hermes.models.encode_common import (
    MARKED,
    LoweredCache,
    Mark,
    cache_mark,
    effort_word,
    images_of,
    named_schema,
    object_arguments,
    own_reasoning,
    parts_of,
    sampled,
    text_of,
    wire_call,
)
from hermes.models.logprobs import NONE, Logprobs
from hermes.models.providers import Quirks
from hermes.models.routes import ModelRoute
from hermes.models.think_tags import ThinkSplitter
from hermes.models.tool_calls import CallAssembler
from hermes.models.wire import (
    Decoded,
    OpenAIUsage,
    Repairs,
    Sink,
    WireCall,
    WireFault,
    encode_json,
    stream_fault,
)

_PROTOCOL = "chat_completions"


def encode(
    request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
) -> WireCall:
    lowering = _Lowering(route, repairs)
    chunks = cache.lower(request, lowering.chunks, _PROTOCOL, repairs, route.quirks.replay)
    messages = lowering.with_marks(request.messages, chunks)
    if trailing := lowering.trailing_images(request.messages):
        messages.append(trailing)
    if request.system:
        messages.insert(0, lowering.system(request.system))
    history = Raw(b"[" + b",".join(messages) + b"]")
    body: dict[str, Any] = {"model": route.model, "messages": history}
    body |= _options(request, route, repairs, cache)
    return wire_call(route, f"{route.base_url}/chat/completions", body)


def _options(
    request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
) -> dict[str, Any]:
    quirks, stream = route.quirks, not repairs.no_stream
    options: dict[str, Any] = {"stream": stream}
    if stream and quirks.stream_usage:
        options["stream_options"] = {"include_usage": True}
    if quirks.usage_include:
        options["usage"] = {"include": True}
    if request.tools:
        options["tools"] = cache.tools(request.tools, _tool)
        if request.tool_choice:
            options["tool_choice"] = _tool_choice(request.tool_choice)
    limit = request.max_tokens or route.max_tokens
    if limit:
        options[_limit_field(route, repairs)] = limit
    options |= _sampling(request, quirks)
    if request.reasoning_effort:
        options |= _effort(request, quirks.effort)
    if request.response_schema is not None:
        schema = named_schema(request)
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.json_object:
        options["response_format"] = {"type": "json_object"}
    if quirks.session_field and request.session_id:
        options[quirks.session_field] = request.session_id
    options |= route.extra_body
    return {name: value for name, value in options.items() if name not in repairs.drop_fields}


def _sampling(request: ModelRequest, quirks: Quirks) -> dict[str, Any]:
    given = sampled(request, _PROTOCOL)
    if "repetition_penalty" in given:
        given[quirks.repetition_field] = given.pop("repetition_penalty")
    return {name: value for name, value in given.items() if name not in quirks.lacks}


def _limit_field(route: ModelRoute, repairs: Repairs) -> str:
    name = route.quirks.output_limit_field
    if not repairs.rename_output_limit:
        return name
    return "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"


def _effort(request: ModelRequest, style: str) -> dict[str, Any]:
    word = effort_word(request.reasoning_effort or "")
    off = word == "none"
    match style:
        case "openrouter":
            return {"reasoning": {"enabled": False} if off else {"effort": word}}
        case "deepseek" if off:
            return {"thinking": {"type": "disabled"}}
        case "deepseek":
            words = {"minimal": "low", "low": "low", "max": "max", "ultra": "max"}
            asked = words.get(request.reasoning_effort or "", "high")
            return {"thinking": {"type": "enabled"}, "reasoning_effort": asked}
        case "" if off and request.task != "turn":
            # Side calls ask for none wherever they go; this server may not know the field.
            return {}
    return {"reasoning_effort": word}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        **({} if tool.strict is None else {"strict": tool.strict}),
    }
    return {"type": "function", "function": function}


class _Lowering:
    def __init__(self, route: ModelRoute, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._replay = "" if repairs.drop_reasoning else route.quirks.replay
        there = route.provider == "openrouter" or "openrouter" in route.base_url
        self._mark = cache_mark(route, repairs) if there and "claude" in route.model else None

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
        marked = list(chunks)
        first = max(0, len(messages) - MARKED) if self._mark is not None else len(messages)
        for at in range(first, len(messages)):
            lead = chunks[at].removesuffix(self.message(messages[at]))
            marked[at] = lead + self.message(messages[at], self._mark)
        return marked

    def message(self, message: Message, mark: Mark = None) -> bytes:
        match message:
            case UserMessage():
                content = self._content(message.content, user_prefix(message), mark)
                return encode_json({"role": "user", "content": content})
            case ToolMessage():
                text = _marked_text(text_of(message.content), mark)
                return encode_json(
                    {"role": "tool", "tool_call_id": message.call_id, "content": text}
                )
            case AssistantMessage():
                return encode_json(self._assistant(message, mark))

    def _assistant(self, message: AssistantMessage, mark: Mark) -> dict[str, Any]:
        text = _marked_text(message.text, mark)
        lowered: dict[str, Any] = {"role": "assistant", "content": text}
        if message.tool_calls:
            lowered["content"] = text or None
            lowered["tool_calls"] = [
                {"id": call.id, "type": "function", "function": _function(call)}
                for call in message.tool_calls
            ]
        if self._replay == "content" and message.tool_calls:
            lowered["reasoning_content"] = message.reasoning.text if message.reasoning else ""
        ours = own_reasoning(message, _PROTOCOL) if self._replay == "details" else None
        if ours is not None and ours.details:
            lowered["reasoning_details"] = list(ours.details)
        return lowered

    def _content(self, content: Content, prefix: str, mark: Mark) -> Any:
        if isinstance(content, str) or not (self._images and images_of(content)):
            return _marked_text(text_of(content, prefix), mark)
        parts = [openai_part(part) for part in parts_of(content, prefix)]
        if mark is not None:
            parts[-1]["cache_control"] = mark
        return parts

    @staticmethod
    def _image_message(images: list[ImagePart]) -> bytes:
        lead: dict[str, Any] = {"type": "text", "text": "[Images from the tool results above]"}
        return encode_json({"role": "user", "content": [lead, *map(openai_part, images)]})


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": object_arguments(call.arguments)}


def _marked_text(text: str, mark: Mark) -> Any:
    if mark is None or not text:
        return text
    return [{"type": "text", "text": text, "cache_control": mark}]


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


class _Logprobs(Struct):
    content: Raw = NONE


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: Raw = NONE
    error: Any = None


class _Groq(Struct):
    usage: OpenAIUsage | None = None


class _Chunk(Struct):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: OpenAIUsage | None = None
    x_groq: _Groq | None = None
    error: Any = None
    message: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk, strict=False)
_logprobs_decoder = msgspec.json.Decoder(_Logprobs | None)


class ChatDecoder:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._split = ThinkSplitter(sink.text, sink.reasoning)
        self._calls = CallAssembler(sink.call)
        self._reasoning: list[str] = []
        self._details = _Details(sink.count)
        self._finish: str | None = None
        self._logprobs = Logprobs()
        self._usage: OpenAIUsage | None = None
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
        details = self._details.joined()
        if reasoning or details:
            found = Reasoning(text=reasoning, details=details, protocol=_PROTOCOL)
        message = AssistantMessage(
            text=text, tool_calls=calls, reasoning=found, finish=self._reason(bool(calls))
        )
        return Decoded(
            message=message,
            usage=(self._usage or OpenAIUsage()).total(),
            model=self._model,
            complete=self._finish is not None or self.done,
            cost_usd=self._usage.cost if self._usage is not None else None,
            logprobs=self._logprobs.text(),
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
            raise stream_fault(chunk.error)
        if chunk.model:
            self._model = chunk.model
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is not None:
            self._usage = usage
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        if choice.error is not None:
            raise stream_fault(choice.error)
        delta = choice.message if whole or choice.delta is None else choice.delta
        if delta is not None:
            self._take_delta(delta)
        if self._sink.logprobs and (told := _logprobs_decoder.decode(choice.logprobs)) is not None:
            self._logprobs.add(told.content)
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _take_delta(self, delta: _Delta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._reasoning.append(thought)
            self._sink.reasoning(thought)
        if delta.reasoning_details:
            for piece in delta.reasoning_details:
                self._details.add(piece)
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


_JOINED = frozenset({"text", "summary", "data"})


class _Details:
    """Joins the fragments of each reasoning block, by index and type."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._blocks: list[tuple[dict[str, Any], dict[str, list[str]]]] = []
        """What each says last, and the pieces of its texts."""
        self._count = count

    def add(self, piece: dict[str, Any]) -> None:
        kind = piece.get("type"), piece.get("index")
        last = self._blocks[-1][0] if self._blocks else None
        if last is None or kind != (last.get("type"), last.get("index")):
            PARTS.hold(len(self._blocks) + 1)
            self._blocks.append(({}, {}))
        said, texts = self._blocks[-1]
        for name, value in piece.items():
            if name in _JOINED and isinstance(value, str):
                texts.setdefault(name, []).append(value)
                self._count(len(value))
            elif value is not None or name not in said:
                said[name] = value

    def joined(self) -> tuple[dict[str, Any], ...]:
        return tuple(
            said | {name: "".join(pieces) for name, pieces in texts.items()}
            for said, texts in self._blocks
        )


decoder = ChatDecoder
