"""Whatever bytes arrive, the server answers others as before and never with a 5xx."""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from fakes.http_door import KEY, HttpDoor, http_door
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer
from hermes.entry.http.settings import HttpSettings
from hermes.testing import ScriptedModel


class Ask(Struct, kw_only=True):
    messages: list[dict[str, Any]]
    model: str | None = None
    temperature: float | None = None


class Paging(Struct, kw_only=True):
    limit: int = 50
    deep: bool = False


async def echo(call: Call[Any, Any]) -> Answer:
    return JsonAnswer(value={"body": call.body, "query": call.query, "path": dict(call.path)})


ENDPOINTS = (
    Endpoint(name="ask", method="POST", path="/ask", summary="a", tag="T", handler=echo, body=Ask),
    Endpoint(
        name="get",
        method="GET",
        path="/things/{thing_id}",
        summary="a",
        tag="T",
        handler=echo,
        query=Paging,
    ),
)
BODY = (
    b'{"messages": [{"role": "user", "content": "hi \\u00e9 \\ud83d\\ude00"}], "temperature": 0.5}'
)
PIECES = [
    *(b"\x00", b"\xff", b"\r\n", b"\r", b"\n", b": ", b"{", b"[", b'"', b"\\ud800", b"%00", b"%"),
    *(b"1e400", b"9" * 40, b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\t"),
    *(
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\n",
        b"Connection: upgrade\r\n",
        b"0\r\n\r\n",
    ),
    *(b"Host: evil.example\r\n", b"Origin: null\r\n", b"Last-Event-ID: \x85\r\n", b"\xc3\x28"),
]


def request(chance: random.Random) -> bytes:
    """Return a good request, in one of several forms."""
    lines = ["Host: localhost", f"Authorization: Bearer {KEY}", "Connection: close"]
    if chance.random() < 0.4:
        path = chance.choice(
            ["/things/1?limit=3", "/things/%C3%A9", "/things/a%2Fb?deep=true", "/x"]
        )
        return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()
    if chance.random() < 0.5:
        lines.append("Transfer-Encoding: chunked")
        size = chance.randint(1, len(BODY))
        parts = [BODY[at : at + size] for at in range(0, len(BODY), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(BODY)}")
        body = BODY
    lines.append("Content-Type: application/json")
    return "\r\n".join(["POST /ask HTTP/1.1", *lines, "", ""]).encode() + body


def mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 4)):
        at, what = chance.randrange(len(data) + 1), chance.random()
        if what < 0.5:
            data = data[:at] + chance.choice(PIECES) + data[at:]
        elif what < 0.8:
            data = data[:at] + data[at + chance.randint(1, 20) :]
        else:
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    return data


async def statuses(door: HttpDoor, data: bytes, chance: random.Random) -> list[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    answer = b""
    try:
        cut = chance.randrange(len(data) + 1)
        for part in (data[:cut], data[cut:]):
            writer.write(part)
            await writer.drain()
        # A request that was cut short is waited for in vain: nobody answers half a head.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.15):
                while part := await reader.read(65536):
                    answer += part
    except OSError:
        pass
    finally:
        writer.close()
    heads = [part.split(b" ", 2) for part in answer.split(b"HTTP/1.1 ")[1:]]
    return [int(head[0]) for head in heads]


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_is_never_a_5xx(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    seen: set[int] = set()
    settings = HttpSettings(port=0, body_seconds=0.05, grace_seconds=0.1)
    async with http_door(tmp_path, ScriptedModel(), endpoints=ENDPOINTS, settings=settings) as door:
        for _ in range(200):
            data = mutated(request(chance), chance)
            found = await statuses(door, data, chance)
            assert all(status < 500 for status in found), (data, found)
            seen.update(found)
        assert (await door.client.get("/things/1")).status_code == 200
    assert {200, 400, 404, 408} <= seen
