"""Encoding OpenAI Responses.

Nothing is stored at the provider: the history is sent as items each time, and
reasoning goes back as the encrypted items in which it came.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    Message,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    user_prefix,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.bounds import CALLS, PARTS
from hermes.models.encode_common import (
    LoweredCache,
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
from hermes.models.routes import ModelRoute
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

_PROTOCOL = "responses"


def encode(
    request: ModelRequest, route: ModelRoute, repairs: Repairs, cache: LoweredCache
) -> WireCall:
    lowering = _Lowering(repairs)
    chunks = cache.lower(request, lowering.chunks, _PROTOCOL, repairs)
    items = list(filter(None, chunks))
    history = Raw(b"[" + b",".join(items) + b"]")
    body: dict[str, Any] = {"model": route.model, "input": history, "store": False}
    if request.system:
        body["instructions"] = request.system
    body["stream"] = not repairs.no_stream
    body["include"] = ["reasoning.encrypted_content"]
    if request.logprobs:
        body["include"].append("message.output_text.logprobs")
    body |= _options(request, route, cache)
    body |= route.extra_body
    for name in repairs.drop_fields:
        body.pop("max_output_tokens" if name == "max_tokens" else name, None)
    tail = "" if route.base_url.endswith("/responses") else "/responses"
    return wire_call(route, f"{route.base_url}{tail}", body)


def _options(request: ModelRequest, route: ModelRoute, cache: LoweredCache) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.tools:
        options["tools"] = cache.tools(request.tools, _tool)
        if request.tool_choice:
            options["tool_choice"] = _tool_choice(request.tool_choice)
    limit = request.max_tokens or route.max_tokens
    if limit:
        options["max_output_tokens"] = limit
    options |= sampled(request, _PROTOCOL)
    if request.reasoning_effort:
        options["reasoning"] = _reasoning(request.reasoning_effort)
    if request.response_schema is not None:
        options["text"] = {"format": {"type": "json_schema", **named_schema(request)}}
    elif request.json_object:
        options["text"] = {"format": {"type": "json_object"}}
    if request.verbosity is not None:
        options.setdefault("text", {})["verbosity"] = request.verbosity
    if request.session_id:
        options["prompt_cache_key"] = request.session_id
    return options


def _reasoning(effort: str) -> dict[str, str]:
    word = effort_word(effort)
    return {"effort": word} if word == "none" else {"effort": word, "summary": "auto"}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }


class _Lowering:
    def __init__(self, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._replay = not repairs.drop_reasoning

    def chunks(self, messages: tuple[Message, ...], start: int) -> list[bytes]:
        return [b",".join(map(encode_json, self._items(message))) for message in messages[start:]]

    def _items(self, message: Message) -> list[dict[str, Any]]:
        match message:
            case UserMessage():
                parts = self._parts(message.content, user_prefix(message))
                return [{"role": "user", "content": parts}]
            case ToolMessage():
                output: Any = text_of(message.content)
                if self._images and images_of(message.content):
                    output = self._parts(message.content)
                kind = "function_call_output"
                return [{"type": kind, "call_id": message.call_id, "output": output}]
            case AssistantMessage():
                return self._assistant(message)

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        answered = bool(message.text or message.tool_calls)
        ours = own_reasoning(message, _PROTOCOL) if answered and self._replay else None
        items: list[dict[str, Any]] = list(ours.details) if ours is not None else []
        if message.text:
            part = {"type": "output_text", "text": message.text}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        items += (
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": object_arguments(call.arguments),
            }
            for call in message.tool_calls
        )
        return items

    def _parts(self, content: Content, prefix: str = "") -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for part in parts_of(content, prefix):
            if isinstance(part, TextPart):
                parts.append({"type": "input_text", "text": part.text})
            elif self._images:
                detail = {"detail": part.detail} if part.detail else {}
                parts.append({"type": "input_image", "image_url": part.url, **detail})
            else:
                parts.append({"type": "input_text", "text": "[image]"})
        return parts


def _tool_choice(choice: str) -> Any:
    return choice if choice in {"none", "required"} else {"type": "function", "name": choice}


_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_LAST = frozenset({"response.completed", "response.incomplete", "response.done"})


class _Part(Struct):
    text: str | None = None
    refusal: str | None = None
    logprobs: Raw = NONE


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    content: list[_Part] | str | None = None
    encrypted_content: str | None = None
    summary: list[dict[str, Any]] | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    model: str | None = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: OpenAIUsage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None
    code: str | None = None


_event_decoder = msgspec.json.Decoder(_Event, strict=False)
_response_decoder = msgspec.json.Decoder(_Response, strict=False)


class ResponsesDecoder:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._items: dict[int, _Item] = {}
        self._logprobs = Logprobs()
        self._begun: dict[int | None, tuple[int, str]] = {}
        """Where calls are in the output: how many there are before each, and its name."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._response = _Response()
        self._refused = False
        self.done = False

    def feed(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            return
        event = _event_decoder.decode(data)
        kind = event.type
        if kind in _TEXT:
            self._refused = self._refused or kind == "response.refusal.delta"
            self._text.append(event.delta or "")
            self._sink.text(event.delta or "")
        elif kind in _REASONING:
            self._reasoning.append(event.delta or "")
            self._sink.reasoning(event.delta or "")
        elif kind == "response.output_item.added" and event.item is not None:
            if event.item.type == "function_call":
                number, _ = self._begun.get(event.output_index, (len(self._begun), ""))
                self._begun[event.output_index] = number, event.item.name or ""
                CALLS.hold(len(self._begun))
        elif kind == "response.function_call_arguments.delta" and event.output_index in self._begun:
            self._sink.call(*self._begun[event.output_index], event.delta or "")
        elif kind == "response.output_item.done" and event.item is not None:
            index = len(self._items) if event.output_index is None else event.output_index
            self._keep(index, event.item)
        elif kind in _LAST and event.response is not None:
            self._end(event.response)
        elif kind in {"response.failed", "error"}:
            raise _event_fault(event)

    def feed_document(self, data: bytes) -> None:
        response = _response_decoder.decode(data)
        if response.error is not None:
            raise stream_fault(response.error)
        self._end(response)
        text, thought = _item_text(self._ordered()), _thought(self._ordered())
        if thought:
            self._sink.reasoning(thought)
        if text:
            self._sink.text(text)

    def finish(self) -> Decoded:
        items = self._ordered()
        details = tuple(_replayable(item) for item in items if item.type == "reasoning")
        thought = "".join(self._reasoning) or _thought(items)
        reasoning = None
        if details or thought:
            reasoning = Reasoning(text=thought, details=details, protocol=_PROTOCOL)
        calls = tuple(_call(item) for item in items if item.type == "function_call")
        CALLS.hold(len(calls))
        message = AssistantMessage(
            text="".join(self._text) or _item_text(items),
            tool_calls=calls,
            reasoning=reasoning,
            finish=self._finish(calls),
        )
        return Decoded(
            message=message,
            usage=(self._response.usage or OpenAIUsage()).total(),
            model=self._response.model or "",
            complete=self.done,
            logprobs=self._logprobs.text(),
        )

    def _end(self, response: _Response) -> None:
        self._response = response
        self.done = True
        if not self._items:
            for index, item in enumerate(response.output or []):
                self._keep(index, item)

    def _keep(self, index: int, item: _Item) -> None:
        self._items[index] = item
        PARTS.hold(len(self._items))
        for part in _text_parts([item]):
            if self._sink.logprobs:
                self._logprobs.add(part.logprobs)
            part.logprobs = NONE  # it would keep all of its event

    def _ordered(self) -> list[_Item]:
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


def _call(item: _Item) -> ToolCall:
    return ToolCall(
        id=item.call_id or item.id or "",
        name=item.name or "",
        arguments=str(item.arguments or ""),
    )


def _replayable(item: _Item) -> dict[str, Any]:
    """Return a reasoning item as the provider wants it back: without its status."""
    given = {"id": item.id, "type": item.type, "encrypted_content": item.encrypted_content}
    kept = {name: value for name, value in given.items() if value}
    return {**kept, "summary": item.summary or []}


def _item_text(items: list[_Item]) -> str:
    return "".join(part.text or part.refusal or "" for part in _text_parts(items))


def _text_parts(items: list[_Item]) -> list[_Part]:
    contents = (item.content for item in items if item.type == "message")
    return [part for content in contents if isinstance(content, list) for part in content]


def _thought(items: list[_Item]) -> str:
    return "\n".join(
        str(part.get("text") or "")
        for item in items
        if item.type == "reasoning"
        for part in item.summary or []
    )


def _event_fault(event: _Event) -> WireFault:
    if event.response is not None and event.response.error is not None:
        return stream_fault(event.response.error)
    if event.error is not None:
        return stream_fault(event.error)
    return WireFault(event.message or "the response failed", code=event.code or "")


decoder = ResponsesDecoder
