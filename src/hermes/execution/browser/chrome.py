"""Chrome: a browser process, or a browser elsewhere, and the DevTools messages to and from it."""

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import msgspec

from hermes.domain.errors import ConfigError, HermesError

log = logging.getLogger(__name__)

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MAX_MESSAGE = 64 * 2**20
_LONGEST_TEMP = 20
"""Letters of the temporary folder; with more, the socket that Chromium makes below would have a
name that is too long, and Chromium would end."""
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-quic", "--disable-extensions", "--mute-audio", "--disable-dev-shm-usage"),
    *("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-gpu"),
    *("--password-store=basic", "--use-mock-keychain", "--disable-breakpad"),
    # Loopback, too, goes through the proxy, which decides.
    "--proxy-bypass-list=<-loopback>",
    "--disable-features=BackForwardCache,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
)


def browser_program() -> str | None:
    """Return the Chromium or Chrome of this machine."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Pipe(Protocol):
    async def send(self, data: bytes) -> None: ...

    def messages(self) -> AsyncIterator[bytes]: ...


class ProcessPipe:
    """Messages over two pipes of the process, each ended by a NUL."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data + b"\0")
        await self._writer.drain()

    async def messages(self) -> AsyncIterator[bytes]:
        with contextlib.suppress(EOFError, OSError, asyncio.LimitOverrunError):
            while True:
                yield (await self._reader.readuntil(b"\0"))[:-1]


class SocketPipe:
    """Messages over a WebSocket."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        await self._socket.send_text(data.decode())

    async def messages(self) -> AsyncIterator[bytes]:
        from httpx2 import websockets  # noqa: PLC0415 - remote browsers only

        with contextlib.suppress(websockets.HTTPXWSException, websockets.WebSocketDisconnect):
            while True:
                data = getattr(await self._socket.receive(), "data", b"")
                yield data.encode() if isinstance(data, str) else bytes(data)


class Unresponsive(HermesError):
    """The browser, or what a page runs in, is stuck."""


class Chrome:
    """One browser; commands by `call`, events to whoever listens for a session."""

    def __init__(self, stack: AsyncExitStack, pipe: Pipe) -> None:
        self._stack, self._pipe = stack, pipe
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self.ended = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, proxy: str) -> "Chrome":
        program = browser_program()
        if program is None:
            raise ConfigError("There is no Chromium on this machine.", hint="Install chromium.")
        stack = AsyncExitStack()
        try:
            pipe = await _process(stack, program, proxy)
        except BaseException:
            await stack.aclose()
            raise
        return cls(stack, pipe)

    @classmethod
    async def connect(cls, address: str) -> "Chrome":
        import httpx2  # noqa: PLC0415 - remote browsers only

        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()

        async def held() -> None:
            """Open and close the connection in one task, as its library wants it."""
            async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
                where = address
                if where.startswith("http"):
                    found = await client.get(f"{where.rstrip('/')}/json/version")
                    where = found.json()["webSocketDebuggerUrl"]
                patience = httpx2.Timeout(30, read=None)
                async with client.websocket(where, timeout=patience) as socket:
                    opened.set_result(socket)
                    await over.wait()

        async def closed() -> None:
            over.set()
            await asyncio.gather(holding, return_exceptions=True)

        holding = asyncio.ensure_future(held())
        await asyncio.wait({holding, opened}, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            error = holding.exception()
            raise HermesError(
                f"The browser at {address} cannot be reached: {error}",
                hint="Check browser.cdp_url.",
            ) from error
        stack = AsyncExitStack()
        stack.push_async_callback(closed)
        return cls(stack, SocketPipe(opened.result()))

    async def call(self, method: str, /, timeout: float = 30.0, **params: Any) -> dict[str, Any]:
        """Call something of the browser itself."""
        return await self.send(method, params, "", timeout)

    async def send(
        self, method: str, params: dict[str, Any], session: str, timeout: float
    ) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout):
                if self.ended.is_set():
                    raise HermesError("The browser has ended.", hint="Navigate again.")
                await self._pipe.send(
                    msgspec.json.encode(message | ({"sessionId": session} if session else {}))
                )
                return await answer
        except TimeoutError:
            raise Unresponsive(
                f"The page does not answer: {method} took more than {timeout:g} s.",
                hint="Open another one with browser_navigate.",
            ) from None
        except OSError as error:
            raise HermesError(f"The browser has ended: {error}.") from error
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._end()
        await self._stack.aclose()

    async def _read(self) -> None:
        try:
            async for data in self._pipe.messages():
                message = msgspec.json.decode(data)
                if "id" in message:
                    self._answer(message)
                elif listener := self.listeners.get(message.get("sessionId", "")):
                    listener(message["method"], message.get("params", {}))
        finally:
            self._end()

    def _answer(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(message["id"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(HermesError(f"The browser says: {message['error']['message']}."))
        else:
            waiting.set_result(message.get("result", {}))

    def _end(self) -> None:
        self.ended.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(HermesError("The browser has ended.", hint="Navigate again."))


async def _process(stack: AsyncExitStack, program: str, proxy: str) -> ProcessPipe:
    folder = await asyncio.to_thread(_profile)
    stack.push_async_callback(asyncio.to_thread, shutil.rmtree, folder, ignore_errors=True)
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    flags = [*_FLAGS, f"--user-data-dir={folder}", f"--proxy-server={proxy}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's own walls need another user
    shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", shell, program, *flags, "about:blank"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": folder,
                "TMPDIR": folder,  # what a killed browser leaves there goes with the profile
            },
        )
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    stack.push_async_callback(_ended, process)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_MESSAGE)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(ours_out, "wb", 0)
    )
    stack.callback(reading.close)
    stack.callback(transport.close)
    return ProcessPipe(reader, asyncio.StreamWriter(transport, protocol, None, loop))


def _profile() -> str:
    place = tempfile.gettempdir()
    return tempfile.mkdtemp(
        prefix=f"hermes-browser-{os.getpid()}-",
        dir=place if len(place) <= _LONGEST_TEMP else "/tmp",  # noqa: S108 - a new folder in it
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    await process.wait()
