"""Encoding OpenAI Responses.

Nothing is stored at the provider: the history is sent as items each time, and
reasoning goes back as the encrypted items in which it came.
"""

from typing import Any

import msgspec
from msgspec import Raw

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    Message,
    TextPart,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.encode_common import (
    LoweredCache,
    images_of,
    object_arguments,
    parts_of,
    text_of,
    user_prefix,
)
from hermes.models.routes import Route
from hermes.models.wire import Repairs, WireCall, encode_json

__all__ = ["encode"]

_PROTOCOL = "responses"


def encode(request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache) -> WireCall:
    """Return the HTTP request, without the key."""
    lowering = _Lowering(repairs)
    key = None
    if request.session_id is not None:
        key = (_PROTOCOL, request.session_id, request.task, repairs)
    chunks = cache.lower(key, request.messages, lowering.chunks)
    items = list(filter(None, chunks))
    if request.ephemeral:
        part = {"type": "input_text", "text": request.ephemeral}
        items.append(encode_json({"role": "developer", "content": [part]}))
    stream = route.stream and not repairs.no_stream
    history = Raw(b"[" + b",".join(items) + b"]")
    body: dict[str, Any] = {"model": route.model, "input": history, "store": False}
    if request.system:
        body["instructions"] = request.system
    body["stream"] = stream
    body["include"] = ["reasoning.encrypted_content"]
    body |= _options(request, route)
    body |= route.extra_body
    for name in repairs.drop_fields:
        body.pop("max_output_tokens" if name == "max_tokens" else name, None)
    return WireCall(
        url=_url(route.base_url),
        headers=dict(route.headers),
        body=msgspec.json.encode(body),
        stream=stream,
        verify=route.ssl_verify,
        ca_file=route.ssl_ca,
    )


def _url(base_url: str) -> str:
    return base_url if base_url.endswith("/responses") else f"{base_url}/responses"


def _options(request: ModelRequest, route: Route) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.tools:
        options["tools"] = _tools(request.tools)
        if request.tool_choice:
            options["tool_choice"] = _tool_choice(request.tool_choice)
    limit = request.max_tokens or route.max_tokens
    if limit:
        options["max_output_tokens"] = limit
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.reasoning_effort:
        options["reasoning"] = _reasoning(request.reasoning_effort)
    if request.response_schema is not None:
        schema = {"type": "json_schema", "name": "reply", "schema": request.response_schema}
        options["text"] = {"format": schema}
    if request.session_id:
        options["prompt_cache_key"] = request.session_id
    return options


def _reasoning(effort: str) -> dict[str, str]:
    if effort in {"none", "false"}:
        return {"effort": "none"}
    return {"effort": "xhigh" if effort in {"max", "ultra"} else effort, "summary": "auto"}


def _tools(tools: tuple[ToolSpec, ...]) -> list[Raw]:
    return [
        Raw(
            encode_json(
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
            )
        )
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]


class _Lowering:
    """Lowers messages for one call."""

    def __init__(self, repairs: Repairs) -> None:
        self._images = not repairs.strip_images
        self._replay = not repairs.drop_reasoning

    def chunks(self, messages: tuple[Message, ...], start: int) -> list[bytes]:
        """Lower `messages[start:]`, one run of items each."""
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
                return [
                    {
                        "type": "function_call_output",
                        "call_id": message.call_id,
                        "output": output,
                    }
                ]
            case AssistantMessage():
                return self._assistant(message)

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        reasoning = message.reasoning
        answered = bool(message.text or message.tool_calls)
        ours = reasoning is not None and reasoning.protocol == _PROTOCOL
        if reasoning is not None and ours and answered and self._replay:
            items += reasoning.details
        if message.text:
            part = {"type": "output_text", "text": message.text}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        for call in message.tool_calls:
            items.append(
                {
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": object_arguments(call.arguments),
                }
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
