"""The public double keeps the promises of the port."""

import asyncio

import pytest

from fakes.model_client import Heard, ask
from hermes.domain.messages import FinishReason
from hermes.domain.ports.model import FailureKind, Model, ModelFailure, ModelRequest
from hermes.testing.model import Reply, ScriptedModel, call, calls, say, thinks


async def test_it_streams_pieces_and_returns_the_whole() -> None:
    model: Model = ScriptedModel([thinks("hm", "hel", "lo")])
    heard = Heard()
    reply = await model.complete(ask(), heard)
    assert reply.message.text == heard.text == "hello"
    assert heard.reasoning == "hm"
    assert reply.message.finish is FinishReason.STOP


async def test_it_calls_tools_fails_and_computes_answers() -> None:
    failure = ModelFailure(FailureKind.OVERLOADED, "busy")

    def last(request: ModelRequest) -> Reply:
        return say(f"{len(request.messages)} messages")

    model = ScriptedModel([calls(call("read_file", path="a")), failure, last])
    first = await model.complete(ask())
    assert first.message.finish is FinishReason.TOOL_CALLS
    assert first.message.tool_calls[0].arguments == '{"path":"a"}'
    with pytest.raises(ModelFailure):
        await model.complete(ask())
    assert (await model.complete(ask())).message.text == "1 messages"
    assert len(model.requests) == 3


async def test_an_exhausted_script_is_a_loud_mistake() -> None:
    with pytest.raises(RuntimeError, match="call 1"):
        await ScriptedModel().complete(ask())
    assert (await ScriptedModel(default=say("x")).complete(ask())).message.text == "x"


async def test_gates_hold_calls_and_cancellation_is_honoured() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(default=Reply(pieces=("x",), before_end=gate))
    tasks = [asyncio.ensure_future(model.complete(ask())) for _ in range(2)]
    await asyncio.wait_for(model.called(2), 5)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    gate.set()
    assert (await tasks[1]).message.text == "x"
    assert (model.cancelled, model.most_active, model.active) == (1, 2, 0)
