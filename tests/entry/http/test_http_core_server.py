"""Listening and stopping."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from hermes.domain.errors import ConfigError, HermesError
from hermes.entry.http.request import AsgiApp, Receive, Scope, Send
from hermes.entry.http.server import HttpServer

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def plain(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hi"})


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
        await plain(scope, receive, send)


@asynccontextmanager
async def running(
    app: AsgiApp, host: str = "127.0.0.1", grace_seconds: float = 5.0
) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, host, 0, grace_seconds=grace_seconds)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        await server.started.wait()
        try:
            yield server
        finally:
            task.cancel()


async def ask(port: int, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_port_0_is_any_free_port() -> None:
    async with running(plain) as server:
        assert server.port > 0
        assert (await ask(server.port)).endswith(b"hi\r\n0\r\n\r\n")


async def test_a_name_with_several_addresses_is_served_on_one_port() -> None:
    async with running(plain, "localhost") as server:
        assert b" 200 " in await ask(server.port, "127.0.0.1")


async def test_a_port_that_is_taken_is_an_error_with_a_next_step() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(HermesError) as caught:
            await HttpServer(plain, "127.0.0.1", port).run()
        assert str(port) in caught.value.message
        assert "platforms.api_server.extra.port (API_SERVER_PORT)" in caught.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_a_host_that_is_not_ours_is_an_error_with_a_next_step(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        await HttpServer(plain, host, 0).bind()


async def test_signals_stay_with_whoever_had_them() -> None:
    before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    async with running(plain) as server:
        await ask(server.port)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_stopping_waits_for_answers_that_come_in_time() -> None:
    app = Slow()
    async with asyncio.TaskGroup() as group:
        async with running(app, grace_seconds=20) as server:
            asked = group.create_task(ask(server.port))
            await app.begun.wait()
            asyncio.get_running_loop().call_later(0.05, app.go.set)
    assert b" 200 " in await asked
    assert not app.cancelled.is_set()


async def test_stopping_ends_answers_that_take_longer() -> None:
    app = Slow()
    async with asyncio.TaskGroup() as group:
        async with running(app, grace_seconds=0.05) as server:
            asked = group.create_task(ask(server.port))
            await app.begun.wait()
    await asked
    assert app.cancelled.is_set()


async def test_stopping_closes_idle_connections_and_the_port() -> None:
    async with running(plain) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        await reader.readuntil(b"hi")
    async with asyncio.timeout(5):
        await reader.read()
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


def test_the_command_line_does_not_load_the_server_nor_the_server_websockets() -> None:
    code = (
        "import hermes.app.build, hermes.app.serve, hermes.cli.root, hermes.cli.commands.chat\n"
        "import sys; print('uvicorn' in sys.modules, 'httptools' in sys.modules)\n"
        "import hermes.entry.http.server; print('wsproto' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == ["False", "False", "False"]
