"""GuardProxy: an HTTP proxy that asks before it connects, for one browser.

The browser resolves no names and opens no connections of its own: pages, redirects, frames, scripts
and WebSockets all come here. The name is resolved once, checked, and the connection goes to the
address that was checked. For a browser on another machine it listens where that machine sees this
one, and serves nobody else; whether the browser gets here is tried with a name that only we know.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from hermes.domain.errors import HermesError, UsageError

log = logging.getLogger(__name__)

AddressOf = Callable[[str, int], Awaitable[str]]
"""(name, port) -> the address to connect to; `HermesError` if it may not be reached."""
_HEAD = 65_536
_SECONDS = 30.0


class GuardProxy:
    def __init__(self, address_of: AddressOf) -> None:
        self._address_of = address_of
        self._browser = ""
        """The address of the browser's machine."""
        self.probe = f"{secrets.token_hex(16)}.invalid"
        self.met = False
        """The browser has asked for the probe: its connections come here."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, machine: str = "127.0.0.1") -> str:
        """Listen for the browser of a machine; return where, as `host:port`."""
        try:
            here, self._browser = await asyncio.to_thread(_way_to, machine)
            self._server = await asyncio.start_server(self._serve, here, 0, limit=_HEAD)
        except OSError as error:
            raise HermesError(f"There is no way back from {machine}: {error}.") from error
        port = self._server.sockets[0].getsockname()[1]
        return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
                url = urlsplit(f"//{target}" if method == "CONNECT" else target)
                if writer.get_extra_info("peername")[0] != self._browser:
                    raise UsageError("This proxy is for one browser.")
                if url.hostname == self.probe:
                    self.met = True
                    raise UsageError("This is the guard of a browser.")
                port = url.port or (443 if url.scheme == "https" else 80)
                address = await self._address_of(url.hostname or "", port)
                there = await asyncio.open_connection(address, port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there[1].write(_direct(head, target))
            await self._between((reader, writer), there)
        except HermesError as error:
            text = f"Not reachable from here: {error.message}".encode()
            writer.write(
                b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(text), text)
            )
        except (OSError, TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        finally:
            self._open.discard(task)
            writer.close()

    async def _between(
        self,
        one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(pump(one[0], other[1]))
            group.create_task(pump(other[0], one[1]))


def _way_to(machine: str) -> tuple[str, str]:
    """Return our address as a machine sees it, and its own; nothing is sent."""
    family, kind, *_, address = socket.getaddrinfo(machine, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)
        return str(way.getsockname()[0]), str(address[0])


def _direct(head: bytes, target: str) -> bytes:
    """Return a request for a proxy as one for the server itself, one request a connection."""
    parts = urlsplit(target)
    path = parts._replace(scheme="", netloc="").geturl() or "/"
    first, _, rest = head.partition(b"\r\n")
    method, _, version = first.split(b" ", 2)
    lines = [
        line
        for line in rest.rstrip(b"\r\n").split(b"\r\n")
        if not line.lower().startswith((b"proxy-", b"connection:"))
    ]
    start = b" ".join([method, path.encode("latin-1"), version])
    return b"\r\n".join([start, *lines, b"Connection: close", b"", b""])
