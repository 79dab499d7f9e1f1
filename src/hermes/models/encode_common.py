"""Lowering messages, shared by all protocols, and its cache.

The history of a session only grows, so the bytes of everything but the newest
messages are kept from call to call: one comparison of the message tuples (by
identity first, in C) replaces encoding them again. The bytes depend on the
messages alone, which also keeps the prefix byte-stable.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Message,
    Reasoning,
    TextPart,
    ToolMessage,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.domain.turn import SAMPLING
from hermes.models.providers import TAKES, ApiMode
from hermes.models.routes import ModelRoute
from hermes.models.wire import Repairs, WireCall, encode_json


def parts_of(content: Content, prefix: str = "") -> list[TextPart | ImagePart]:
    """Return content as text and images; files become a line that names their path."""
    if isinstance(content, str):
        return [TextPart(prefix + content)]
    parts = [_without_file(part) for part in content]
    if not prefix:
        return parts
    if parts and isinstance(parts[0], TextPart):
        return [TextPart(prefix + parts[0].text), *parts[1:]]
    return [TextPart(prefix.strip()), *parts]


def _without_file(part: TextPart | ImagePart | FilePart) -> TextPart | ImagePart:
    if isinstance(part, FilePart):
        kind = f", {part.media_type}" if part.media_type else ""
        return TextPart(f"[file: {part.name}{kind}, at {part.path}]")
    return part


def text_of(content: Content, prefix: str = "") -> str:
    """Return content as text, with a placeholder for each image."""
    if isinstance(content, str):
        return prefix + content
    return "\n".join(
        part.text if isinstance(part, TextPart) else "[image]" for part in parts_of(content, prefix)
    )


def images_of(content: Content) -> list[ImagePart]:
    if isinstance(content, str):
        return []
    return [part for part in content if isinstance(part, ImagePart)]


def data_url(url: str) -> tuple[str, str] | None:
    if not url.startswith("data:"):
        return None
    head, comma, data = url[5:].partition(",")
    media_type, _, encoding = head.partition(";")
    if not comma or encoding != "base64":
        return None
    return media_type or "application/octet-stream", data


def own_reasoning(message: AssistantMessage, protocol: str) -> Reasoning | None:
    """Return the reasoning of a message if it came over `protocol`: others cannot read it."""
    reasoning = message.reasoning
    return reasoning if reasoning is not None and reasoning.protocol == protocol else None


Mark = dict[str, str] | None
"""Asks a provider to cache the prompt up to there; None where it is not asked."""
MARKED = 3
"""How many messages at the end of the history are marked."""


def cache_mark(route: ModelRoute, repairs: Repairs) -> Mark:
    if "cache_control" in repairs.drop_fields:
        return None
    return {"type": "ephemeral", **({"ttl": "1h"} if route.cache_ttl == "1h" else {})}


def effort_word(effort: str) -> str:
    """Return a reasoning effort as OpenAI spells it."""
    return {"false": "none", "max": "xhigh", "ultra": "xhigh"}.get(effort, effort)


def lowered_tools(
    tools: Iterable[ToolSpec], shape: Callable[[ToolSpec], dict[str, Any]]
) -> list[msgspec.Raw]:
    return [msgspec.Raw(encode_json(shape(t))) for t in sorted(tools, key=lambda tool: tool.name)]


def without(request: ModelRequest, refused: frozenset[str]) -> ModelRequest:
    """Return a request without what the provider refuses, where that is inside other fields."""
    if refused.isdisjoint({"strict", *SAMPLING}):
        return request
    request = replace(request, **{name: None for name in SAMPLING if name in refused})
    if "strict" not in refused:
        return request
    tools = tuple(replace(tool, strict=None) for tool in request.tools)
    return replace(request, tools=tools, schema_strict=None)


def named_schema(request: ModelRequest) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if request.schema_description:
        more["description"] = request.schema_description
    if request.schema_strict is not None:
        more["strict"] = request.schema_strict
    return {"name": request.schema_name, "schema": request.response_schema, **more}


def sampled(request: ModelRequest, mode: str) -> dict[str, Any]:
    """Return what a call says about sampling, as far as the protocol has fields of its own for it.

    What is asked for in a part of another field is left to the protocol.
    """
    given = {
        there: value
        for name, there in TAKES[ApiMode(mode)].items()
        if name in (there, "stop") and (value := getattr(request, name)) is not None
    }
    if not request.tools:
        given.pop("parallel_tool_calls", None)
    return given


def wire_call(
    route: ModelRoute, url: str, body: dict[str, Any], headers: Mapping[str, str] = {}
) -> WireCall:
    return WireCall(
        url=f"{url}?{route.query}" if route.query else url,
        headers={**headers, **route.headers},
        body=msgspec.json.encode(body),
        stream=body["stream"],
        verify=route.ssl_verify,
        ca_file=route.ssl_ca,
    )


_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def object_arguments(arguments: str) -> str:
    """Return tool arguments as a JSON object, wrapping what is not one.

    Servers parse earlier calls again and fail on those that the model got
    wrong, though the tool result already told it so.
    """
    try:
        _object_decoder.decode(arguments)
    except (msgspec.MsgspecError, RecursionError):
        return encode_json({"malformed_arguments": arguments[:2000]}).decode()
    return arguments


class _Entry(Struct):
    messages: tuple[Message, ...]
    chunks: list[bytes]
    size: int


_MAX_TOOLS = 16
"""Sets of tools that are kept encoded."""

Lower = Callable[[tuple[Message, ...], int], list[bytes]]
"""Lowers `messages[start:]`, one chunk of bytes a message; may look back."""


class LoweredCache:
    """Keeps lowered messages by session, within a bound on bytes."""

    def __init__(self, max_bytes: int = 8 * 1024 * 1024, max_entries: int = 256) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._tools: OrderedDict[Hashable, tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()

    def tools(
        self, tools: Sequence[ToolSpec], shape: Callable[[ToolSpec], dict[str, Any]]
    ) -> msgspec.Raw:
        """Return the tools as a list; the same ones are encoded once."""
        key = (id(tools), shape)
        kept = self._tools.get(key)
        if kept is None or kept[0] is not tools:
            whole = msgspec.Raw(b"[" + b",".join(map(bytes, lowered_tools(tools, shape))) + b"]")
            kept = self._tools[key] = tools, whole
            if len(self._tools) > _MAX_TOOLS:
                self._tools.popitem(last=False)
        return kept[1]

    def lower(self, request: ModelRequest, lower: Lower, *variant: Hashable) -> list[bytes]:
        """Return one chunk a message, encoding only what is new in this session and variant."""
        messages = request.messages
        if request.session_id is None:
            return lower(messages, 0)
        key = (request.session_id, request.task, *variant)
        entry = self._entries.pop(key, None)
        start = 0
        chunks: list[bytes] = []
        if entry is not None:
            self._bytes -= entry.size
            start = _shared(entry.messages, messages)
            chunks = entry.chunks[:start]
        fresh = lower(messages, start)
        chunks += fresh
        dropped = sum(map(len, entry.chunks[start:])) if entry is not None else 0
        size = (entry.size if entry is not None else 0) - dropped + sum(map(len, fresh))
        self._store(key, _Entry(messages, chunks, size))
        return chunks

    def _store(self, key: Hashable, entry: _Entry) -> None:
        if entry.size > self._max_bytes:
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            _, old = self._entries.popitem(last=False)
            self._bytes -= old.size


def _shared(old: tuple[Message, ...], new: tuple[Message, ...]) -> int:
    """Count the leading messages that are the same, less a run of tool results at their end.

    Results of one batch may be lowered together, so an open batch is done again.
    """
    count = len(old)
    if new[:count] != old:
        count = next(
            (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a is not b and a != b),
            min(len(old), len(new)),
        )
    while count and isinstance(old[count - 1], ToolMessage):
        count -= 1
    return count
