"""What a turn does, from its input to its answer."""

import asyncio
from pathlib import Path
from typing import Any

from fakes.core import ScriptedTools, events, returns, running_core, untitled, waits
from hermes.domain.events import (
    MessageCompleted,
    Notice,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    InputKind,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelInfo
from hermes.domain.settings.agent import AgentLoop
from hermes.domain.tools import Parallel, ToolContext, ToolResult
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_an_answer_streams_and_is_kept(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Hel", "lo")])) as core:
        stream = await core.say("hi")
        seen = await events(stream)
        assert [type(event) for event in seen] == [
            TurnStarted,
            TextDelta,
            TextDelta,
            MessageCompleted,
            UsageReported,
            TurnFinished,
        ]
        assert stream.finished is not None
        assert stream.finished.outcome is TurnState.DONE
        assert stream.finished.text == "Hello"
        assert await core.messages() == [
            UserMessage(content="hi"),
            AssistantMessage(text="Hello"),
        ]


async def test_a_follower_that_comes_late_sees_everything(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("a", "b")])) as core:
        stream = await core.say("hi")
        await stream.wait()
        assert await events(stream) == await events(stream)
        assert len(await events(stream)) == len(stream)


async def test_tools_run_and_their_results_go_back_to_the_model(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a cat"))
    model = ScriptedModel([calls(call("look", "c1")), say("It is a cat.")])
    async with running_core(tmp_path, model, tools=tools) as core:
        assert (await core.ask("what is it?")).text == "It is a cat."
        assert [type(m).__name__ for m in model.requests[1].messages] == [
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
        ]
        result = model.requests[1].messages[-1]
        assert isinstance(result, ToolMessage)
        assert (result.call_id, result.content) == ("c1", "a cat")


async def test_parallel_results_stand_in_call_order_whatever_order_they_come_in(
    tmp_path: Path,
) -> None:
    first_started, first_go, second_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("slow", waits(first_started, first_go, "slow result"))

    async def quick(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await first_started.wait()
        second_done.set()
        return ToolResult(content="quick result")

    tools.add("quick", quick)
    model = ScriptedModel([calls(call("slow", "c1"), call("quick", "c2")), say("ok")])
    async with running_core(tmp_path, model, tools=tools) as core:
        stream = await core.say("go")
        await second_done.wait()
        first_go.set()
        finished = [e for e in await events(stream) if isinstance(e, ToolFinished)]
        assert [event.name for event in finished] == ["quick", "slow"]
        results = [m for m in await core.messages() if isinstance(m, ToolMessage)]
        assert [m.content for m in results] == ["slow result", "quick result"]


async def test_calls_that_must_run_alone_never_overlap(tmp_path: Path) -> None:
    running = 0
    most = 0
    tools = ScriptedTools()

    async def alone(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ToolResult(content="x")

    tools.add("alone", alone, parallel=Parallel.NEVER)
    model = ScriptedModel([calls(*(call("alone", f"c{n}") for n in range(5))), say("ok")])
    async with running_core(tmp_path, model, tools=tools) as core:
        await core.ask("go")
        assert most == 1


async def test_a_tool_that_blows_up_is_a_result_and_not_the_end(tmp_path: Path) -> None:
    tools = ScriptedTools()

    async def broken(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        raise ZeroDivisionError("oh no")

    tools.add("broken", broken)
    tools.add("fine", returns("fine"))
    model = ScriptedModel([calls(call("broken", "c1"), call("fine", "c2")), say("noted")])
    async with running_core(tmp_path, model, tools=tools) as core:
        assert (await core.ask("go")).outcome is TurnState.DONE
        results = [m for m in await core.messages() if isinstance(m, ToolMessage)]
        assert [m.outcome for m in results] == [ToolOutcome.ERROR, ToolOutcome.OK]
        assert "oh no" in str(results[0].content)


async def test_a_model_that_fails_for_good_ends_the_turn_with_an_explanation(
    tmp_path: Path,
) -> None:
    failure = ModelFailure(FailureKind.AUTH, "The key was refused.", hint="Set another key.")
    async with running_core(tmp_path, ScriptedModel([failure, say("back")])) as core:
        finished = await core.ask("hi")
        assert finished.outcome is TurnState.FAILED
        assert finished.error is not None
        assert finished.error.message == "The key was refused."
        assert finished.error.hint == "Set another key."
        assert (await core.ask("again")).text == "back"


async def test_call_ids_that_a_provider_repeats_are_made_unique(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel(
        [calls(call("look", "call_0")), calls(call("look", "call_0")), say("done")]
    )
    async with running_core(tmp_path, model, tools=tools) as core:
        assert (await core.ask("go")).text == "done"
        ids = [m.call_id for m in await core.messages() if isinstance(m, ToolMessage)]
        assert len(set(ids)) == 2


async def test_out_of_calls_the_model_gets_one_more_without_tools(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("more"))
    model = ScriptedModel(default=lambda request: _look_or_answer(request.tool_choice))
    settings = untitled(agent=AgentLoop(max_turns=3))
    async with running_core(tmp_path, model, tools=tools, settings=settings) as core:
        finished = await core.ask("go")
        assert finished.text == "what I have"
        assert finished.model_calls == 4
        assert model.requests[-1].tool_choice == "none"
        assert model.requests[-1].tools == model.requests[0].tools


def _look_or_answer(tool_choice: str | None) -> Reply:
    return say("what I have") if tool_choice == "none" else calls(call("look"))


async def test_calls_made_although_none_are_allowed_are_not_run(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("more"))
    model = ScriptedModel(default=calls(call("look"), text="still looking"))
    settings = untitled(agent=AgentLoop(max_turns=1))
    async with running_core(tmp_path, model, tools=tools, settings=settings) as core:
        assert (await core.ask("go")).text == "still looking"
        assert len(tools.ran) == 1


async def test_an_answer_cut_by_its_length_limit_is_continued(tmp_path: Path) -> None:
    model = ScriptedModel(
        [Reply(pieces=("one ",), finish=FinishReason.LENGTH), say("two")],
    )
    async with running_core(tmp_path, model) as core:
        assert (await core.ask("count")).text == "one two"
        kinds = [m.kind for m in await core.messages() if isinstance(m, UserMessage)]
        assert kinds == [InputKind.USER, InputKind.NOTICE]


async def test_an_endless_answer_is_not_continued_for_ever(tmp_path: Path) -> None:
    model = ScriptedModel(default=Reply(pieces=("x",), finish=FinishReason.LENGTH))
    async with running_core(tmp_path, model) as core:
        finished = await core.ask("go")
        assert finished.outcome is TurnState.DONE
        assert finished.text == "xxxx"


async def test_the_system_prompt_never_changes_once_a_session_has_begun(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("ok"))
    async with running_core(
        tmp_path, model, identity=IdentitySnapshot(soul="You are Ada.")
    ) as core:
        await core.ask("one")
        session_id = core.session.id
    changed = ScriptedModel(default=say("ok"))
    async with running_core(
        tmp_path, changed, identity=IdentitySnapshot(soul="You are Bob."), session_id=session_id
    ) as core:
        await core.ask("two")
    assert model.requests[0].system.startswith("You are Ada.")
    assert changed.requests[0].system == model.requests[0].system


async def test_each_request_extends_the_one_before(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel(
        [calls(call("look", "a")), say("one"), calls(call("look", "b")), say("two")]
    )
    async with running_core(tmp_path, model, tools=tools) as core:
        await core.ask("first")
        await core.ask("second")
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert after.system == before.system
        assert after.tools == before.tools


async def test_a_failing_call_that_is_repeated_gets_advice(tmp_path: Path) -> None:
    tools = ScriptedTools()

    async def fails(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(content="no such file", outcome=ToolOutcome.ERROR)

    tools.add("look", fails)
    same = calls(call("look", path="x"))
    model = ScriptedModel([same, calls(call("look", path="x")), say("I give up")])
    async with running_core(tmp_path, model, tools=tools) as core:
        await core.ask("go")
        results = [str(m.content) for m in await core.messages() if isinstance(m, ToolMessage)]
        assert results[0] == "no such file"
        assert "failed 2 times" in results[1]


async def test_usage_and_cost_are_summed_over_the_calls_of_a_turn(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    usage = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=50)
    model = ScriptedModel(
        [
            Reply(tool_calls=(call("look", "c1"),), usage=usage, cost_usd=0.5),
            Reply(pieces=("done",), usage=usage, cost_usd=0.25),
        ]
    )
    async with running_core(tmp_path, model, tools=tools) as core:
        finished = await core.ask("go")
        assert finished.usage.input_tokens == 200
        assert finished.cost_usd == 0.75
        session = await core.ledger.session(core.session.id)
        assert session is not None
        assert session.usage.cache_read_tokens == 100
        assert session.cost_usd == 0.75
        assert (await core.ledger.spent(session_id=session.id)).calls == 2


async def test_secrets_reach_neither_model_nor_ledger(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("the key is hunter2hunter2"))
    model = ScriptedModel([calls(call("look", "c1")), say("done")])
    async with running_core(
        tmp_path, model, tools=tools, redact=lambda t: t.replace("hunter2hunter2", "***")
    ) as core:
        await core.ask("go")
        assert "hunter2" not in str(model.requests[1].messages)
        assert "hunter2" not in str(await core.messages())


async def test_what_a_tool_shows_while_it_runs_is_an_event(tmp_path: Path) -> None:
    tools = ScriptedTools()

    async def talks(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.progress("half way")
        await context.remember("seen", {"n": 1})
        return ToolResult(content=str(await context.recall("seen")))

    tools.add("look", talks)
    model = ScriptedModel([calls(call("look", "c1", path="/etc/hosts")), say("done")])
    async with running_core(tmp_path, model, tools=tools) as core:
        seen = await events(await core.say("go"))
        assert [e.label for e in seen if isinstance(e, ToolStarted)] == ["/etc/hosts"]
        assert any(getattr(e, "text", "") == "half way" for e in seen)
        results = [m.content for m in await core.messages() if isinstance(m, ToolMessage)]
        assert results == ["{'n': 1}"]


async def test_notices_of_the_model_wire_reach_the_stream(tmp_path: Path) -> None:
    model = ScriptedModel([Reply(pieces=("ok",), notices=(("retry", "Trying again in 5 s."),))])
    async with running_core(tmp_path, model) as core:
        seen = await events(await core.say("hi"))
        assert [e.text for e in seen if isinstance(e, Notice)] == ["Trying again in 5 s."]


async def test_what_is_said_to_the_model_in_passing_is_never_stored(tmp_path: Path) -> None:
    model = ScriptedModel([say("ok")])
    settings = untitled(agent=AgentLoop(ephemeral_system_prompt="Speak like a pirate."))
    async with running_core(tmp_path, model, settings=settings) as core:
        await core.ask("hi")
        assert model.requests[0].system.endswith("\n\nSpeak like a pirate.")
        session = await core.ledger.session(core.session.id)
        assert session is not None
        assert "pirate" not in str(await core.messages()) + str(session.system_prompt)


async def test_the_cap_on_results_follows_the_window_of_the_model(tmp_path: Path) -> None:
    caps: list[int] = []

    async def look(_call: object, context: ToolContext) -> ToolResult:
        caps.append(context.max_result_chars)
        return ToolResult(content="seen")

    for window in (8_000, 32_000, 1_000_000, None):
        info = ModelInfo(provider="scripted", model="m", context_window=window)
        model = ScriptedModel([calls(call("look")), say("done")], info=info)
        tools = ScriptedTools()
        tools.add("look", look)
        folder = tmp_path / str(window)
        folder.mkdir()
        async with running_core(folder, model, tools=tools) as core:
            await (await core.say("hi")).wait()
    assert caps == [4_800, 19_200, 100_000, 100_000]
