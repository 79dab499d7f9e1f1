"""HTTP/1.1 to servers that are reached directly: one write out, a parser in C, no task in between.

An answer comes in many small pieces, and each that wakes a task costs more than what is done with
it. So a `Receiver` is called where the bytes arrive, in the context of the exchange that waits for
the end; what it raises is raised there. Where pieces come faster than anybody reads, they are
left in the socket for a moment: to wake up costs more than what is in a piece. Proxies are left to
the HTTP library (see `transport`).
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Mapping
from contextvars import Context, copy_context
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

import httptools
from msgspec import Struct

KEPT_SECONDS = 60.0
KEPT_CONNECTIONS = 64
MAX_HEAD = 100_000
GATHER_SECONDS = 1 / 60
"""As long as a screen shows one picture."""
HURRIED_SECONDS = 0.005
HURRIED_PIECES = 2
"""So many pieces in a row, each so soon after the one before, come faster than anybody reads."""
GATHER_BYTES = 64 * 1024
"""So much is read at once all the same."""


class NoConnection(Exception):
    """There is nobody to talk to."""


class ConnectionLate(NoConnection):
    """The connection could not be made in time."""


class BrokenAnswer(Exception):
    """What came is not HTTP, or ended too soon."""


class Receiver(Protocol):
    def head(self, status: int, headers: dict[str, str]) -> None: ...

    def body(self, chunk: bytes, *, gathered: bool = False) -> None:
        """Take what came at once; `gathered`: as what hurries, not as one piece."""


class Address(Struct, frozen=True):
    secure: bool
    host: str
    port: int
    shown: str
    """As the `Host` header has it."""
    target: str


@lru_cache(maxsize=256)
def address_of(url: str) -> Address:
    """Take a URL apart; `ValueError` if it is none that can be reached."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url} is not an http(s) URL")
    host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna").decode()
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    shown = f"[{host}]" if ":" in host else host
    if port != (443 if secure else 80):
        shown = f"{shown}:{port}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(secure, host, port, shown, target)


def request_bytes(method: str, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    address = address_of(url)
    lines = [f"{method} {address.target} HTTP/1.1", f"host: {address.shown}"]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "host"]
    if body or method != "GET":
        lines.append(f"content-length: {len(body)}")
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise BrokenAnswer("Illegal header value")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class ConnectionPool:
    """Connections of one kind: with or without TLS, with certain certificates."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._idle: dict[tuple[str, int], list[tuple[float, _Connection]]] = {}

    async def exchange(
        self, url: str, request: bytes, receiver: Receiver, connect_seconds: float | None
    ) -> None:
        """Send a request and feed the answer to `receiver`, to its end."""
        address = address_of(url)
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault((address.host, address.port), [])
        while idle:
            since, kept = idle.pop()
            if not kept.reusable or loop.time() - since >= KEPT_SECONDS:
                kept.close()
                continue
            try:
                await self._over(kept, idle, request, receiver)
            except (BrokenAnswer, OSError):
                if kept.heard:
                    raise
                while idle:  # the server closed it in the same moment, and so perhaps the others
                    idle.pop()[1].close()
            else:
                return
        connection = await self._connect(loop, address, connect_seconds)
        await self._over(connection, idle, request, receiver)

    async def _over(
        self,
        connection: "_Connection",
        idle: list[tuple[float, "_Connection"]],
        request: bytes,
        receiver: Receiver,
    ) -> None:
        try:
            await connection.exchange(request, receiver)
        finally:
            if connection.reusable:
                idle.append((asyncio.get_running_loop().time(), connection))
            else:
                connection.close()
            if len(idle) > KEPT_CONNECTIONS:
                idle.pop(0)[1].close()

    async def aclose(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop()[1].close()

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, address: Address, seconds: float | None
    ) -> "_Connection":
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    address.host,
                    address.port,
                    ssl=self._context,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError as error:
            raise ConnectionLate from error
        except OSError as error:
            raise NoConnection(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self.reusable = False
        self.heard = False
        """Whether anything came in answer to the request."""

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.close()

    async def exchange(self, request: bytes, receiver: Receiver) -> None:
        assert self._transport is not None
        self.reusable = self.heard = False
        self._receiver = receiver
        self._context: Context = copy_context()
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._chunks: list[bytes] = []
        self._status = 0
        self._told = False
        self._complete = False
        self._last = 0.0
        self._hurried = 0
        self._end = self._loop.create_future()
        try:
            self._transport.write(request)
            await self._end
        finally:
            self._receiver = None

    # -- the event loop says ---------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._receiver is None or self._end.done():
            self.close()
            return
        broken: Exception | None = None
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            broken = BrokenAnswer(str(error))
        if not self._status:
            self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD:
            broken = BrokenAnswer("the head of the answer is too large")
        self._context.run(self._pass_on)
        if broken is not None:
            self._fail(broken)
        elif not self._end.done():
            self._gather()

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._receiver is None or self._end.done():
            return
        sized = "content-length" in self._headers or "transfer-encoding" in self._headers
        if error is not None:
            self._fail(error)
        elif self._told and not sized:
            self._end.set_result(None)
        else:
            begun = "before the answer was complete" if self._told else "without an answer"
            self._fail(BrokenAnswer(f"the server closed the connection {begun}"))

    def _pass_on(self) -> None:
        """Tell the receiver what has come."""
        assert self._receiver is not None
        try:
            if self._status and not self._told:
                self._told = True
                self._receiver.head(self._status, self._headers)
            if self._chunks:
                chunks, self._chunks = self._chunks, []
                whole = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                self._receiver.body(whole, gathered=self._hurried >= HURRIED_PIECES)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the end
            self._fail(error)
            return
        if self._complete and not self._end.done():
            self.reusable = self._keeps_alive
            self._end.set_result(None)

    def _gather(self) -> None:
        """Let pieces that hurry gather for a moment."""
        now = self._loop.time()
        self._hurried = self._hurried + 1 if now - self._last < HURRIED_SECONDS else 0
        self._last = now
        if self._hurried >= HURRIED_PIECES and self._transport is not None:
            self._wake_from(GATHER_BYTES)
            self._loop.call_later(GATHER_SECONDS, self._read_on)

    def _read_on(self) -> None:
        self._last = self._loop.time()
        self._wake_from(1)

    def _wake_from(self, waiting: int) -> None:
        """Let the event loop hear of this connection only when so many bytes wait in it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if sys.platform == "linux":  # others would not notice what came before the limit fell
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, waiting)
        elif waiting > 1:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    # -- the parser says -------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._complete:  # nobody asked for a second answer
            return
        self._head_bytes += len(name) + len(value)
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers.clear()
        else:
            self._status = status

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._complete:
            self._keeps_alive = False
            return
        self._complete = self._status > 0
        self._keeps_alive = self._parser.should_keep_alive()
