"""A streaming HTTP client that costs next to nothing: bytes in, tokens counted.

The load comes from the same machine as the gateway, so a client that decodes
events would take the processor time that is being measured.
"""

import asyncio
import time

from bench.bare import Times

__all__ = ["LightClient", "RequestFailed"]

TOKEN = b'"word'


class RequestFailed(Exception):
    """An answer that is not the one that was asked for."""


class LightClient:
    """Asks one server; keeps connections that are free."""

    def __init__(self, port: int, path: str, key: str = "bench") -> None:
        self._port = port
        self._path = path
        self._key = key
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, body: bytes) -> Times:
        """Send `body` and read the streamed answer to its end."""
        start = time.perf_counter()
        reader, writer = await self._connection()
        writer.write(self._head("POST", self._path, len(body)) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RequestFailed(head.partition(b"\r\n")[0].decode())
        first, tokens, seen = 0.0, 0, b""
        while not seen.endswith(b"0\r\n\r\n"):
            chunk = await reader.read(65536)
            if not chunk:
                raise RequestFailed("the connection was closed")
            count = chunk.count(TOKEN)
            if count and not tokens:
                first = time.perf_counter() - start
            tokens += count
            seen = (seen + chunk)[-16:]
        end = time.perf_counter() - start
        self._free.append((reader, writer))
        if not tokens:
            raise RequestFailed("an answer without text")
        return Times(first_token=first * 1000, end=end * 1000, tokens=tokens)

    async def get(self, path: str) -> float:
        """Fetch something small; return the milliseconds that took."""
        start = time.perf_counter()
        reader, writer = await self._connection()
        writer.write(self._head("GET", path, 0))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        self._free.append((reader, writer))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RequestFailed(head.partition(b"\r\n")[0].decode())
        return (time.perf_counter() - start) * 1000

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                return reader, writer
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _head(self, method: str, path: str, length: int) -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n"
            f"authorization: Bearer {self._key}\r\ncontent-type: application/json\r\n"
            f"content-length: {length}\r\n\r\n"
        ).encode()
