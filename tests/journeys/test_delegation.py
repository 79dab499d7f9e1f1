"""delegate_task: child agents in sessions of their own, and what reaches the one that asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.asking_child import options
from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from fakes.toolbox import Toolbox
from hermes.app.build import App, open_app
from hermes.control.door import Door
from hermes.domain.events import TurnJob
from hermes.domain.messages import ToolMessage, UserMessage
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Lineage, Session
from hermes.domain.settings.agent import ToolDelegation
from hermes.domain.tools import ChildTask
from hermes.domain.turn import Turn, TurnState
from hermes.entry.terminal.oneshot import inbound
from hermes.testing import FakeEnvironment

ANN = 777
COUNT = {"goal": "count the beds", "context": "There are two rooms."}


def delegating(**arguments: Any) -> Step:
    return Step(calls=[Call(name="delegate_task", arguments=arguments)])


class Terminal(Door):
    platforms = ("cli",)


@asynccontextmanager
async def at_work(
    tmp_path: Path, rules: list[Rule], **config: Any
) -> AsyncIterator[tuple[App, FakeModelServer]]:
    script = Script(rules=rules, default=Step(text="noted"))
    async with FakeModelServer(script) as server, asyncio.timeout(30):
        titles = {"auxiliary": {"title_generation": {"enabled": False}}}
        filled = json.loads(json.dumps(config).replace("{server}", server.base_url))
        hermes = Hermes(tmp_path, server.base_url, {**titles, **filled})
        async with open_app(options(hermes.home, hermes.work)) as app:
            yield app, server


async def until(ready: Callable[[], bool]) -> None:
    while not ready():  # noqa: ASYNC110 - others make it so
        await asyncio.sleep(0.02)


async def said(app: App, session: Session, text: str) -> list[str]:
    """Say something, wait until all is quiet, and return the results of tools."""
    message = inbound(session, text, "ann", 0.0)
    await (await app.gateway.submit("main", message, session_id=session.id)).job()
    await app.gateway.drained()
    history = [stored.message for stored in await app.ledger.history(session.id)]
    return [str(each.content) for each in history if isinstance(each, ToolMessage)]


def offered(server: FakeModelServer, text: str) -> set[str]:
    bodies = [r.body for r in server.requests if text in str(r.body["messages"])]
    return {tool["function"]["name"] for tool in bodies[0].get("tools", ())}


async def test_a_child_has_a_session_tools_and_a_budget_of_its_own(tmp_path: Path) -> None:
    todo = Step(calls=[Call(name="todo", arguments={})])
    write = Step(calls=[Call(name="write_file", arguments={"path": "beds", "content": "3"})])
    read = Step(calls=[Call(name="read_file", arguments={"path": "beds"})])
    rules = [
        Rule(contains="count the beds", steps=[write, Step(text="Three beds.")]),
        Rule(contains="begin", steps=[delegating(**COUNT), read, Step(text="done")]),
        Rule(contains="dig", steps=[todo] * 9),
        Rule(contains="again", steps=[delegating(goal="dig", toolsets=["todo"]), Step(text="ok")]),
    ]
    limits = {"delegation": {"max_iterations": 2}}
    async with at_work(tmp_path, rules, **limits) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        result, beds = await said(app, session, "begin")
        assert beds == "1|3", "they work on the same files"
        (child,) = await app.ledger.sessions(SessionQuery(source="task"))
        assert result.startswith(f"Three beds.\n[{child.id}: 2 model calls, ")
        assert (child.parent_id, child.lineage) == (session.id, Lineage.DELEGATION)
        assert child.title is None
        (told, *_) = [stored.message for stored in await app.ledger.history(child.id)]
        assert isinstance(told, UserMessage)
        assert told.content == "count the beds\n\nContext:\nThere are two rooms."
        # Tools of whoever asked, but none to speak, to remember or to delegate with.
        ours, theirs = offered(server, "begin"), offered(server, "two rooms")
        assert ours - theirs == {"clarify", "delegate_task", "execute_code"}
        # What it spends counts where it was asked for.
        spent = await app.ledger.spent(session_id=session.id)
        assert (spent.calls, (await app.ledger.spent(session_id=child.id)).calls) == (5, 2)
        # A budget of two calls, then one without tools.
        *_, result = await said(app, session, "again")
        assert "3 model calls" in result
        assert offered(server, "'content': 'dig") == {"todo"}


async def test_a_turn_tells_what_its_children_cost_and_stops_those_it_waits_for(
    tmp_path: Path,
) -> None:
    tasks = [{"goal": "job one", "role": "orchestrator"}, {"goal": "job two"}]
    stuck = Step(text="never", stall="first")
    rules = [
        Rule(contains="deeper", steps=[Step(text="found")]),
        Rule(contains="job one", steps=[delegating(goal="deeper"), Step(text="first")]),
        Rule(contains="job two", steps=[Step(text="second")]),
        Rule(contains="begin", steps=[delegating(tasks=tasks), Step(text="done")]),
        Rule(contains="stuck", steps=[stuck]),
        Rule(
            contains="wait",
            steps=[delegating(tasks=[{"goal": "stuck one"}, {"goal": "stuck two"}])],
        ),
    ]
    price = {"models": {"fake-1": {"price": {"input": 1.0, "output": 2.0}}}}
    more = {"providers": {"custom": price}, "delegation": {"max_spawn_depth": 2}}
    async with at_work(tmp_path, rules, **more) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")

        async def begun(text: str) -> TurnJob:
            message = inbound(session, text, "ann", 0.0)
            return await (await app.gateway.submit("main", message, session_id=session.id)).job()

        finished = await (await begun("begin")).stream.wait()
        spent = await app.ledger.spent(session_id=session.id)
        assert (finished.model_calls, spent.calls) == (6, 6), "its own two, and those of three"
        assert (finished.usage.total_tokens, finished.cost_usd) == (spent.tokens, spent.cost_usd)
        assert spent.cost_usd > 0
        # An interrupt reaches all of a batch.
        job = await begun("wait")
        await until(
            lambda: sum("stuck" in str(r.body["messages"][-1]) for r in server.requests) == 2
        )
        assert app.gateway.interrupt(session.id)
        assert (await job.stream.wait()).outcome is TurnState.INTERRUPTED
        await app.gateway.drained()
        assert await app.ledger.open_turns() == []


async def test_a_child_that_nobody_waits_for_any_more_is_stopped_when_it_comes_back(
    tmp_path: Path,
) -> None:
    rules = [
        Rule(contains="stuck", steps=[Step(text="never", stall="first")]),
        Rule(contains="wait", steps=[delegating(goal="stuck")]),
    ]
    async with at_work(tmp_path, rules) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        message = inbound(session, "wait", "ann", 0.0)
        await app.gateway.submit("main", message, session_id=session.id)
        await until(lambda: "stuck" in str([r.body["messages"] for r in server.requests]))
        await app.gateway.suspend()
    async with at_work(tmp_path, rules) as (app, server):
        # The process was killed when the turn was over and its child was not.
        parent, child = sorted(await app.ledger.open_turns(), key=lambda t: t.started_at)
        await app.ledger.finish_turn(parent.id, TurnState.INTERRUPTED, None, 9.0)
        await app.gateway.recover(child.session_id)
        await app.gateway.drained()
        ended = await app.ledger.turn(child.id)
        assert ended is not None
        assert ended.state is TurnState.INTERRUPTED


async def test_a_batch_runs_at_once_and_each_report_has_its_place(tmp_path: Path) -> None:
    tasks: list[dict[str, Any]] = [{"goal": f"job {word}"} for word in ("one", "two", "three")]
    tasks.append({"goal": "job four", "toolsets": ["nonsense"]})
    rules = [
        Rule(contains="job one", steps=[Step(text="first", stall="first")]),
        Rule(contains="job two", steps=[Step(text="second", stall="first")]),
        Rule(contains="job three", steps=[Step(text="third")]),
        Rule(
            contains="begin",
            steps=[delegating(tasks=tasks, goal="all"), delegating(tasks=tasks), Step(text="done")],
        ),
    ]
    async with at_work(tmp_path, rules) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        waiting = asyncio.ensure_future(said(app, session, "begin"))
        await until(
            lambda: sum("job " in str(r.body["messages"][-1]) for r in server.requests) == 3
        )
        server.release()
        both, result = await waiting
    assert "Give `goal` or `tasks`, not both." in both
    heads = [line for line in result.splitlines() if line.startswith("##")]
    assert heads == [
        f"## Task {n}: job {w}" for n, w in enumerate(("one", "two", "three", "four"), 1)
    ]
    assert result.index("first") < result.index("second") < result.index("third")
    assert "It failed: There is no toolset `nonsense`." in result


async def test_a_background_task_reports_later_and_an_interrupt_reaches_children(
    tmp_path: Path,
) -> None:
    rules = [
        Rule(contains="look after it", steps=[Step(text="It is green.")]),
        Rule(contains="long thing", steps=[Step(text="never", stall="first")]),
        Rule(
            contains="start it",
            steps=[delegating(goal="look after it", background=True), Step(text="started")],
        ),
        Rule(contains="wait for", steps=[delegating(goal="long thing"), Step(text="waited")]),
    ]
    async with at_work(tmp_path, rules) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        with app.gateway.doors.attached(Terminal()):
            (result,) = await said(app, session, "start it")
            (child,) = await app.ledger.sessions(SessionQuery(source="task"))
            assert result.startswith(f"Started in the background as {child.id}.")
            report = f"The task {child.id} is done (look after it):\nIt is green."
            await until(lambda: report in str(server.requests[-1].body["messages"][-1]["content"]))
            await app.gateway.drained()
        # A one-shot answer has nobody to tell later, so it waits.
        *_, result = await said(app, session, "start it once more")
        assert result.startswith("It is green.")
        message = inbound(session, "wait for", "ann", 0.0)
        await (await app.gateway.submit("main", message, session_id=session.id)).job()
        await until(
            lambda: any("long thing" in str(r.body["messages"][-1]) for r in server.requests)
        )
        assert app.gateway.interrupt(session.id)
        await app.gateway.drained()
        assert await app.ledger.open_turns() == []


async def test_a_call_that_is_repeated_finds_the_child_that_has_ended(tmp_path: Path) -> None:
    async with at_work(tmp_path, [Rule(contains="once", steps=[Step(text="It is done.")])]) as it:
        app, server = it
        session = await app.gateway.open_session("main", "cli", "ann")
        spawn = app.gateway.doors.capabilities.spawn
        assert spawn is not None
        context = replace(Toolbox(FakeEnvironment()).context("c1"), session_id=session.id)
        task = ChildTask(agent_id="main", task="once")
        first = await spawn(context, task)
        again = await spawn(context, task)
        assert (again.text, again.session_id) == (first.text, first.session_id)
        assert len(server.requests) == 1


async def test_a_child_may_end_while_a_repeated_call_looks_for_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [Rule(contains="once", steps=[Step(text="It is done.", stall="first")])]
    async with at_work(tmp_path, rules) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        spawn = app.gateway.doors.capabilities.spawn
        assert spawn is not None
        context = replace(Toolbox(FakeEnvironment()).context("c1"), session_id=session.id)
        task = ChildTask(agent_id="main", task="once")
        first = asyncio.ensure_future(spawn(context, task))
        await until(lambda: len(server.requests) == 1)
        first.cancel()
        read = app.ledger.turn

        async def slow(turn_id: str) -> Turn | None:
            server.release()
            while await app.ledger.unanswered(("task",)):  # noqa: ASYNC110 - the ledger is asked
                await asyncio.sleep(0.01)
            return await read(turn_id)

        monkeypatch.setattr(app.ledger, "turn", slow)
        assert (await spawn(context, task)).text == "It is done."


async def test_orchestrators_go_as_deep_as_allowed_and_approvals_are_denied_or_given(
    tmp_path: Path,
) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf gone"})])
    deeper = delegating(goal="third level", role="orchestrator")
    rules = [
        Rule(contains="third level", steps=[wipe, Step(text="bottom")]),
        Rule(contains="second level", steps=[deeper, Step(text="middle")]),
        Rule(
            contains="begin",
            steps=[delegating(goal="second level", role="orchestrator"), Step(text="top")],
        ),
    ]
    limits = {"delegation": {"max_spawn_depth": 2}, "terminal": {"backend": "local"}}
    (tmp_path / "work" / "gone").mkdir(parents=True)
    async with at_work(tmp_path, rules, **limits) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        (result,) = await said(app, session, "begin")
        assert result.startswith("middle\n[")
        assert "delegate_task" in offered(server, "'content': 'second level'")
        assert "delegate_task" not in offered(server, "'content': 'third level'")
        # Nobody can be asked down there.
        refused = [r for r in server.requests if "nobody can be asked here" in str(r.body)]
        assert refused
        assert (tmp_path / "work" / "gone").is_dir()
        # All of it was asked for in one conversation.
        assert (await app.ledger.spent(session_id=session.id)).calls == 6


async def test_at_the_terminal_children_are_seen_and_stopped(tmp_path: Path) -> None:
    rules = [
        Rule(contains="endless", steps=[Step(text="never", stall="first")]),
        Rule(contains="begin", steps=[delegating(goal="endless"), Step(text="it was stopped")]),
    ]
    async with FakeModelServer(Script(rules=rules)) as model, asyncio.timeout(30):
        process = await Hermes(tmp_path, model.base_url).start("chat")
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        async def typed(text: str, awaited: str) -> str:
            stdin.write(f"{text}\n".encode())
            seen = ""
            while awaited not in seen:
                line = await stdout.readline()
                assert line, seen
                seen += line.decode()
            return seen

        stdin.write(b"begin\n")
        await until(lambda: "endless" in str([r.body["messages"][-1] for r in model.requests]))
        child = (await typed("/agents", "s ago: endless")).splitlines()[-1].split()[0]
        await typed(f"/agents stop {child}", "it was stopped")
        stdin.close()
        await process.wait()


async def test_the_settings_of_delegation_count_from_the_next_call_on(tmp_path: Path) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf gone"})])
    rules = [
        Rule(contains="stuck", steps=[Step(text="never", stall="first")]),
        Rule(contains="wait", steps=[delegating(tasks=[{"goal": "stuck"}] * 2), Step(text="ok")]),
        Rule(contains="wordy", steps=[wipe, Step(text="word " * 500)]),
        Rule(
            contains="tell",
            steps=[delegating(goal="wordy", role="orchestrator"), Step(text="ok")],
        ),
    ]
    config = {
        "providers": {"other": {"base_url": "{server}", "api_key": "any"}},
        "delegation": {"max_concurrent_children": 1, "child_timeout_seconds": 0.1},
        "terminal": {"backend": "local"},
    }
    (tmp_path / "work" / "gone").mkdir(parents=True)
    async with at_work(tmp_path, rules, **config) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        (waited,) = await said(app, session, "wait")
        assert waited.count("It failed: The turn was interrupted.") == 2
        second, first = await app.ledger.sessions(SessionQuery(source="task"))
        ((told,), (asked,)) = [await app.ledger.history(each.id) for each in (first, second)]
        over = await app.ledger.turn(told.turn_id or "")
        assert over is not None
        assert over.finished_at is not None
        assert over.finished_at <= asked.at, "one after the other"
        delegation = ToolDelegation(
            max_spawn_depth=2,
            max_summary_chars=100,
            orchestrator_enabled=False,
            model="small-1",
            provider="other",
            subagent_auto_approve=True,
        )
        app.settings.update(replace(app.settings(), delegation=delegation))
        *_, result = await said(app, session, "tell")
        assert "[Cut here. The whole result has 2" in result
        child = (await app.ledger.sessions(SessionQuery(source="task")))[0]
        assert [each[:2] for each in await app.ledger.usage_by_model(child.id)] == [
            ("other", "small-1")
        ]
        assert "delegate_task" not in offered(server, "'content': 'wordy'")
        assert not (tmp_path / "work" / "gone").exists()


async def test_a_chat_sees_and_stops_children_and_they_outlive_a_kill(tmp_path: Path) -> None:
    rules = [
        Rule(contains="slow thing", steps=[Step(text="It held.", stall="first")]),
        Rule(contains="endless", steps=[Step(text="never", stall="first")]),
        Rule(contains="once more", steps=[delegating(goal="slow thing"), Step(text="all done")]),
        Rule(contains="begin", steps=[delegating(goal="endless"), Step(text="it was stopped")]),
        Rule(contains="was interrupted (night", steps=[Step(text="the watch is over")]),
        Rule(contains="night watch", steps=[Step(text="never", stall="first")]),
        Rule(
            contains="keep",
            steps=[delegating(goal="night watch", background=True), Step(text="it is kept")],
        ),
    ]

    def asked(text: str) -> int:
        return sum(text in str(r.body["messages"][-1]) for r in model.requests)

    async with FakeModelServer(Script(rules=rules)) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url))
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            async with asyncio.timeout(50):
                telegram.say(ANN, ANN, "begin")
                await until(lambda: asked("endless") == 1)
                telegram.say(ANN, ANN, "what I say now waits")
                telegram.say(ANN, ANN, "/agents")
                await telegram.until(lambda: "s ago: endless" in str(telegram.replies(ANN)))
                telegram.say(ANN, ANN, "/agents stop all")
                await telegram.until(lambda: "it was stopped" in str(telegram.replies(ANN)))
                telegram.say(ANN, ANN, "keep watch")
                await telegram.until(lambda: "it is kept" in str(telegram.replies(ANN)))
                await until(lambda: asked("night watch") == 1)
                await gateway.kill()
                await gateway.start()
                await until(lambda: asked("night watch") == 2)
                telegram.say(ANN, ANN, "/stop")
                await telegram.until(lambda: "the watch is over" in str(telegram.replies(ANN)))
                assert "with 1 task in the background" in str(telegram.replies(ANN))
                telegram.say(ANN, ANN, "once more")
                await until(lambda: asked("slow thing") == 1)
                await gateway.kill()
                await gateway.start()
                await until(lambda: asked("slow thing") == 2)
                model.release()
                await telegram.until(lambda: "all done" in str(telegram.replies(ANN)))
        finally:
            await gateway.kill()
    results = [m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "tool"]
    assert results[0].startswith("It failed: The turn was interrupted.")
    assert results[-1].startswith("It held.\n[")
    assert asked("'content': 'once more'") == 1, "the turn went on, it was not begun again"


async def test_what_a_task_leaves_running_ends_with_it_and_does_not_wake_it(
    tmp_path: Path,
) -> None:
    run = "echo ready; touch ready; exec sleep 4321"
    left = {"command": run, "background": True, "watch_patterns": ["ready"]}
    wait = {"command": "until [ -e ready ]; do sleep 0.01; done"}
    calls = [Step(calls=[Call(name="terminal", arguments=each)]) for each in (left, wait)]
    rules = [
        Rule(contains="tend it", steps=[*calls, Step(text="tended")]),
        Rule(contains="begin", steps=[delegating(goal="tend it"), Step(text="ok")]),
    ]
    async with at_work(tmp_path, rules) as (app, server):
        session = await app.gateway.open_session("main", "cli", "ann")
        (result,) = await said(app, session, "begin")
        assert f"tended\n[Background processes of the task ended with it: {run}]" in result
        assert await app.environments.running() == []
        await app.gateway.drained()
        assert "printed a line" not in str([request.body for request in server.requests])
