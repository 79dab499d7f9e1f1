"""Encoding chat completions: the system message, one chunk of bytes a message, the rest.

What belongs to this call only comes after the stable prefix. Images that
tools return follow their batch of results in a user message, because tool
messages take text only.
"""

from typing import Any

import msgspec
from msgspec import Raw

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    TextPart,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.encode_common import (
    EPHEMERAL_LABEL,
    LoweredCache,
    images_of,
    object_arguments,
    parts_of,
    text_of,
    user_prefix,
)
from hermes.models.routes import Route
from hermes.models.settings import CacheTtl
from hermes.models.wire import Repairs, WireCall, encode_json

__all__ = ["encode"]

_PROTOCOL = "chat_completions"
_MARKED = 3


def encode(request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache) -> WireCall:
    """Return the HTTP request, without the key."""
    lowering = _Lowering(route, repairs)
    key = None
    if request.session_id is not None:
        key = (_PROTOCOL, request.session_id, request.task, repairs, route.quirks.replay)
    chunks = cache.lower(key, request.messages, lowering.chunks)
    messages = lowering.with_marks(request.messages, chunks)
    if trailing := lowering.trailing_images(request.messages):
        messages.append(trailing)
    if request.ephemeral:
        _add_ephemeral(messages, request, route)
    if request.system:
        messages.insert(0, lowering.system(request.system))
    history = Raw(b"[" + b",".join(messages) + b"]")
    body: dict[str, Any] = {"model": route.model, "messages": history}
    stream = route.stream and not repairs.no_stream
    body |= _options(request, route, repairs, stream=stream)
    return WireCall(
        url=f"{route.base_url}/chat/completions",
        headers=dict(route.headers),
        body=msgspec.json.encode(body),
        stream=stream,
        verify=route.ssl_verify,
        ca_file=route.ssl_ca,
    )


def _options(
    request: ModelRequest, route: Route, repairs: Repairs, *, stream: bool
) -> dict[str, Any]:
    quirks = route.quirks
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


def _limit_field(route: Route, repairs: Repairs) -> str:
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


def _add_ephemeral(messages: list[bytes], request: ModelRequest, route: Route) -> None:
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
    """Lowers messages for one route."""

    def __init__(self, route: Route, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._replay = "" if repairs.drop_reasoning else route.quirks.replay
        self._mark: dict[str, str] | None = None
        if "claude" in route.model and "cache_control" not in repairs.drop_fields:
            marks = route.provider == "openrouter" or "openrouter" in route.base_url
            hour = route.cache_ttl is CacheTtl.ONE_HOUR
            ttl = {"ttl": "1h"} if hour else {}
            self._mark = {"type": "ephemeral", **ttl} if marks else None

    def system(self, text: str) -> bytes:
        """Return the system message."""
        if self._mark is None:
            return encode_json({"role": "system", "content": text})
        part = {"type": "text", "text": text, "cache_control": self._mark}
        return encode_json({"role": "system", "content": [part]})

    def chunks(self, messages: tuple[Message, ...], start: int) -> list[bytes]:
        """Lower `messages[start:]`, one chunk each."""
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
        """Lower one message."""
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
        reasoning = message.reasoning
        if self._replay == "content" and message.tool_calls:
            lowered["reasoning_content"] = reasoning.text if reasoning is not None else ""
        ours = reasoning is not None and reasoning.protocol == _PROTOCOL
        if reasoning is not None and ours and reasoning.details and self._replay == "details":
            lowered["reasoning_details"] = list(reasoning.details)
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
