"""The HTTP server that platforms are called at."""

import asyncio

import pytest

from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import ListenerCall, ListenerReply
from hermes.entry.http.listener import SharedListener

HOST = "127.0.0.1"


async def ask(port: int, head: str, body: bytes = b"") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(HOST, port)
    lines = f"{head} HTTP/1.1\r\nhost: h\r\nX-Signature: S\r\nconnection: close\r\n"
    writer.write(f"{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


async def echo(call: ListenerCall) -> ListenerReply:
    if call.method == "GET":
        return ListenerReply(body=call.query.get("challenge", "").encode())
    seen = call.headers["x-signature"].encode() + call.body
    return ListenerReply(status=202, body=seen, media_type="application/octet-stream")


async def test_challenges_are_answered_and_bodies_come_as_they_were_sent() -> None:
    listener = SharedListener()
    async with listener.serve(HOST, 0, "/hook", echo) as port:
        assert await ask(port, "GET /hook?challenge=c%20d") == (200, b"c d")
        assert await ask(port, "POST /hook", b'{"a" :1}\xff') == (202, b'S{"a" :1}\xff')
        assert (await ask(port, "POST /other"))[0] == 404


async def test_platforms_with_one_address_share_its_server() -> None:
    async def other(_call: ListenerCall) -> ListenerReply:
        return ListenerReply(body=b"other")

    listener = SharedListener()
    async with listener.serve(HOST, 0, "/a", echo) as port:
        async with listener.serve(HOST, 0, "/b", other) as same:
            assert same == port
            assert await ask(port, "POST /b") == (200, b"other")
            with pytest.raises(ConfigError, match="Two platforms"):
                async with listener.serve(HOST, 0, "/b", echo):
                    pass
        assert (await ask(port, "POST /b"))[0] == 404
        assert (await ask(port, "GET /a"))[0] == 200
    with pytest.raises(OSError, match="Connect"):
        await ask(port, "GET /a")


async def test_a_handler_that_breaks_is_a_server_error_and_the_next_call_works() -> None:
    async def broken(_call: ListenerCall) -> ListenerReply:
        raise RuntimeError("bug")

    listener = SharedListener()
    async with listener.serve(HOST, 0, "/a", broken) as port:
        assert (await ask(port, "GET /a"))[0] == 500
        assert (await ask(port, "GET /a"))[0] == 500
