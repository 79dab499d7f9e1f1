"""The one module that knows the HTTP library."""

import asyncio
import gzip
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import hermes.models
from fakes.listener import start_server
from fakes.model import FakeModelServer, Step
from fakes.model_client import InstantClock, ask, client_of, route_to
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.models.client import ModelClient, RetryPolicy
from hermes.models.http1 import ConnectionPool, request_bytes
from hermes.models.transport import Transport
from hermes.models.wire import WireFault

ONCE = RetryPolicy(max_retries=0)


def test_only_the_transport_knows_the_http_library() -> None:
    folder = Path(hermes.models.__file__).parent
    users = [
        path.name for path in folder.rglob("*.py") if "import httpcore2" in path.read_text("utf-8")
    ]
    assert users == ["transport.py"]


def test_the_http_library_is_not_imported_before_the_first_call() -> None:
    code = (
        "import hermes.models.client, sys; assert not {'httpcore2', 'httptools'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_tls_against_a_plain_server_is_a_tls_failure_and_not_retried() -> None:
    connections = 0

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await start_server(plain, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        route = route_to(FakeModelServer(), base_url=f"https://127.0.0.1:{port}/v1")
        client = client_of(route)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.TLS
    assert connections == 1


async def test_a_model_on_this_machine_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with FakeModelServer() as server:
        client = client_of(route_to(server), policy=ONCE)
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.text == "ok"


@pytest.mark.parametrize("body", ["<html>" + "x " * 500_000, {"error": {"message": "y" * 100_000}}])
async def test_a_huge_error_is_cut_to_a_readable_length(body: object) -> None:
    async with FakeModelServer([Step(status=500, body=body)]) as server:
        client = client_of(route_to(server), policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert len(failure.value.message) < 1000


async def test_an_address_that_is_none_is_explained() -> None:
    async with FakeModelServer() as server:
        client = client_of(route_to(server, base_url="nonsense"), policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.BAD_REQUEST


async def test_a_shared_transport_outlives_the_clients_that_use_it() -> None:
    async with FakeModelServer() as server:
        transport = Transport()
        for _ in range(2):
            client = ModelClient([route_to(server)], clock=InstantClock(), transport=transport)
            await client.warm()
            await client.complete(ask())
        await transport.close()
    assert server.connections == 1


async def test_a_stream_with_the_wrong_content_type_is_recognised() -> None:
    stream = 'data: {"choices":[{"delta":{"content":"hey"},"finish_reason":"stop"}]}\n\n'
    async with FakeModelServer(
        [Step(raw=stream, headers={"content-type": "text/plain"})]
    ) as server:
        client = client_of(route_to(server))
        reply = await client.complete(ask())
        await client.close()
    assert reply.message.text == "hey"


EVENT = b'data: {"choices":[{"delta":{"content":"hey"},"finish_reason":"stop"}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SIZED = HEAD + b"content-length: %d\r\n\r\n" % len(EVENT) + EVENT
PACKED = gzip.compress(EVENT)
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HEAD + b"\r\n" + EVENT, "hey"),
        (SIZED, "hey"),
        (SIZED + SIZED, "hey"),
        (HEAD + b"\r\n" + EVENT + DONE + EVENT, "hey"),
        (HEAD + b"\r\n" + EVENT + DONE[:8], "hey"),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + PACKED, "hey"),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + EVENT, FailureKind.CONNECTION),
        (CHUNKED + CHUNK + b"0\r\n\r\n", "hey"),
        (CHUNKED + CHUNK, FailureKind.CONNECTION),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"\r\n" + EVENT, "hey"),
        (CHUNKED + CHUNK[:-9], FailureKind.CONNECTION),
        (CHUNKED + b"what?", FailureKind.CONNECTION),
        (HEAD[:20], FailureKind.CONNECTION),
        (b"", FailureKind.CONNECTION),
        (b"SSH-2.0-OpenSSH\r\n", FailureKind.CONNECTION),
        (HEAD + b"x: " + b"y" * 200_000, FailureKind.CONNECTION),
    ],
)
async def test_answers_are_read_to_their_end_however_that_is_marked(
    answer: bytes, expected: object
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(answer), 40_000):
            writer.write(answer[at : at + 40_000])
            await writer.drain()
        writer.close()

    async with await start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        route = route_to(FakeModelServer(), base_url=f"http://127.0.0.1:{port}/v1")
        client = client_of(route, policy=ONCE)
        try:
            found: object = (await client.complete(ask())).message.text
        except ModelFailure as failure:
            found = failure.kind
        await client.close()
    assert found == expected


async def test_a_kept_connection_that_the_server_closes_meanwhile_is_no_failure() -> None:
    connections: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SIZED)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.close()  # the next request is on its way already

    async with await start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        route = route_to(FakeModelServer(), base_url=f"http://127.0.0.1:{port}/v1")
        client = client_of(route, policy=ONCE)
        await asyncio.gather(*(client.complete(ask()) for _ in range(5)))
        before = len(connections)
        assert (await client.complete(ask())).message.text == "hey"
        await client.close()
        await asyncio.gather(*filter(None, connections))
    assert (before, len(connections)) == (5, 6)


async def test_an_endless_header_is_given_up() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"x: ")
        with suppress(OSError):
            while True:
                writer.write(b"y" * 100_000)
                await writer.drain()
        writer.close()
        ended.set()

    async with await start_server(serve, "127.0.0.1", 0) as listener, asyncio.timeout(20):
        port = listener.sockets[0].getsockname()[1]
        route = route_to(FakeModelServer(), base_url=f"http://127.0.0.1:{port}/v1")
        client = client_of(route, policy=ONCE)
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        await client.close()
        await ended.wait()


async def test_a_key_that_is_no_header_is_refused_before_anything_is_sent() -> None:
    async with FakeModelServer() as server:
        with pytest.raises(WireFault):
            await Transport().get(f"{server.base_url}/models", "key\r\nx-more: 1")
        assert server.connections == 0


async def test_models_behind_a_proxy_are_asked_through_it() -> None:
    async with FakeModelServer() as server:
        transport = Transport(lambda _: f"http://me:pass@127.0.0.1:{server.port}")
        client = ModelClient(
            [route_to(server, base_url="http://far.example/v1")],
            clock=InstantClock(),
            transport=transport,
        )
        with suppress(ModelFailure):
            await client.complete(ask())
        await transport.close()
    assert server.connections > 0


async def test_pieces_that_hurry_are_gathered_and_none_is_lost() -> None:
    class Heard:
        def __init__(self) -> None:
            self.bodies: list[bytes] = []

        def head(self, status: int, headers: dict[str, str]) -> None:
            assert (status, headers["content-length"]) == (200, "400")

        def body(self, chunk: bytes, *, gathered: bool = False) -> None:
            assert gathered or len(chunk) == 4
            self.bodies.append(chunk)

    async def quick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n")
        for number in range(100):
            writer.write(b"%4d" % number)
            await asyncio.sleep(0.001)
        writer.close()
        await writer.wait_closed()

    async with await start_server(quick, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        pool, heard = ConnectionPool(None), Heard()
        await pool.exchange(url, request_bytes("GET", url, {}, b""), heard, 5.0)
        await pool.aclose()
    assert b"".join(heard.bodies) == b"".join(b"%4d" % number for number in range(100))
    assert heard.bodies[0] == b"   0", "what comes first does not wait"
    assert len(heard.bodies) < 50
