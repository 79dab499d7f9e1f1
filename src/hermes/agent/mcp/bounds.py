"""Bounds on what a server says at once.

Decoding a message takes time that grows with the values in it, and nobody else has the
process meanwhile. So a message is measured before it is decoded, and one with too much in
it fails its call; the connection stays.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
import mcp_types as types
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage

from hermes.domain.nesting import more_values_than

MAX_BYTES = 8 * 1024 * 1024
"""Of one message."""
MAX_VALUES = 50_000
"""Lists, objects and what commas separate."""
MAX_PARTS = 1000
"""Of an answer, or tools on a page."""
SMALL = 65_536
"""What is measured and decoded without a thread."""


def too_much(message: bytes) -> str:
    """Say why a message is not decoded; empty if it may be."""
    if len(message) > MAX_BYTES:
        return f"its answer has more than {MAX_BYTES // 2**20} MB"
    if more_values_than(MAX_VALUES, message):
        return f"its answer has more than {MAX_VALUES:,} values"
    return ""


def refusal(request: str | int, why: str) -> SessionMessage:
    data = types.ErrorData(code=types.INTERNAL_ERROR, message=why)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=data))


@asynccontextmanager
async def bounded(
    transport: AbstractAsyncContextManager[TransportStreams],
) -> AsyncIterator[TransportStreams]:
    """Let answers through that have a bounded number of parts."""
    async with transport as (read, write):
        yield _Bounded(read), write


class _Bounded:
    """A stream of messages; an answer of very many parts is an error in its place."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception]) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _few_parts(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> "_Bounded":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _few_parts(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _few_parts(item: SessionMessage | Exception) -> SessionMessage | Exception:
    message = item.message if isinstance(item, SessionMessage) else None
    if isinstance(message, types.JSONRPCResponse):
        lists = [each for each in message.result.values() if isinstance(each, list)]
        if any(len(each) > MAX_PARTS for each in lists):
            return refusal(message.id, f"its answer has more than {MAX_PARTS:,} parts")
    return item


async def bound_body(response: httpx2.Response) -> None:
    """Have the body of an answer measured as it is read."""
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _Events(stream) if events else _Document(stream)


class _Events(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            line = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            size = len(chunk) - line - 1 if line >= 0 else size + len(chunk)
            if size > MAX_BYTES:
                raise httpx2.ReadError(f"an event has more than {MAX_BYTES // 2**20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Document(_Events):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > MAX_BYTES:
                break
        whole = bytes(body)
        why = too_much(whole) if len(whole) <= SMALL else await asyncio.to_thread(too_much, whole)
        if why:
            raise _TooMuch(why)
        yield whole


class _TooMuch(httpx2.StreamError):
    """The SDK reports those as errors of the call."""
