"""Between client and engine, against a fake engine that speaks like llama.cpp."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes.execution.local_model.engine import Engine
from hermes.execution.local_model.relay import CHAT_PATH, relay
from hermes.execution.local_model.wire import BadMessage, exchange, read_head

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read_file", "search_files")]
Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Any]


@asynccontextmanager
async def fake_engine(answer: Answer) -> AsyncIterator[Engine]:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        body = json.loads(await reader.readexactly(head.length or 0) or b"{}")
        await answer(body, writer)
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Engine(host="127.0.0.1", port=port, api_key="k", handle=None)


def _chunk(piece: bytes) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def streamed(*events: bytes) -> Answer:
    async def answer(_body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for event in events:
            # Cut in the middle: an event is not a chunk.
            writer.write(_chunk(event[:7]) + _chunk(event[7:]))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return answer


async def _ask(engine: Engine, text: str, *, constrained: bool = True) -> list[dict[str, Any]]:
    request = {"messages": [{"role": "user", "content": text}], "tools": TOOLS, "stream": True}
    body = json.dumps(request).encode()
    pieces = [
        piece async for piece in relay(engine, "POST", CHAT_PATH, body, constrained=constrained)
    ]
    head, _, content = b"".join(pieces).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    lines = content.decode().split("\n\n")
    return [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]


async def test_words_go_through_as_they_are() -> None:
    events = (_event({"content": "Hel"}), _event({"content": "lo <3"}), _event({}, "stop"))
    async with fake_engine(streamed(*events, b"data: [DONE]\n\n")) as engine:
        choices = await _ask(engine, "show me notes.md")
    assert "".join(c["delta"].get("content", "") for c in choices) == "Hello <3"
    assert choices[-1]["finish_reason"] == "stop"


async def test_a_form_written_piece_by_piece_becomes_one_tool_call() -> None:
    events = (
        _event({"role": "assistant", "content": None}),
        *(_event({"content": piece}) for piece in ("<", "re", "ad>", "notes", ".md")),
        _event({}, "stop"),
    )
    async with fake_engine(streamed(*events, b"data: [DONE]\n\n")) as engine:
        choices = await _ask(engine, "show me notes.md")
    assert "".join(c["delta"].get("content") or "" for c in choices) == ""
    (call,) = choices[-1]["delta"]["tool_calls"]
    assert call["function"] == {"name": "read_file", "arguments": '{"path": "notes.md"}'}
    assert choices[-1]["finish_reason"] == "tool_calls"


async def test_an_answer_that_is_not_streamed_is_turned_into_a_call_too() -> None:
    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        assert "tools" not in body
        message = {"role": "assistant", "content": "<list>."}
        data = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    request = {"messages": [{"role": "user", "content": "list the files"}], "tools": TOOLS}
    async with fake_engine(answer) as engine:
        pieces = relay(engine, "POST", CHAT_PATH, json.dumps(request).encode(), constrained=True)
        content = b"".join([piece async for piece in pieces]).partition(b"\r\n\r\n")[2]
    (choice,) = json.loads(content)["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "search_files"


async def test_a_larger_model_gets_the_request_untouched() -> None:
    seen: list[dict[str, Any]] = []

    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        seen.append(body)
        await streamed(_event({"content": "<b>"}, "stop"))(body, writer)

    async with fake_engine(answer) as engine:
        choices = await _ask(engine, "show me notes.md", constrained=False)
    assert seen[0]["tools"] == TOOLS
    assert choices[0]["delta"]["content"] == "<b>"


async def test_a_body_that_is_not_an_object_is_refused() -> None:
    async with fake_engine(streamed()) as engine:
        with pytest.raises(BadMessage):
            await anext(relay(engine, "POST", CHAT_PATH, b"[1]", constrained=True))


async def test_an_answer_that_breaks_off_is_not_taken_for_whole() -> None:
    async def answer(_body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async with fake_engine(answer) as engine:
        with pytest.raises(BadMessage):
            await exchange(f"http://{engine.host}:{engine.port}/x", timeout=5)
