"""Streams: what is sent when, and what happens when nobody reads any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from fakes.http_door import KEY, SECRET, HttpDoor, http_door
from hermes.domain.errors import StoreError
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer, StreamAnswer
from hermes.entry.http.settings import HttpSettings
from hermes.entry.http.sse import Last
from hermes.testing import ScriptedModel


class Source:
    """What the test lets out, chunk by chunk."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.left = asyncio.Event()
        self.order: list[str] = []
        self.taken = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self.waiting.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                self.taken += 1
                yield chunk
        finally:
            self.order.append("closed")
            self.closed.set()

    async def on_left(self) -> None:
        self.order.append("left")
        self.left.set()


class Waiting:
    """A handler without a stream that waits for its client to leave."""

    def __init__(self) -> None:
        self.noticed = asyncio.Event()
        self.begun = asyncio.Event()

    async def handle(self, call: Call[None, None]) -> Answer:
        self.begun.set()
        await call.gone()
        self.noticed.set()
        return JsonAnswer(value="nobody hears this")


def streams(source: Source, waiting: Waiting | None = None) -> list[Endpoint]:
    async def stream(call: Call[None, None]) -> Answer:
        return StreamAnswer(
            chunks=source.chunks(), headers={"X-Hermes-Session-Id": "s1"}, left=source.on_left
        )

    async def endless(call: Call[None, None]) -> Answer:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                source.taken += 1
                yield b": " + b"x" * 65_536 + b"\n\n"

        return StreamAnswer(chunks=chunks(), left=source.on_left)

    async def together(call: Call[None, None]) -> Answer:
        async def chunks() -> AsyncIterator[bytes]:
            source.taken += 1
            if source.taken == 100:
                source.left.set()
            await source.left.wait()
            yield b"data: all here\n\n"

        return StreamAnswer(chunks=chunks())

    async def hello(call: Call[None, None]) -> Answer:
        return JsonAnswer(value="hello")

    def get(path: str, handler: Callable[[Call[Any, Any]], Any]) -> Endpoint:
        return Endpoint(
            name=path[1:], method="GET", path=path, summary=path, tag="Test", handler=handler
        )

    own = [get("/stream", stream), get("/endless", endless), get("/hello", hello)]
    own.append(get("/together", together))
    return [*own, get("/waiting", waiting.handle)] if waiting else own


def opened(folder: Path, source: Source, waiting: Waiting | None = None, **settings: Any) -> Any:
    return http_door(
        folder,
        ScriptedModel(),
        endpoints=streams(source, waiting),
        settings=HttpSettings(port=0, **settings),
    )


