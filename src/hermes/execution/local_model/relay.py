"""Between a client and the engine: pass requests on, make small models' calls valid.

Answers go through as they come. Only when the answer may be a tool call is the
stream looked at: words are passed on at once, a call is held back until it is
complete. When the client goes away the connection to the engine is closed,
which stops the work there.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from hermes.execution.local_model.calling import CallForm, constrain, tool_call
from hermes.execution.local_model.engine import Engine
from hermes.execution.local_model.wire import (
    BadMessage,
    Head,
    body_pieces,
    opened,
    read_head,
    request_bytes,
)

__all__ = ["CHAT_PATH", "relay"]

CHAT_PATH: Final = "/v1/chat/completions"
_PASSED_ON: Final = frozenset({"content-type", "cache-control"})


async def relay(
    engine: Engine, method: str, path: str, body: bytes | None, *, constrained: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of the response to one request."""
    forms: tuple[CallForm, ...] = ()
    if constrained and path == CHAT_PATH and body is not None:
        rewritten = constrain(_object(body))
        body, forms = json.dumps(rewritten.body).encode(), rewritten.forms
    async with opened(engine.host, engine.port) as (reader, writer):
        host = f"{engine.host}:{engine.port}"
        writer.write(request_bytes(method, path, host=host, api_key=engine.api_key, body=body))
        await writer.drain()
        head = await read_head(reader)
        yield _head_bytes(head)
        pieces = body_pieces(reader, head)
        if forms and head.status == 200:
            streamed = "event-stream" in head.headers.get("content-type", "")
            pieces = _events(pieces, forms) if streamed else _document(pieces, forms)
        async for piece in pieces:
            yield piece


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadMessage("the body is not JSON") from error
    if not isinstance(value, dict):
        raise BadMessage("the body is not a JSON object")
    return value


def _head_bytes(head: Head) -> bytes:
    kept = [f"{name}: {head.headers[name]}" for name in sorted(_PASSED_ON & set(head.headers))]
    return "\r\n".join([head.first, *kept, "Connection: close", "", ""]).encode("latin-1")


async def _document(
    pieces: AsyncIterator[bytes], forms: tuple[CallForm, ...]
) -> AsyncIterator[bytes]:
    answer = json.loads(b"".join([piece async for piece in pieces]))
    choice = answer["choices"][0]
    call = tool_call(choice["message"].get("content") or "", forms)
    if call is not None:
        del call["index"]
        choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice["finish_reason"] = "tool_calls"
    yield json.dumps(answer).encode()


async def _events(
    pieces: AsyncIterator[bytes], forms: tuple[CallForm, ...]
) -> AsyncIterator[bytes]:
    """Pass server-sent events on; hold back text that begins like a call."""
    held = ""
    words = False
    buffer = b""
    async for piece in pieces:
        if words:
            yield piece
            continue
        buffer += piece
        while not words and b"\n\n" in buffer:
            raw, buffer = buffer.split(b"\n\n", 1)
            event = _event(raw)
            choice = (event.get("choices") or [{}])[0]
            content = choice.get("delta", {}).get("content") or ""
            if not held and content and not content.startswith("<"):
                words = True
            elif content:
                held += content
                continue
            if choice.get("finish_reason") and held:
                raw = _call_event(event, choice, held, forms)
                held = ""
            yield raw + b"\n\n"
        if words:
            yield buffer
            buffer = b""
    yield buffer


def _event(raw: bytes) -> dict[str, Any]:
    data = raw.removeprefix(b"data:").strip()
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _call_event(
    event: dict[str, Any], choice: dict[str, Any], held: str, forms: tuple[CallForm, ...]
) -> bytes:
    call = tool_call(held, forms)
    if call is None:
        choice["delta"] = {"content": held}
    else:
        choice["delta"] = {"tool_calls": [call]}
        choice["finish_reason"] = "tool_calls"
    return b"data: " + json.dumps(event).encode()
