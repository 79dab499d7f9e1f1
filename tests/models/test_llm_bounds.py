"""Answers without measure: what ends them, what is said then, and what they cost until then."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import repeat

import pytest

from fakes.cpu import least_cpu
from fakes.model import Call, FakeModelServer, Step
from fakes.model_client import Heard, ask, client_of, route_to
from hermes.domain.messages import ToolCall
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings.models import ModelTimeouts
from hermes.models.bounds import CALLS, CHARS, EVENT_BYTES, PARTS, REPAIRED_CHARS, VALUES
from hermes.models.client import protocol_for
from hermes.models.providers import ApiMode
from hermes.models.routes import ModelRoute
from hermes.models.tool_calls import CallAssembler, repair_calls
from hermes.models.wire import Sink

MODES = list(ApiMode)
CHAT = ApiMode.CHAT_COMPLETIONS
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: "
STREAM = HEAD + b"text/event-stream\r\n\r\n"
MOST_SENT = 300_000_000
END = b"data: [DONE]\n\n"


@asynccontextmanager
async def saying(answer: Callable[[], Iterator[bytes]]) -> AsyncIterator[ModelRoute]:
    """Serve an answer until the client leaves, or `MOST_SENT` bytes of it; yield the way to it."""

    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            sent = 0
            for piece in answer():
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                if sent > MOST_SENT:
                    writer.write(END)
                    break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        patient = ModelTimeouts(connect=50.0, first_byte=50.0, idle=50.0, total=50.0)
        address = f"http://127.0.0.1:{port}/v1"
        yield route_to(FakeModelServer(), base_url=address, timeouts=patient)
        await asyncio.gather(*filter(None, serving))


def delta(**said: object) -> bytes:
    choice = {"choices": [{"delta": said}]}
    return b"data: " + json.dumps(choice).encode() + b"\n\n"


def called(arguments: str) -> bytes:
    return delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": arguments}}])


def without_end(piece: bytes) -> Iterator[bytes]:
    yield STREAM
    yield from repeat(piece * max(1, 100_000 // len(piece)))


def document() -> Iterator[bytes]:
    yield HEAD + b"application/json\r\n\r\n"
    yield b'{"choices":[{"message":{"content":"hi","reasoning_details":['
    for _ in range(VALUES.most // 10_000 + 1):
        yield b"{}," * 10_000
    yield b'{}]},"finish_reason":"stop"}]}'


def one_event() -> Iterator[bytes]:
    yield STREAM + b"data: "
    yield from repeat(b"x" * 100_000)


def long_text() -> Iterator[bytes]:
    said = {"message": {"content": "x" * (CHARS.most + 1)}, "finish_reason": "stop"}
    yield HEAD + b"application/json\r\n\r\n" + json.dumps({"choices": [said]}).encode()


def packed() -> Iterator[bytes]:
    yield HEAD + b"text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    yield gzip.compress(b"\n" * 80_000_000)


ANSWERS: dict[str, tuple[Callable[[], Iterator[bytes]], str]] = {
    "text": (partial(without_end, delta(content="x" * 10_000)), CHARS.said),
    "reasoning": (partial(without_end, delta(reasoning="x" * 10_000)), CHARS.said),
    "arguments": (partial(without_end, called("x" * 10_000)), CHARS.said),
    "details": (
        partial(without_end, delta(reasoning_details=[{"type": "t", "text": "x" * 10_000}])),
        CHARS.said,
    ),
    "kinds of details": (
        partial(without_end, delta(reasoning_details=[{"index": 1}, {"index": 2}])),
        PARTS.said,
    ),
    "comments": (partial(without_end, b": " + b"x" * 1000 + b"\n\n"), "64 MB"),
    "blank lines": (partial(without_end, b"\n"), "64 MB"),
    "one event": (one_event, EVENT_BYTES.said),
    "values": (document, VALUES.said),
    "one text": (long_text, CHARS.said),
    "packed": (packed, "64 MB"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_without_measure_is_ended_and_not_asked_for_again(name: str) -> None:
    answer, why = ANSWERS[name]
    asked = 0

    def counted() -> Iterator[bytes]:
        nonlocal asked
        asked += 1
        return answer()

    async with saying(counted) as route, asyncio.timeout(60):
        client = client_of(route)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.OVERSIZED
    assert "more than an answer may have" in failure.value.message
    assert why in failure.value.message
    assert asked == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_reply_has_so_many_calls_and_with_more_another_model_is_asked(
    mode: ApiMode,
) -> None:
    calls = [Call(name="f", arguments={"n": n}) for n in range(CALLS.most + 1)]
    for step, answers in ((Step(calls=calls[1:]), 0), (Step(calls=calls), 1)):
        async with FakeModelServer([step]) as server, FakeModelServer() as other:
            client, heard = client_of(route_to(server, mode), route_to(other)), Heard()
            reply = await client.complete(ask(), heard)
            await client.close()
            assert (len(server.requests), len(other.requests)) == (1, answers)
        assert len(reply.message.tool_calls) == (0 if answers else CALLS.most)
        assert any(CALLS.said in text for what, text in heard.log if "notice" in what) == bool(
            answers
        )


async def test_a_packed_answer_leaves_others_their_turn() -> None:
    events = delta(content="x" * 1000) * 3000 + END
    heard, seen, over = Heard(), set[int](), asyncio.Event()

    async def watch() -> None:
        while not over.is_set():
            seen.add(len(heard.log))
            await asyncio.sleep(0)

    def answer() -> Iterator[bytes]:
        yield HEAD + b"text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
        yield gzip.compress(events)

    async with saying(answer) as route, asyncio.TaskGroup() as group:
        group.create_task(watch())
        client = client_of(route)
        reply = await client.complete(ask(), heard)
        await client.close()
        over.set()
    assert reply.message.text == heard.text == "x" * 3_000_000
    assert len(seen) > 10


async def test_an_error_of_any_length_is_told_in_part() -> None:
    step = Step(text="hello there", stream_error={"error": {"message": "sk-" * 7000}})
    async with FakeModelServer([step] * 9) as server:
        client = client_of(route_to(server))
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert len(failure.value.message) < 3000


def test_what_is_mended_of_one_reply_is_bounded() -> None:
    broken = "{'a': '" + "x" * (REPAIRED_CHARS // 4) + "'}"
    calls = tuple(ToolCall(id="", name="f", arguments=broken) for _ in range(10))
    small = ToolCall(id="", name="f", arguments="{'b': 1}")
    told = [call.arguments for call in repair_calls((*calls, small))]
    assert [text.startswith('{"a"') for text in told] == [True] * 3 + [False] * 7 + [False]
    assert told[3:10] == [broken] * 7
    assert json.loads(told[10]) == {"b": 1}


def fenced(size: int) -> None:
    repair_calls((ToolCall(id="", name="f", arguments="```" + "\n" * size + "x"),))


def assembled(size: int, *, index: int | None) -> None:
    assembler = CallAssembler()
    for _ in range(size):
        assembler.add(index, "", "f", '{"a": "' + "x" * 200)


def explained(size: int) -> None:
    decoder = protocol_for(CHAT).decoder(Sink(None))
    piece = {"type": "t", "index": 0, "text": "x" * 100}
    for _ in range(size // 10):
        decoder.feed(delta(reasoning_details=[piece] * 10)[6:])
    decoder.finish()


@pytest.mark.parametrize(
    ("work", "size"),
    [
        (fenced, 250),
        (partial(assembled, index=0), 1000),
        (partial(assembled, index=None), 1000),
        (explained, 2000),
    ],
)
def test_eight_times_as_much_costs_about_eight_times_as_much(
    work: Callable[[int], None], size: int
) -> None:
    assert least_cpu(lambda: work(8 * size)) < 24 * least_cpu(lambda: work(size))


def test_pieces_of_one_kind_that_come_together_are_told_as_one() -> None:
    heard = Heard()
    sink = Sink(heard)
    sink.gather()
    for piece in ("a", "b"):
        sink.reasoning(piece)
    for piece in ("c", "d"):
        sink.text(piece)
    for number in (0, 0, 1):
        sink.call(number, "f", "{")
    sink.flush()
    sink.text("e")
    told = [("reasoning", "ab"), ("text", "cd"), ("call:0:f", "{{"), ("call:1:f", "{")]
    assert heard.log == [*told, ("text", "e")]
