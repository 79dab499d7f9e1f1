"""Clients with a good key that send very much at once: others are answered meanwhile."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fakes.http_door import KEY, HttpDoor, bearer
from fakes.http_kit import error_of
from fakes.http_responses import responses_door
from hermes.domain.nesting import MAX_VALUES, more_values_than
from hermes.entry.http.frames import MAX_CONTROLS, MAX_FRAGMENTS
from hermes.entry.http.room import LEAST
from hermes.entry.http.settings import HttpSettings
from hermes.entry.http.websocket import MAX_REFUSED, MAX_SOCKETS, UNWANTED
from hermes.testing.model import ScriptedModel, say

MB = 1024 * 1024
JSON = {"content-type": "application/json"}


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[HttpDoor]:
    settings = HttpSettings(port=0, max_body_bytes=2 * MB, max_auth_failures=1000)
    model = ScriptedModel(default=say("Ok."))
    async with responses_door(tmp_path, model, settings=settings) as made:
        yield made


@asynccontextmanager
async def socket(door: HttpDoor) -> AsyncIterator[ClientConnection]:
    address = f"ws://127.0.0.1:{door.port}/v1/responses"
    async with (
        asyncio.timeout(30),
        connect(address, additional_headers=bearer(), ping_interval=None) as made,
    ):
        yield made


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """Return a short frame as clients send it, under a mask that changes nothing."""
    return bytes([opcode | (0x80 if last else 0), 0x80 | len(data)]) + bytes(4) + data


# -- values --------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", ["[" + "[]," * 60_000 + "0]", "{" + '"a":0,' * 110_000 + '"a":0}']
)
async def test_a_body_of_very_many_values_is_refused(door: HttpDoor, options: str) -> None:
    body = f'{{"model": "hermes", "input": "hi", "metadata": null, "stream_options": {options}}}'
    refused = error_of(
        await door.client.post("/v1/responses", content=body.encode(), headers=JSON), 400
    )
    assert (refused["code"], refused["message"]) == (
        "too_many_values",
        f"The body has more than {MAX_VALUES:,} values.",
    )


async def test_texts_full_of_commas_and_brackets_are_ordinary(door: HttpDoor) -> None:
    body = {"model": "hermes", "input": '[{,"\\' * 50_000, "store": False}
    assert (await door.client.post("/v1/responses", json=body)).status_code == 200


def test_values_are_counted_outside_of_texts_and_no_further_than_needed() -> None:
    value = {"a,[{": ["x,y", {"b": '\\"['}, 1, 2]}
    assert not more_values_than(6, json.dumps(value).encode())
    assert more_values_than(5, json.dumps(value).encode())
    assert more_values_than(5, b'",,,,,,"' + b'""' * 20), "what is no JSON is not read to its end"


# -- bodies on their way -------------------------------------------------------


@asynccontextmanager
async def unfinished(door: HttpDoor, count: int) -> AsyncIterator[None]:
    """Send so many bodies of a megabyte but for their ends, until the server has them."""
    head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {2 * MB}\r\n\r\n"
    writers = list[asyncio.StreamWriter]()
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(head.encode() + b" " * MB)
        await writer.drain()
        writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.close()
            await writer.wait_closed()


async def large(door: HttpDoor) -> Any:
    body = b" " * (MB // 2) + b'{"model": "hermes", "input": "hi", "store": false}'
    return await door.client.post("/v1/responses", content=body, headers=JSON)


async def test_many_unfinished_bodies_leave_room_for_small_ones_and_large_ones_come_again(
    door: HttpDoor,
) -> None:
    async with unfinished(door, LEAST // MB + 2):
        async with asyncio.timeout(20):
            while (answer := await large(door)).status_code == 200:
                pass
        assert error_of(answer, 503)["code"] == "too_many_bodies"
        assert answer.headers["retry-after"] == "5"
        body = {"model": "hermes", "input": "hi", "store": False}
        assert (await door.client.post("/v1/responses", json=body)).status_code == 200
        async with socket(door) as made:
            await made.send("x" * MB)
            with pytest.raises(ConnectionClosed) as closed:
                await made.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
    async with asyncio.timeout(20):
        while (await large(door)).status_code != 200:
            pass
        async with socket(door) as made:
            await made.send("x" * MB)
            assert json.loads(await made.recv())["error"]["code"] == "invalid_json"


# -- frames --------------------------------------------------------------------


async def test_a_message_has_a_bounded_number_of_fragments(door: HttpDoor) -> None:
    async with socket(door) as made:
        made.transport.write(frame(1, b"x", last=False))
        made.transport.write(frame(0, b"x", last=False) * MAX_FRAGMENTS)
        with pytest.raises(ConnectionClosed) as closed:
            await made.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def _longest_turn(door: HttpDoor) -> float:
    """Return which part of the reading of many small frames others had to wait for."""
    async with socket(door) as made:
        count = 8_000
        made.transport.write(frame(1, b"x", last=False) + frame(0, b"", last=False) * count)
        made.transport.write(frame(9, b"seen"))
        made.transport.write(frame(0, b"x"))
        answered = asyncio.create_task(made.recv())
        gc.collect()
        gc.disable()
        try:
            longest, began = 0.0, time.process_time()
            while not answered.done():
                before = time.process_time()
                await asyncio.sleep(0)
                longest = max(longest, time.process_time() - before)
            taken = time.process_time() - began
        finally:
            gc.enable()
        assert json.loads(await answered)["error"]["code"] == "invalid_json"
    return longest / taken


async def test_others_get_their_turn_while_small_frames_are_read_cost(door: HttpDoor) -> None:
    """The quickest of several rounds."""
    assert min([await _longest_turn(door) for _ in range(3)]) < 0.4


# -- very many small messages ----------------------------------------------------

NONSENSE = frame(1, b'{"type":"x"}')


async def _refused(made: ClientConnection, count: int) -> None:
    codes = {json.loads(await made.recv())["error"]["code"] for _ in range(count)}
    assert codes <= {"invalid_value", "too_many_runs"}


async def _pongs(made: ClientConnection, count: int) -> None:
    """Wait for the answers to pings that are sent now."""
    for waiter in [await made.ping(str(number)) for number in range(count)]:
        await waiter


async def _longest_of_many(door: HttpDoor, count: int, small: bytes) -> float:
    """Return which part of the reading of what many sockets send at once others wait for."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(socket(door)) for _ in range(count)]
        for each in made:
            each.transport.write(small * (MAX_REFUSED - 10) + frame(1, b"x" * 120))
        last = asyncio.gather(*map(_until_invalid, made))
        gc.collect()
        gc.disable()
        try:
            longest, began = 0.0, time.process_time()
            while not last.done():
                before = time.process_time()
                await asyncio.sleep(0)
                longest = max(longest, time.process_time() - before)
            taken = time.process_time() - began
        finally:
            gc.enable()
        await last
    return longest / taken