async def connected(door: HttpDoor, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    lines = (f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {KEY}", "", "")
    writer.write("\r\n".join(lines).encode())
    await writer.drain()
    return reader, writer


async def within(seconds: float, event: asyncio.Event) -> None:
    async with asyncio.timeout(seconds):
        await event.wait()


async def test_each_chunk_is_there_before_the_next_exists(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        async with door.client.stream("GET", "/stream") as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert "no-cache" in answer.headers["cache-control"]
            assert answer.headers["x-accel-buffering"] == "no"
            assert answer.headers["x-hermes-session-id"] == "s1"
            assert answer.headers["x-content-type-options"] == "nosniff"
            async with aclosing(answer.aiter_raw()) as parts:
                for chunk in (b"data: 1\n\n", b"data: 2\n\n"):
                    source.waiting.put_nowait(chunk)
                    assert await anext(parts) == chunk
                source.waiting.put_nowait(None)
                assert [part async for part in parts] == []
        assert source.order == ["closed"]


async def test_the_last_chunk_goes_out_with_the_end(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        reader, writer = await connected(door, "/stream")
        await reader.readuntil(b"\r\n\r\n")
        source.waiting.put_nowait(b"data: 1\n\n")
        assert await reader.read(4096) == b"9\r\ndata: 1\n\n\r\n"
        source.waiting.put_nowait(Last(b"data: 2\n\n"))
        source.waiting.put_nowait(None)
        assert await reader.read(4096) == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
        writer.close()
    assert source.order == ["closed"]


async def test_a_short_answer_is_one_piece_and_so_is_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path, Source()) as door:
        reader, writer = await connected(door, "/hello")
        for _ in range(2):
            assert (await reader.read(4096)).endswith(b'\r\n\r\n"hello"')
            writer.write(
                f"GET /hello HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n\r\n".encode()
            )
        assert (await reader.read(4096)).endswith(b'\r\n\r\n"hello"')
        writer.close()


async def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source, keepalive_seconds=0.02) as door:
        async with door.client.stream("GET", "/stream") as answer:
            async with aclosing(answer.aiter_raw()) as parts:
                assert await anext(parts) == b": keepalive\n\n"
                assert await anext(parts) == b": keepalive\n\n"
                source.waiting.put_nowait(b"data: 1\n\n")
                seen = b""
                while not seen.endswith(b"data: 1\n\n"):
                    seen += await anext(parts)
                source.waiting.put_nowait(None)


async def test_nobody_is_interrupted_by_comments_while_chunks_come(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source, keepalive_seconds=30) as door:
        for number in range(200):
            source.waiting.put_nowait(b"data: %d\n\n" % number)
        source.waiting.put_nowait(None)
        answer = await door.client.get("/stream")
        assert answer.text == "".join(f"data: {number}\n\n" for number in range(200))


async def test_when_the_client_leaves_the_iteration_ends_and_left_is_called(
    tmp_path: Path,
) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        reader, writer = await connected(door, "/stream")
        source.waiting.put_nowait(b"data: 1\n\n")
        await reader.readuntil(b"data: 1")
        writer.close()
        await within(5, source.left)
        assert source.order == ["closed", "left"]


async def test_a_client_that_leaves_behind_a_pipelined_request_is_noticed(tmp_path: Path) -> None:
    source = Source()
    # Reading is paused meanwhile: the next comment finds out.
    async with opened(tmp_path, source, keepalive_seconds=0.02) as door:
        reader, writer = await connected(door, "/stream")
        source.waiting.put_nowait(b"data: 1\n\n")
        await reader.readuntil(b"data: 1")
        writer.write(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        assert (await door.client.get("/hello")).status_code == 200
        writer.close()
        await within(5, source.left)


async def test_a_handler_without_a_stream_hears_that_its_client_is_gone(tmp_path: Path) -> None:
    waiting = Waiting()
    async with opened(tmp_path, Source(), waiting) as door:
        _, writer = await connected(door, "/waiting")
        await within(5, waiting.begun)
        assert not waiting.noticed.is_set()
        writer.close()
        await within(5, waiting.noticed)


async def test_who_reads_slowly_holds_up_nobody_else(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        _, writer = await connected(door, "/endless")
        while source.taken == 0:
            await door.client.get("/hello")
        before = -1
        while source.taken != before:
            before = source.taken
            assert (await door.client.get("/hello")).status_code == 200
        # It stands still: what it was sent and not read is bounded.
        assert source.taken < 1000
        writer.close()
        await within(5, source.left)


async def test_a_failure_within_a_stream_ends_it_with_an_error_event(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        source.waiting.put_nowait(b"data: 1\n\n")
        source.waiting.put_nowait(StoreError(f"The disk {SECRET} is full."))
        answer = await door.client.get("/stream")
        first, second, end = answer.text.split("\n\n")
        assert (first, end) == ("data: 1", "")
        assert second.startswith('event: error\ndata: {"error":{"message":"The disk *** is full.')
        assert not source.left.is_set()


async def test_a_bug_within_a_stream_is_logged_and_told_without_details(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        source.waiting.put_nowait(RuntimeError("secret detail"))
        answer = await door.client.get("/stream")
        assert '"code":"internal_error"' in answer.text
        assert "secret detail" not in answer.text
        assert any(record.exc_info for record in caplog.records)


async def test_head_of_a_stream_ends_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, Source()) as door:
        answer = await door.client.head("/stream")
        assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_hundred_streams_run_beside_each_other(tmp_path: Path) -> None:
    source = Source()
    async with opened(tmp_path, source) as door:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(door.client.get("/together")) for _ in range(100)]
        assert {(await answer).text for answer in asked} == {"data: all here\n\n"}
