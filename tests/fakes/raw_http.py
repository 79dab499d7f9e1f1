"""Bytes over a socket, as no decent HTTP client would send them."""

import asyncio
import re
import socket
import struct
from collections.abc import Sequence

__all__ = ["exchange", "request", "statuses"]

_STATUS = re.compile(rb"(?:\A|(?<=[\n}]))HTTP/1\.[01] (\d{3}) ")


def request(method: str, target: str, *lines: str | bytes, body: bytes = b"", key: str) -> bytes:
    """Return a request that is right unless `lines` or `body` make it wrong."""
    own: list[bytes] = [f"{method} {target} HTTP/1.1".encode("utf-8", "surrogateescape")]
    own += [b"Host: 127.0.0.1", b"Authorization: Bearer " + key.encode()]
    own += [line if isinstance(line, bytes) else line.encode() for line in lines]
    return b"\r\n".join([*own, b"", body])


async def exchange(
    port: int,
    pieces: Sequence[bytes],
    *,
    abort: bool = False,
    half_close: bool = False,
    stop_after: int | None = None,
    idle_seconds: float = 1.6,
) -> bytes:
    """Send pieces and return what comes back until the server closes or falls silent.

    With `abort` the connection is reset once everything is written, with
    `stop_after` as soon as so many bytes have come back.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if abort and stop_after is None:
            return got
        if half_close:
            writer.write_eof()
        while chunk := await asyncio.wait_for(reader.read(65536), idle_seconds):
            got += chunk
            if stop_after is not None and len(got) >= stop_after:
                break
    except (ConnectionError, TimeoutError):
        pass
    finally:
        if abort:
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()
    return got


def statuses(answer: bytes) -> list[int]:
    """Return the status of every answer in what a server sent."""
    return [int(found) for found in _STATUS.findall(answer)]