async def _until_invalid(made: ClientConnection) -> None:
    """Read until the last message is answered, which is refused in any case."""
    codes = list[str]()
    while not codes or (codes[-1] != "invalid_json" and len(codes) <= MAX_REFUSED - 10):
        codes.append(json.loads(await made.recv())["error"]["code"])


@pytest.mark.parametrize("small", [NONSENSE, frame(9, b"seen")], ids=["messages", "pings"])
async def test_others_get_their_turn_while_many_sockets_send_small_messages_cost(
    door: HttpDoor, small: bytes
) -> None:
    """The quickest of several rounds."""
    assert min([await _longest_of_many(door, 30, small) for _ in range(3)]) < 0.1


async def test_small_messages_are_all_answered_and_pings_among_them(door: HttpDoor) -> None:
    async with socket(door) as made:
        for _ in range(2):
            made.transport.write(NONSENSE * (MAX_REFUSED - 1))
            await asyncio.gather(_pongs(made, 300), _refused(made, MAX_REFUSED - 1))
            await made.send(json.dumps({"type": "response.create", "input": "hi", "store": False}))
            kinds = [json.loads(await made.recv())["type"]]
            while not kinds[-1].startswith(("response.completed", "response.failed", "error")):
                kinds.append(json.loads(await made.recv())["type"])
            assert kinds[-1] == "response.completed"


async def test_whoever_sends_nothing_but_what_is_refused_loses_the_connection(
    door: HttpDoor,
) -> None:
    async with socket(door) as made:
        made.transport.write(NONSENSE * (MAX_REFUSED + 100))
        await _refused(made, MAX_REFUSED)
        with pytest.raises(ConnectionClosed) as closed:
            await made.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == UNWANTED
        assert "could not be granted" in closed.value.rcvd.reason


async def test_pings_without_end_end_a_connection(door: HttpDoor) -> None:
    async with socket(door) as made:
        await _pongs(made, MAX_CONTROLS)
        with pytest.raises(ConnectionClosed) as closed:
            await (await made.ping("one too many"))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == UNWANTED


async def test_a_key_has_a_bounded_number_of_sockets(door: HttpDoor) -> None:
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(socket(door)) for _ in range(MAX_SOCKETS)]
        with pytest.raises(InvalidStatus) as refused:
            await stack.enter_async_context(socket(door))
        answer = refused.value.response
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert json.loads(answer.body or b"")["error"]["code"] == "too_many_sockets"
        body = {"model": "hermes", "input": "hi", "store": False}
        assert (await door.client.post("/v1/responses", json=body)).status_code == 200
        await made[0].close()
        async with asyncio.timeout(20):
            while not await _opens(door):
                pass


async def _opens(door: HttpDoor) -> bool:
    try:
        async with socket(door):
            return True
    except InvalidStatus:
        return False
