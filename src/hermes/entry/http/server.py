"""Listening: uvicorn's HTTP protocol inside our own loop.

uvicorn's `Server.serve` takes over the signals of the process and leaves it
with `sys.exit` if it cannot listen, so its parts are driven from here: bind,
start, keep the `Date` header right, and on cancellation stop taking
connections, give running answers a bounded time and close what is left.
"""

import asyncio
import errno
import re
import socket
from email.utils import formatdate
from functools import partial
from typing import Any, cast

from httptools import HttpParserError
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server

from hermes.domain.errors import ConfigError, HermesError
from hermes.entry.http.request import AsgiApp
from hermes.entry.http.room import BodyRoom
from hermes.entry.http.turns import Turns

_UPGRADE = re.compile(rb"\A((?:[^\r\n]+\r\n)+?)upgrade:", re.IGNORECASE)
"""Within the head only: no line before it is empty."""
_OTHER_UPGRADE = re.compile(_UPGRADE.pattern + rb"(?![ \t]*websocket[ \t]*\r)", re.IGNORECASE)
_SOCKET = re.compile(rb"GET [^ ?]*/v1/responses[ ?]")
"""The one place where clients may go on over a WebSocket."""
_MAX_HEAD = 64 * 1024
_HEAD_SECONDS = 30.0
_MAX_PIPELINED = 16
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048
_PORT_KEY = "platforms.api_server.extra.port (API_SERVER_PORT)"


class HttpServer:
    def __init__(
        self,
        app: AsgiApp,
        host: str,
        port: int,
        *,
        grace_seconds: float = 5.0,
        port_key: str = _PORT_KEY,
        messages: BodyRoom | None = None,
    ) -> None:
        """Serve `app`; WebSockets only with room for their messages."""
        self._app = app
        self._messages = messages
        self._host = host
        self._port_key = port_key
        self.grace_seconds = grace_seconds
        self._sockets: list[socket.socket] = []
        self._server: Server | None = None
        self._dating: asyncio.TimerHandle | None = None
        self.port = port
        """Where it listens; for port 0 the real one once it is bound."""
        self.started = asyncio.Event()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    async def bind(self) -> None:
        """Take the port; `HermesError` with a next step if it cannot be had."""
        for family, kind, proto, address in await self._addresses():
            try:
                self._sockets.append(self._listener(family, kind, proto, address))
            except OSError as error:
                # `localhost` also has an IPv6 address on machines that cannot use it.
                unusable = error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
                if unusable and (self._sockets or family == socket.AF_INET6):
                    continue
                self._close_sockets()
                raise self._cannot_listen(error) from None
        if not self._sockets:
            raise self._cannot_listen(OSError(errno.EADDRNOTAVAIL, "no usable address"))

    async def run(self) -> None:
        await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Take connections; whoever does not `run` ends it with `stop`."""
        if not self._sockets:
            await self.bind()
        messages = self._messages
        config = Config(
            self._app,
            http=_BoundedProtocol,
            ws=cast("Any", partial(_socket, messages, Turns())) if messages else "none",
            ws_max_size=messages.each if messages else 0,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        config.load()
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._set_date()
        await self._server.startup(sockets=self._sockets)
        self.started.set()

    async def stop(self) -> None:
        """Take no more connections and give running answers a bounded time."""
        server = self._server
        if server is None:
            return
        if self._dating is not None:
            self._dating.cancel()
        for listener in server.servers:
            listener.close()
        self._close_sockets()
        state = server.server_state
        for connection in tuple(state.connections):
            connection.shutdown()
        try:
            if state.tasks:
                await asyncio.wait(tuple(state.tasks), timeout=self.grace_seconds)
        finally:
            for task in tuple(state.tasks):
                task.cancel()
            if state.tasks:
                await asyncio.wait(tuple(state.tasks), timeout=self.grace_seconds)
            for connection in tuple(state.connections):
                connection.transport.abort()

    async def _addresses(self) -> list[tuple[int, int, int, Any]]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise self._cannot_listen(error) from None
        return [(family, kind, proto, address) for family, kind, proto, _, address in found]

    def _listener(self, family: int, kind: int, proto: int, address: Any) -> socket.socket:
        # asyncio sets TCP_NODELAY only on sockets that say they are TCP; without it each
        # answer waits 40 ms for the client's acknowledgement.
        listener = socket.socket(family, kind, proto or socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], self.port, *address[2:]))
            listener.listen(_BACKLOG)
            listener.setblocking(False)  # noqa: FBT003 - its only parameter
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        return listener

    def _set_date(self) -> None:
        """Put the time into the `Date` of answers, every second."""
        if self._server is not None:
            date = formatdate(usegmt=True).encode()
            self._server.server_state.default_headers = [(b"date", date)]
            self._dating = asyncio.get_running_loop().call_later(1.0, self._set_date)

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets.clear()

    def _cannot_listen(self, error: OSError) -> HermesError:
        if error.errno == errno.EADDRINUSE:
            return HermesError(
                f"Something else listens on {self.address} already.",
                hint=f"Stop it, or set {self._port_key} to a free port.",
            )
        return ConfigError(
            f"The server cannot listen on {self.address} ({error.strerror or error}).",
            hint="Set the host to an address of this machine, and the port to one it may use.",
        )


def _socket(room: BodyRoom, turns: Turns, **named: Any) -> asyncio.Protocol:
    from hermes.entry.http.frames import BoundedSocket  # noqa: PLC0415 - few clients ask for one

    return BoundedSocket(room, turns, **named)


class _HeldHead:
    """The transport of an answer until its head is out: with what of the body comes at once.

    To send costs far more than to join two pieces, and the client reads but once.
    """

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle, self._loop = cycle, loop
        self._transport, self._head = cycle.transport, b""
        cycle.transport = cast("asyncio.Transport", self)

    def write(self, data: bytes) -> None:
        if self._head:
            self._head += data
            self._send()
        else:
            self._head = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _send(self) -> None:
        head, self._head = self._head, b""
        self._cycle.transport = self._transport
        if head:
            self._transport.write(head)


class _BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits for the head of a request.

    The parser keeps whatever it is sent, so a client that never ends its
    headers would fill the memory. A client that pipelines requests and leaves
    would be noticed only by the last of them. And the body of a client that
    offers to go on in another protocol (`Upgrade: h2c`, as Java's does by
    default) would not be read at all: the offer is hidden from the parser.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._unfinished: list[RequestResponseCycle] = []

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who still works for this client."""
        self._stop_waiting()
        for cycle in self._unfinished:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the head has become too long."""
        if self._in_head:
            if self._head_bytes == 0 and self._head_timer is None:
                self._await_head()
            if self._head_bytes == 0:
                asked = self.ws_protocol_class is not None and _SOCKET.match(data)
                offers = _OTHER_UPGRADE if asked else _UPGRADE
                data = offers.sub(rb"\1x-offered-upgrade:", data, count=1)
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > _MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()
        if self.parser.should_upgrade() and self._should_upgrade():
            return
        if self.scope["method"] != "HEAD":
            _HeldHead(self.cycle, self.loop)
        self._unfinished = [each for each in self._unfinished if not each.response_complete]
        self._unfinished.append(self.cycle)
        if len(self._unfinished) > _MAX_PIPELINED:
            raise HttpParserError("too many requests at once")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        busy = any(not cycle.response_complete for cycle in self._unfinished)
        if not busy and not self.transport.is_closing():
            self.transport.close()
