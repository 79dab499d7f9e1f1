"""Interrupting and steering: the history stays valid, nothing typed is lost."""

import asyncio
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.core import ScriptedTools, events, message, returns, running_core, waits
from hermes.control.lanes.lane import Ticket
from hermes.domain.events import SteerTaken, TextDelta, ToolStarted, TurnFinished
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    InputKind,
    Message,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.tools import Parallel
from hermes.domain.turn import TurnState
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


def assert_valid(history: list[Message]) -> None:
    """Every call has exactly one result, right behind its message and in call order."""
    position = 0
    while position < len(history):
        current = history[position]
        position += 1
        assert not isinstance(current, ToolMessage), "a result without a call"
        if isinstance(current, AssistantMessage):
            for wanted in current.tool_calls:
                result = history[position]
                assert isinstance(result, ToolMessage)
                assert result.call_id == wanted.id
                position += 1


async def test_an_interrupt_while_the_model_speaks_keeps_what_it_said(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("half an ans",), before_end=never), say("fresh")])
    async with running_core(tmp_path, model) as core:
        stream = await core.say("hi")
        async for event in stream.follow():
            if isinstance(event, TextDelta):
                break
        assert core.gateway.interrupt(core.session.id)
        finished = await stream.wait()
        assert finished.outcome is TurnState.INTERRUPTED
        assert model.cancelled == 1
        last = (await core.messages())[-1]
        assert last == AssistantMessage(text="half an ans", finish=FinishReason.INTERRUPTED)
        assert (await core.ask("again")).text == "fresh"
        assert_valid(await core.messages())


async def test_an_interrupt_during_tools_gives_every_call_a_result(tmp_path: Path) -> None:
    started, never = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("quick", returns("quick"))
    tools.add("slow", waits(started, never))
    tools.add("later", returns("later"), parallel=Parallel.NEVER)
    model = ScriptedModel(
        [calls(call("quick", "c1"), call("slow", "c2"), call("later", "c3")), say("ok")]
    )
    async with running_core(tmp_path, model, tools=tools) as core:
        stream = await core.say("go")
        await started.wait()
        core.gateway.interrupt(core.session.id)
        assert (await stream.wait()).outcome is TurnState.INTERRUPTED
        history = await core.messages()
        assert_valid(history)
        outcomes = {m.call_id: m.outcome for m in history if isinstance(m, ToolMessage)}
        assert outcomes["c2"] is ToolOutcome.UNKNOWN
        assert outcomes["c3"] is ToolOutcome.SKIPPED
        assert (await core.ask("go on")).text == "ok"


async def test_an_interrupt_at_rest_does_nothing(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("ok")])) as core:
        assert not core.gateway.interrupt(core.session.id)
        assert (await core.ask("hi")).text == "ok"


async def test_messages_sent_while_busy_are_answered_in_order(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("one",), before=go), say("two"), say("three")])
    async with running_core(tmp_path, model) as core:
        first = await core.say("1")
        tickets: list[Ticket] = [
            await core.gateway.submit(
                "main", message(text, core.session.id), session_id=core.session.id
            )
            for text in ("2", "3")
        ]
        go.set()
        answers = [(await first.wait()).text]
        answers += [(await (await t.stream()).wait()).text for t in tickets]
        assert answers == ["one", "two", "three"]
        asked = [m.content for m in await core.messages() if isinstance(m, UserMessage)]
        assert asked == ["1", "2", "3"]


async def test_the_same_message_delivered_twice_is_answered_once(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("ok"))
    async with running_core(tmp_path, model) as core:
        copy = message("hi", core.session.id, native_id="77")
        first = await core.gateway.submit("main", copy, session_id=core.session.id)
        await (await first.stream()).wait()
        second = await core.gateway.submit("main", copy, session_id=core.session.id)
        assert second.duplicate
        assert second.entry.id == first.entry.id
        assert (await core.ask("another")).text == "ok"
        assert len(model.requests) == 2


async def test_steering_is_taken_between_results_and_the_next_call(tmp_path: Path) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("slow", waits(started, go, "result"))
    model = ScriptedModel([calls(call("slow", "c1")), say("as you wish")])
    async with running_core(tmp_path, model, tools=tools) as core:
        stream = await core.say("go")
        await started.wait()
        await core.steer("use metric units")
        go.set()
        seen = await events(stream)
        assert [e.text for e in seen if isinstance(e, SteerTaken)] == ["use metric units"]
        kinds = [type(m).__name__ for m in model.requests[1].messages]
        assert kinds == ["UserMessage", "AssistantMessage", "ToolMessage"]
        result = model.requests[1].messages[-1]
        assert isinstance(result, ToolMessage)
        assert result.content == "result\n\n[Said while you were working] use metric units"
        stored = (await core.ledger.history(core.session.id))[-2].message
        assert isinstance(stored, UserMessage)
        assert stored.kind is InputKind.STEER
        assert await core.ledger.waiting(core.session.id) == []


async def test_steering_that_comes_too_late_becomes_the_next_turn(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("final",), before_end=go), say("and now this")])
    async with running_core(tmp_path, model) as core:
        stream = await core.say("go")
        async for event in stream.follow():
            if isinstance(event, TextDelta):
                break
        await core.steer("too late")
        go.set()
        assert (await stream.wait()).text == "final"
        await core.idle()
        asked = [m.content for m in await core.messages() if isinstance(m, UserMessage)]
        assert asked == ["go", "too late"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 14))
def test_an_interrupt_at_any_event_leaves_a_valid_history(
    tmp_path_factory: object, cut: int
) -> None:
    asyncio.run(_interrupt_at(tmp_path_factory.mktemp("cut"), cut))  # type: ignore[attr-defined]


async def _interrupt_at(folder: Path, cut: int) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"), replay_safe=True)
    tools.add("do", returns("done"))
    model = ScriptedModel(
        [
            calls(call("look", "c1"), call("do", "c2"), text="let me see"),
            calls(call("do", "c3")),
            say("fin", "ished"),
        ],
        default=say("later"),
    )
    async with running_core(folder, model, tools=tools) as core:
        stream = await core.say("go")
        count = 0
        async for event in stream.follow():
            if count == cut and not isinstance(event, TurnFinished):
                core.gateway.interrupt(core.session.id)
            count += 1
        assert_valid(await core.messages())
        finished = stream.finished
        assert finished is not None
        assert finished.outcome in {TurnState.DONE, TurnState.INTERRUPTED}
        assert await core.ledger.open_turns(core.session.id) == []
        assert (await core.ask("and now?")).outcome is TurnState.DONE
        assert_valid(await core.messages())


async def test_started_tools_are_announced_before_they_run(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look", "c1")), say("done")])
    async with running_core(tmp_path, model, tools=tools) as core:
        seen = await events(await core.say("go"))
        assert any(isinstance(e, ToolStarted) for e in seen)
