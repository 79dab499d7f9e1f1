"""Answers without measure: what ends them, what is said then, and what they cost until then."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.cpu import least_cpu
from fakes.listener import start_server
from fakes.model import Call, FakeModelServer, Step
from fakes.model_client import Heard, ask, client_of, route_to
from hermes.domain.messages import ToolCall
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings.models import ModelTimeouts
from hermes.models.bounds import (
    ARGUMENT_VALUES,
    CALLS,
    CHARS,
    EVENT_BYTES,
    LOGPROBS,
    PARTS,
    REPAIRED_CHARS,
    VALUES,
)
from hermes.models.client import protocol_for
from hermes.models.logprobs import without_logprobs
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

    async with await start_server(serve, "127.0.0.1", 0) as listener:
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


def hidden_values() -> Iterator[bytes]:
    """Values of what is kept are counted whatever they are called."""
    detail = {"type": "t", "logprobs": {"content": [[]] * (VALUES.most + 1)}}
    yield STREAM + delta(reasoning_details=[detail]) + END


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
    "hidden values": (hidden_values, VALUES.said),
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


# -- how probable tokens are -----------------------------------------------------


def token(word: str, others: int = 20) -> dict[str, Any]:
    told = {"token": word, "logprob": -0.123456789, "bytes": list(word.encode())}
    return {**told, "top_logprobs": [told] * others}


def event(**said: object) -> bytes:
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


def chat_tokens(count: int) -> Iterator[bytes]:
    yield STREAM
    told = {"content": [token(" word")]}
    piece = event(choices=[{"index": 0, "delta": {"content": " word"}, "logprobs": told}])
    for _ in range(count // 100):
        yield piece * 100
    yield event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]) + END


def chat_document_of_tokens(count: int) -> Iterator[bytes]:
    choice = {
        "message": {"content": " word" * count},
        "logprobs": {"content": [token(" word")] * count},
        "finish_reason": "stop",
    }
    document = json.dumps({"choices": [choice]}).replace(", ", ",\n")
    yield HEAD + b"application/json\r\n\r\n" + document.encode()


def item_of(count: int) -> dict[str, Any]:
    told = [token(" word")] * count
    part = {"type": "output_text", "text": " word" * count, "annotations": [], "logprobs": told}
    return {"type": "message", "id": "m", "role": "assistant", "content": [part]}


def responses_tokens(count: int) -> Iterator[bytes]:
    """As OpenAI says them: each token five times."""
    yield STREAM
    delta = "response.output_text.delta"
    piece = event(type=delta, delta=" word", output_index=0, logprobs=[token(" word")])
    for _ in range(count // 100):
        yield piece * 100
    item = item_of(count)
    [part] = item["content"]
    yield event(type="response.output_text.done", text=part["text"], logprobs=part["logprobs"])
    yield event(type="response.content_part.done", part=part)
    yield event(type="response.output_item.done", output_index=0, item=item)
    yield event(type="response.completed", response={"status": "completed", "output": [item]})


def responses_document_of_tokens(count: int) -> Iterator[bytes]:
    document = {"status": "completed", "output": [{"type": "reasoning"}, item_of(count)]}
    yield HEAD + b"application/json\r\n\r\n" + json.dumps(document).encode()


TOKENS = [
    (CHAT, chat_tokens),
    (CHAT, chat_document_of_tokens),
    (ApiMode.RESPONSES, responses_tokens),
    (ApiMode.RESPONSES, responses_document_of_tokens),
]


@pytest.mark.parametrize(("mode", "answer"), TOKENS)
async def test_long_answers_tell_how_probable_their_tokens_are(
    mode: ApiMode, answer: Callable[[int], Iterator[bytes]]
) -> None:
    count = 16_000
    async with saying(partial(answer, count)) as route, asyncio.timeout(60):
        client = client_of(replace(route, api_mode=mode))
        reply = await client.complete(ask(logprobs=True, top_logprobs=20))
        await client.close()
    assert len(reply.message.text.split()) == count
    assert "\n" not in reply.logprobs
    told = json.loads(reply.logprobs)
    assert len(told) == count
    assert told[0]["top_logprobs"][19]["logprob"] == told[-1]["logprob"] == -0.123456789


@pytest.mark.parametrize(("mode", "answer"), TOKENS)
async def test_probabilities_that_nobody_asked_for_are_skipped(
    mode: ApiMode, answer: Callable[[int], Iterator[bytes]]
) -> None:
    async with saying(partial(answer, 3000)) as route, asyncio.timeout(60):
        client = client_of(replace(route, api_mode=mode))
        reply = await client.complete(ask())
        await client.close()
    assert (len(reply.message.text.split()), reply.logprobs) == (3000, "")


async def test_probabilities_without_measure_end_an_answer() -> None:
    piece = event(choices=[{"delta": {}, "logprobs": {"content": [token("x" * 1000)]}}])
    async with saying(partial(without_end, piece)) as route, asyncio.timeout(60):
        client = client_of(route)
        with pytest.raises(ModelFailure, match=LOGPROBS.said) as failure:
            await client.complete(ask(logprobs=True))
        await client.close()
    assert failure.value.kind is FailureKind.OVERSIZED


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


def sprinkled(messages: int, order: str) -> bytes:
    """Return a large event with probabilities in many places, which come first or last."""
    part = {"type": "output_text", "text": "x", "logprobs": [token("x", 0)]}
    output = [{"type": "message", "content": [part] * 8}] * messages
    told = {"item": output[0], "output": output}
    fields = {"filler": "x" * 4_000_000, **told}
    given = {name: fields[name] for name in order.split()}
    return json.dumps(given, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "order", ["filler item output", "item output filler", "output item filler"]
)
def test_probabilities_in_many_places_cost_as_much_as_in_one(order: str) -> None:
    many, one = sprinkled(64, order), sprinkled(1, order)
    assert least_cpu(lambda: without_logprobs(many)) < 8 * least_cpu(lambda: without_logprobs(one))


def test_what_is_counted_is_what_is_beside_the_probabilities() -> None:
    for name in ("filler item output", "item output filler"):
        counted = without_logprobs(sprinkled(64, name))
        assert b'"logprob"' not in counted
        assert counted.count(b'"logprobs":0') == 65 * 8


def test_calls_of_one_reply_have_so_many_values_together() -> None:
    listed = json.dumps({"a": [1] * (ARGUMENT_VALUES // 4)})
    whole = json.dumps({"content": "[1, {},\n" * 500_000})
    calls = [ToolCall(id="", name="f", arguments=each) for each in (listed, whole, *[listed] * 4)]
    told = [call.arguments for call in repair_calls(tuple(calls))]
    assert told[:4] == [listed, whole, listed, listed]
    assert [json.loads(each) for each in told[4:]] == [listed[:2000]] * 2


def nested(size: int) -> None:
    deep = "[" * 90 + "]" * 90 + ","
    text = '{"a": [' + deep * (size // len(deep)) + "1]}"
    repair_calls((ToolCall(id="", name="f", arguments=text),))


def one_text(size: int) -> None:
    text = json.dumps({"a": "[x]," * (size // 4)})
    repair_calls((ToolCall(id="", name="f", arguments=text),))


def test_very_many_values_in_a_call_cost_about_as_much_as_a_text_of_that_length() -> None:
    size = 3_000_000
    assert least_cpu(lambda: nested(size)) < 8 * least_cpu(lambda: one_text(size))


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
