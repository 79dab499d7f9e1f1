"""HTTP/1.1 on loopback, as little of it as two of our own processes need.

One request a connection. Heads and bodies are bounded. Used by the server in
front of the engine, by its supervisor and to look for other local servers.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

__all__ = ["BadMessage", "Head", "body_pieces", "exchange", "opened", "read_head", "request_bytes"]

_MAX_HEAD: Final = 65_536
_MAX_BODY: Final = 32 * 1024 * 1024
_PIECE: Final = 65_536


class BadMessage(Exception):
    """The other side does not speak HTTP as we do."""


class Head(Struct, frozen=True, kw_only=True):
    """The first line and the headers; names in small letters."""

    first: str
    headers: Mapping[str, str]

    @property
    def status(self) -> int:
        """The status of a response."""
        try:
            return int(self.first.split()[1])
        except (IndexError, ValueError) as error:
            raise BadMessage("no status") from error

    @property
    def length(self) -> int | None:
        """The announced length of the body."""
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not text.isdecimal() or int(text) > _MAX_BODY:
            raise BadMessage("no usable Content-Length")
        return int(text)


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the empty line."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BadMessage("no complete head") from error
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(first=first, headers=headers)


async def body_pieces(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield the body as it arrives, whichever way its end is marked."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        async for piece in _chunks(reader):
            yield piece
        return
    left = head.length
    while left is None or left > 0:
        piece = await reader.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            if left is not None:
                raise BadMessage("the body ends early")
            return
        left = None if left is None else left - len(piece)
        yield piece


def request_bytes(
    method: str, path: str, *, host: str, api_key: str = "", body: bytes | None = None
) -> bytes:
    """Return a whole request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b"")


@asynccontextmanager
async def opened(
    host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect, and close whatever happens."""
    reader, writer = await asyncio.open_connection(host, port, limit=_MAX_HEAD)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchange(
    url: str,
    *,
    method: str = "GET",
    api_key: str = "",
    body: bytes | None = None,
    timeout: float,
) -> tuple[int, bytes]:
    """Make one request; `OSError`, `TimeoutError` or `BadMessage` when there is no answer."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    async with asyncio.timeout(timeout), opened(host, port) as (reader, writer):
        writer.write(request_bytes(method, path, host=f"{host}:{port}", api_key=api_key, body=body))
        await writer.drain()
        head = await read_head(reader)
        content = bytearray()
        async for piece in body_pieces(reader, head):
            content += piece
            if len(content) > _MAX_BODY:
                raise BadMessage("the answer is too long")
        return head.status, bytes(content)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise BadMessage("the body ends early") from error
        if size == 0:
            return
        yield data[:-2]
