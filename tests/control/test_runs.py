"""Runs: from the request to the outcome, repeated, stopped, cut off and followed."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.core import ScriptedTools, returns, running_core, waits
from fakes.runs_on import asked, finished, restarted, runs_on
from hermes.control.runs.runs import Draining, Runs, TooBusy, new_run
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.events import (
    MessageCompleted,
    TextDelta,
    ToolFinished,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, UserMessage
from hermes.domain.runs import Run, RunQuery, RunState, SessionChoice
from hermes.domain.turn import TurnOptions, TurnState
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_a_run_is_answered_in_a_session_of_its_own(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Hel", "lo.")])) as core:
        async with runs_on(core) as runs:
            started = await runs.start(asked("hi"))
            events = [event async for event in runs.events(started.run)]
            assert isinstance(events[0], TurnStarted)
            assert isinstance(events[-1], TurnFinished)
            assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello."
            run = await finished(runs, started.run)
            assert run.state is RunState.COMPLETED
            assert run.outcome is not None
            assert run.outcome.text == "Hello."
            session = await core.ledger.session(run.session_id)
            assert session is not None
            assert (session.source, session.user_id) == ("api_server", "key:owner")
            assert runs.open_runs == 0


async def test_earlier_messages_of_the_client_are_the_history_of_the_new_session(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("Four.")])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        history = (UserMessage(content="1+1?"), AssistantMessage(text="Two."))
        started = await runs.start(asked("2+2?", history=history))
        await finished(runs, started.run)
        texts = [
            getattr(m, "text", None) or getattr(m, "content", "")
            for m in model.requests[0].messages
        ]
        assert texts == ["1+1?", "Two.", "2+2?"]


async def test_the_same_idempotency_key_starts_nothing_twice(tmp_path: Path) -> None:
    model = ScriptedModel([say("Once.")])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        first = await runs.start(asked("do it", idempotency_key="k", fingerprint="f"))
        again = await runs.start(asked("do it", idempotency_key="k", fingerprint="f"))
        assert again.duplicate
        assert again.run.id == first.run.id
        live = [event async for event in runs.events(again.run)]
        await finished(runs, first.run)
        later = [event async for event in runs.events(again.run)]
        for events in (live, later):
            assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Once."
            assert isinstance(events[-1], TurnFinished)
            assert events[-1].text == "Once."
        with pytest.raises(Conflict):
            await runs.start(asked("another", idempotency_key="k", fingerprint="g"))
        assert len(model.requests) == 1


async def test_more_runs_than_allowed_are_refused_but_repeats_are_found(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("ok",), before=go)])
    async with running_core(tmp_path, model) as core:
        async with runs_on(core, max_open=1) as runs:
            first = await runs.start(asked("a", idempotency_key="k", fingerprint="f"))
            with pytest.raises(TooBusy):
                await runs.start(asked("b"))
            assert (await runs.start(asked("a", idempotency_key="k", fingerprint="f"))).duplicate
            go.set()
            await finished(runs, first.run)
            core.gateway.drain()
            with pytest.raises(Draining):
                await runs.start(asked("c"))


async def test_a_burst_starts_no_more_runs_than_allowed(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("ok",), before=go), Reply(pieces=("ok",), before=go)])
    async with running_core(tmp_path, model) as core, runs_on(core, max_open=2) as runs:
        burst = [runs.start(asked(f"number {at}")) for at in range(8)]
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        assert [type(each) for each in outcomes].count(TooBusy) == 6
        go.set()
        for each in outcomes:
            if not isinstance(each, BaseException):
                await finished(runs, each.run)


async def test_a_running_run_is_stopped_and_keeps_what_was_said(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Once upon",), before_end=never)])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        started = await runs.start(asked("a story"))
        async for event in runs.events(started.run):
            if isinstance(event, TextDelta):
                assert await runs.stop(started.run)
        run = await finished(runs, started.run)
        assert run.state is RunState.CANCELLED
        assert not await runs.stop(run)
        told = [event async for event in runs.events(run)]
        assert "".join(e.text for e in told if isinstance(e, TextDelta)) == "Once upon"
        assert isinstance(told[-1], TurnFinished)
        assert told[-1].outcome is TurnState.INTERRUPTED


async def test_a_client_that_leaves_makes_the_run_incomplete(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Once",), before_end=never)])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        started = await runs.start(asked("a story"))
        async for event in runs.events(started.run):
            if isinstance(event, TextDelta):
                await runs.stop(started.run, left=True)
        assert (await finished(runs, started.run)).state is RunState.INCOMPLETE


async def test_a_run_that_waits_in_the_queue_is_stopped_without_a_turn(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("one",), before=go), say("two")])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        first = await runs.start(asked("1"))
        same = SessionChoice(session_id=first.run.session_id)
        second = await runs.start(asked("2", choice=same))
        assert await runs.stop(second.run)
        run = await finished(runs, second.run)
        assert run.state is RunState.CANCELLED
        assert run.turn_id is None
        go.set()
        assert (await finished(runs, first.run)).state is RunState.COMPLETED
        assert len(model.requests) == 1


async def test_what_comes_during_the_first_turn_of_a_session_is_answered_after_it(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("first",), before=go), say("second")])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        first = await runs.start(asked("one"))
        there = SessionChoice(session_id=first.run.session_id)
        second = await runs.start(asked("two", choice=there))
        go.set()
        ended = [await finished(runs, each.run) for each in (first, second)]
        assert [run.outcome and run.outcome.text for run in ended] == ["first", "second"]


async def test_a_run_goes_on_after_another_and_branches_if_that_was_done_before(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("A"), say("B"), say("C")])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        first = await finished(runs, (await runs.start(asked("a"))).run)
        after = SessionChoice(after_run=first.id)
        second = await finished(runs, (await runs.start(asked("b", choice=after))).run)
        third = await finished(runs, (await runs.start(asked("c", choice=after))).run)
        assert second.session_id == first.session_id != third.session_id
        said = [
            getattr(m, "text", None) or getattr(m, "content", "")
            for m in model.requests[2].messages
        ]
        assert said == ["a", "A", "c"]
        with pytest.raises(NotFound):
            await runs.start(asked("d", choice=SessionChoice(after_run="run_nowhere")))


async def test_steering_reaches_the_running_turn(tmp_path: Path) -> None:
    started_tool, go = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("work", waits(started_tool, go))
    model = ScriptedModel([calls(call("work")), say("Done, in blue.")])
    async with running_core(tmp_path, model, tools=tools) as core, runs_on(core) as runs:
        started = await runs.start(asked("paint it"))
        await started_tool.wait()
        assert await runs.steer(started.run, "in blue please")
        go.set()
        await finished(runs, started.run)
        assert "in blue please" in str(model.requests[1].messages)
        assert not await runs.steer(started.run, "too late")


async def test_every_reader_of_a_logged_run_sees_the_same_events_under_the_same_ids(
    tmp_path: Path,
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look"), text="Looking."), say("I ", "saw ", "it.")])
    async with running_core(tmp_path, model, tools=tools) as core, runs_on(core) as runs:
        started = await runs.start(asked("look", logged=True))
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(read(runs, started.run)) for _ in range(3)]
        logs = [task.result() for task in readers]
        assert logs[0] == logs[1] == logs[2]
        assert [seq for seq, _ in logs[0]] == list(range(1, len(logs[0]) + 1))
        kinds = {type(event) for _, event in logs[0]}
        assert {TurnStarted, TextDelta, ToolFinished, MessageCompleted, TurnFinished} <= kinds
        for after in range(len(logs[0]) + 1):
            assert await read(runs, started.run, after) == logs[0][after:]


async def read(runs: Runs, run: Run, after: int = 0) -> list[tuple[int, TurnEvent]]:
    async with asyncio.timeout(10):
        return [(logged.seq, logged.event) async for logged in runs.log(run, after)]


class _PowerCut(Exception):
    """Ends a core the way a dying process would."""


async def test_a_run_that_was_cut_off_goes_on_and_its_log_has_no_gap(tmp_path: Path) -> None:
    started_tool, never = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("work", waits(started_tool, never), replay_safe=True)
    model = ScriptedModel([calls(call("work"), text="Working.")])
    run: Run | None = None
    session_id = ""
    with suppress(_PowerCut, BaseExceptionGroup):
        async with running_core(tmp_path, model, tools=tools, owner="dead") as core:
            session_id = core.session.id
            async with runs_on(core) as runs:
                run = (await runs.start(asked("go", logged=True))).run
                await started_tool.wait()
                raise _PowerCut
    assert run is not None
    again = ScriptedTools()
    again.add("work", returns("worked"), replay_safe=True)
    async with running_core(
        tmp_path, ScriptedModel([say("All done.")]), tools=again, session_id=session_id
    ) as core:
        before = await core.ledger.run_log(run.id)
        assert before
        assert not isinstance(before[-1].event, TurnFinished)
        async with runs_on(core) as runs:
            await restarted(core, runs)
            ended = await finished(runs, run)
            assert ended.state is RunState.COMPLETED
            assert ended.outcome is not None
            assert ended.outcome.text == "All done."
            whole = await read(runs, run)
            assert [seq for seq, _ in whole] == list(range(1, len(whole) + 1))
            assert whole[: len(before)] == [(each.seq, each.event) for each in before]
            assert isinstance(whole[-1][1], TurnFinished)


async def test_a_run_whose_turn_had_ended_before_the_crash_gets_its_outcome(
    tmp_path: Path,
) -> None:
    request = asked("go", logged=True)
    async with running_core(tmp_path, ScriptedModel([say("Said.")])) as core:
        # Nobody watches: the turn ends, the outcome of the run is never written.
        gateway = core.gateway
        new = new_run(request, gateway, str)
        opened = await core.ledger.open_run(new)
        gateway.take(opened.entry)
        await gateway.idle(opened.run.session_id)
        assert (await core.ledger.runs(RunQuery()))[0].state.open
        async with runs_on(core) as runs:
            await restarted(core, runs)
            ended = await finished(runs, opened.run)
            assert ended.state is RunState.COMPLETED
            assert ended.outcome is not None
            assert ended.outcome.text == "Said."
            assert isinstance((await read(runs, opened.run))[-1][1], TurnFinished)


@pytest.mark.parametrize("place", ["text", "history", "instructions"])
async def test_a_large_request_is_searched_for_secrets_beside_the_loop(
    tmp_path: Path, place: str
) -> None:
    large, on_loop, elsewhere = "x" * 200_000, list[int](), list[int]()

    def redact(text: str) -> str:
        here = threading.current_thread() is threading.main_thread()
        (on_loop if here else elsewhere).append(len(text))
        return text

    model = ScriptedModel([say("ok")])
    async with running_core(tmp_path, model) as core, runs_on(core, redact=redact) as runs:
        history = (UserMessage(content=large), AssistantMessage(text="y")) * (place == "history")
        options = TurnOptions(instructions=large if place == "instructions" else "")
        text = large if place == "text" else "hi"
        started = await runs.start(asked(text, history=history, options=options))
        await finished(runs, started.run)
    assert len(large) in elsewhere
    assert max(on_loop, default=0) < len(large)


async def test_secrets_do_not_reach_the_ledger(tmp_path: Path) -> None:
    model = ScriptedModel([say("ok")])

    def redact(text: str) -> str:
        return text.replace("hunter2", "[secret]")

    async with running_core(tmp_path, model) as core, runs_on(core, redact=redact) as runs:
        options = TurnOptions(instructions="the password is hunter2")
        history = (UserMessage(content="hunter2?"), AssistantMessage(text="hunter2!"))
        started = await runs.start(asked("say hunter2", history=history, options=options))
        await finished(runs, started.run)
    assert b"hunter2" not in (tmp_path / "state.db").read_bytes()
    assert "hunter2" not in str(model.requests)
