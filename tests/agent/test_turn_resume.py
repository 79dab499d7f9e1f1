"""A turn that was cut off goes on where it was, in the same session."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.core import Core, ScriptedTools, message, returns, running_core, waits
from hermes.domain.errors import SessionBusy
from hermes.domain.events import TurnStream
from hermes.domain.messages import ToolMessage, ToolOutcome
from hermes.domain.tools import Parallel
from hermes.domain.turn import MAX_RESUMES, TurnState
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


class _PowerCut(Exception):
    """Ends a core the way a dying process would: nothing is closed properly."""


async def cut_off_during_tool(folder: Path, *, replay_safe: bool) -> str:
    """Start a turn, let its tool start, and cut the power. Returns the session id."""
    started, never = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("do", waits(started, never), replay_safe=replay_safe)
    model = ScriptedModel([calls(call("do", "c1"))])
    session_id = ""
    with suppress(_PowerCut):
        async with running_core(folder, model, tools=tools, owner="dead") as core:
            session_id = core.session.id
            await core.say("please do it")
            await started.wait()
            raise _PowerCut
    return session_id


async def resumed(core: Core) -> None:
    assert len(await core.gateway.recover(core.session.id)) == 1
    await core.idle()


async def test_a_call_that_may_not_be_repeated_is_reported_as_cut_off(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=False)
    tools = ScriptedTools()
    tools.add("do", returns("did it again"))
    model = ScriptedModel([say("I will check first.")])
    async with running_core(tmp_path, model, tools=tools, session_id=session_id) as core:
        await resumed(core)
        assert tools.ran == []
        results = [m for m in await core.messages() if isinstance(m, ToolMessage)]
        assert [m.outcome for m in results] == [ToolOutcome.UNKNOWN]
        assert "cut off" in str(model.requests[0].messages[-1])
        assert await core.ledger.open_turns() == []


async def test_a_call_that_may_be_repeated_is_run_again(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=True)
    tools = ScriptedTools()
    tools.add("do", returns("read it again"), replay_safe=True)
    async with running_core(
        tmp_path, ScriptedModel([say("done")]), tools=tools, session_id=session_id
    ) as core:
        await resumed(core)
        assert tools.ran == [("do", "c1")]


async def test_a_call_that_was_never_started_is_run(tmp_path: Path) -> None:
    """The reply was committed, then the process died before its first call began."""
    started, never = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("block", waits(started, never), replay_safe=True)
    tools.add("do", returns("unreached"), parallel=Parallel.NEVER)
    model = ScriptedModel([calls(call("block", "c1"), call("do", "c2"))])
    session_id = ""
    with suppress(_PowerCut):
        async with running_core(tmp_path, model, tools=tools, owner="dead") as core:
            session_id = core.session.id
            await core.say("go")
            await started.wait()
            raise _PowerCut
    again = ScriptedTools()
    again.add("block", returns("now"), replay_safe=True)
    again.add("do", returns("once"))
    async with running_core(
        tmp_path, ScriptedModel([say("fine")]), tools=again, session_id=session_id
    ) as core:
        await resumed(core)
        assert again.ran == [("block", "c1"), ("do", "c2")]
        results = [m.content for m in await core.messages() if isinstance(m, ToolMessage)]
        assert results == ["now", "once"]


async def test_a_turn_cut_off_during_a_model_call_asks_the_model_again(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("half",), before_end=never)])
    session_id = ""
    with suppress(_PowerCut):
        async with running_core(tmp_path, model, owner="dead") as core:
            session_id = core.session.id
            await core.say("hi")
            await model.called(1)
            raise _PowerCut
    after = ScriptedModel([say("whole")])
    async with running_core(tmp_path, after, session_id=session_id) as core:
        await resumed(core)
        assert str((await core.messages())[-1]).count("whole") == 1
        assert after.requests[0].messages == model.requests[0].messages


async def test_a_turn_is_given_up_after_two_resumes(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=False)
    for attempt in range(MAX_RESUMES):
        model = ScriptedModel([Reply(before=asyncio.Event())])
        with suppress(_PowerCut):
            async with running_core(
                tmp_path, model, session_id=session_id, owner=f"dead-{attempt}"
            ) as core:
                assert len(await core.gateway.recover(session_id)) == 1
                await model.called(1)
                raise _PowerCut
    async with running_core(tmp_path, ScriptedModel([say("new")]), session_id=session_id) as core:
        assert await core.gateway.recover(session_id) == []
        assert await core.ledger.open_turns() == []
        assert (await core.ask("still there?")).text == "new"


async def test_a_turn_that_has_done_nothing_is_picked_up_more_often(tmp_path: Path) -> None:
    session_id: str | None = None
    for attempt in range(MAX_RESUMES + 2):
        model = ScriptedModel([Reply(before=asyncio.Event())])
        with suppress(_PowerCut):
            async with running_core(
                tmp_path, model, session_id=session_id, owner=f"dead-{attempt}"
            ) as core:
                if session_id is None:
                    session_id = core.session.id
                    await core.say("hello?")
                else:
                    assert len(await core.gateway.recover(session_id)) == 1
                await model.called(1)
                raise _PowerCut
    async with running_core(tmp_path, ScriptedModel([say("here")]), session_id=session_id) as core:
        await resumed(core)
        assert str((await core.messages())[-1]).count("here") == 1


async def test_a_session_that_another_process_works_on_is_busy(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=False)
    async with running_core(
        tmp_path, ScriptedModel(), session_id=session_id, alive=lambda owner: owner == "dead"
    ) as core:
        with pytest.raises(SessionBusy) as busy:
            await core.gateway.recover(session_id)
        assert busy.value.hint


async def test_a_message_to_a_cut_off_session_comes_after_the_resumed_turn(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=False)
    tools = ScriptedTools()
    tools.add("do", returns("x"))
    model = ScriptedModel([say("first things first"), say("and now yours")])
    async with running_core(tmp_path, model, tools=tools, session_id=session_id) as core:
        finished = await core.ask("hello?")
        assert finished.outcome is TurnState.DONE
        assert finished.text == "and now yours"


async def test_a_message_admitted_before_the_power_cut_is_answered_after_it(tmp_path: Path) -> None:
    never = asyncio.Event()
    session_id = ""
    with suppress(_PowerCut):
        async with running_core(
            tmp_path, ScriptedModel([Reply(before=never)]), owner="dead"
        ) as core:
            session_id = core.session.id
            await core.say("one")
            await core.gateway.submit("main", message("two", session_id), session_id=session_id)
            raise _PowerCut
    model = ScriptedModel([say("answer one"), say("answer two")])
    async with running_core(tmp_path, model, session_id=session_id) as core:
        await core.gateway.recover()
        await core.idle()
        texts = [
            getattr(m, "text", None) or getattr(m, "content", "") for m in await core.messages()
        ]
        assert texts == ["one", "answer one", "two", "answer two"]


async def test_a_chat_gateway_leaves_the_turns_of_the_terminal_alone(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=True)
    async with running_core(tmp_path, ScriptedModel(), session_id=session_id) as core:
        assert await core.gateway.recover(platforms=["telegram"]) == []
        assert len(await core.ledger.open_turns()) == 1
    tools = ScriptedTools()
    tools.add("do", returns("x"), replay_safe=True)
    model = ScriptedModel([say("done")])
    async with running_core(tmp_path, model, tools=tools, session_id=session_id) as core:
        assert len(await core.gateway.recover(platforms=["cli"])) == 1


async def test_restarts_in_good_order_are_not_held_against_a_turn(tmp_path: Path) -> None:
    """A long turn outlives any number of planned restarts."""
    session_id = ""
    for number in range(MAX_RESUMES + 3):
        started, never = asyncio.Event(), asyncio.Event()
        tools = ScriptedTools()
        tools.add("do", waits(started, never), replay_safe=True)
        model = ScriptedModel([calls(call("do", f"c{number}"))] if not session_id else [])
        async with running_core(
            tmp_path, model, tools=tools, owner=f"o{number}", session_id=session_id or None
        ) as core:
            if session_id:
                assert len(await core.gateway.recover(session_id)) == 1
            else:
                session_id = core.session.id
                await core.say("please do it")
            await started.wait()
            await core.gateway.suspend()
            (open_turn,) = await core.ledger.open_turns(session_id)
            assert open_turn.state is not TurnState.FAILED


async def test_what_was_used_before_the_crash_counts(tmp_path: Path) -> None:
    session_id = await cut_off_during_tool(tmp_path, replay_safe=True)
    tools = ScriptedTools()
    tools.add("do", returns("done"), replay_safe=True)
    async with running_core(
        tmp_path, ScriptedModel([say("Ready.")]), tools=tools, session_id=session_id
    ) as core:
        streams: list[TurnStream] = []
        with core.gateway.doors.watching(lambda job: streams.append(job.stream)):
            await resumed(core)
        finished = await streams[0].wait()
        assert finished.model_calls == 2
        assert finished.usage.total_tokens == 30
