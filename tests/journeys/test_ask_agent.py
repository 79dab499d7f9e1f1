"""ask_agent: agents that ask each other, only whom they may, and only so often and so far."""

import asyncio
from pathlib import Path
from typing import Any

from fakes.asking_child import options
from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from hermes.app.build import open_app
from hermes.domain.messages import ToolMessage
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Lineage
from hermes.entry.terminal.oneshot import inbound


def asking(agent: str, question: str = "") -> Step:
    return Step(calls=[Call(name="ask_agent", arguments={"agent": agent, "question": question})])


def may_ask(*agents: str, **more: Any) -> dict[str, Any]:
    return {"ask_agent": {"enabled": True, "agents": list(agents), **more}}


async def test_an_agent_asks_another_whom_it_may_ask_and_nobody_else(tmp_path: Path) -> None:
    rules = [
        Rule(contains="how many beds", steps=[asking("tutor", "deeper"), Step(text="Three beds.")]),
        Rule(contains="deeper", steps=[Step(text="too deep")]),
        Rule(
            contains="begin",
            steps=[
                *(asking(""), asking("tutor", "hello"), asking("coder", "how many beds")),
                *(asking("coder", "how many beds"), Step(text="done")),
            ],
        ),
    ]
    agents = {
        "coder": {"description": "Counts.", "settings": may_ask("*"), "model": "code-1"},
        "tutor": {"toolsets": ["todo"]},
    }
    config: dict[str, Any] = {
        "auxiliary": {"title_generation": {"enabled": False}},
        "agents": agents,
        **may_ask("coder", max_questions=1),
    }
    script = Script(rules=rules, default=Step(text="noted"))
    async with FakeModelServer(script) as server, asyncio.timeout(30):
        hermes = Hermes(tmp_path, server.base_url, config)
        own = hermes.home / "agents" / "coder"
        own.mkdir(parents=True)
        (own / "SOUL.md").write_text("I am the coder.")
        (own / "memories").mkdir()
        (own / "memories" / "MEMORY.md").write_text("The garden has beds.")
        async with open_app(options(hermes.home, hermes.work)) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "begin", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
            await app.gateway.drained()
            history = [stored.message for stored in await app.ledger.history(session.id)]
            told = [str(each.content) for each in history if isinstance(each, ToolMessage)]
            listed, foreign, answer, again = told
            assert "coder: Counts." in listed
            assert "tutor" not in listed
            assert "You may not ask `tutor`" in foreign
            (child,) = await app.ledger.sessions(SessionQuery(source="task"))
            assert answer.startswith(f"Three beds.\n[{child.id}: ")
            assert "may ask 1 times" in again
            assert (child.agent_id, child.lineage) == ("coder", Lineage.DELEGATION)
            asked = next(r for r in server.requests if "how many" in str(r.body["messages"][-1]))
            assert "I am the coder." in str(asked.body["messages"][0])
            assert "The garden has beds." in str(asked.body["messages"][0])
            assert asked.body["model"] == "code-1"
            assert "The agent `main` asks you" in str(asked.body["messages"][-1])
            assert "begin" not in str(asked.body["messages"])
            # One who was asked asks nobody: the depth is 1.
            inner = [stored.message for stored in await app.ledger.history(child.id)]
            (refusal,) = [str(each.content) for each in inner if isinstance(each, ToolMessage)]
            assert "not available" in refusal
            assert not await app.ledger.sessions(SessionQuery(source="task", agent_id="tutor"))
            spent = await app.ledger.spent(session_id=session.id)
            assert spent.calls == 7, "what the other spends counts here"


async def test_with_a_greater_depth_an_agent_that_was_asked_asks_on_and_no_further(
    tmp_path: Path,
) -> None:
    rules = [
        Rule(contains="third", steps=[asking("coder", "fourth"), Step(text="from the third")]),
        Rule(contains="second", steps=[asking("tutor", "third"), Step(text="from the second")]),
        Rule(contains="first", steps=[asking("coder", "second"), Step(text="done")]),
    ]
    everybody = may_ask("*", max_depth=2)
    agents = {"coder": {"toolsets": ["todo"]}, "tutor": {}}
    config = {"auxiliary": {"title_generation": {"enabled": False}}, "agents": agents, **everybody}
    script = Script(rules=rules, default=Step(text="noted"))
    async with FakeModelServer(script) as server, asyncio.timeout(30):
        hermes = Hermes(tmp_path, server.base_url, config)
        async with open_app(options(hermes.home, hermes.work)) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "first", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
            await app.gateway.drained()
            asked = await app.ledger.sessions(SessionQuery(source="task"))
            assert sorted(each.agent_id for each in asked) == ["coder", "tutor"]
            spent = await app.ledger.spent(session_id=session.id)
            assert spent.calls == 6, "all of it counts for the conversation in which it began"


async def test_a_question_has_a_budget_and_a_time(tmp_path: Path) -> None:
    todo = Step(calls=[Call(name="todo", arguments={})])
    rules = [
        Rule(contains="dig", steps=[todo] * 9),
        Rule(contains="stuck", steps=[Step(text="never", stall="first")]),
        Rule(
            contains="begin",
            steps=[asking("coder", "dig"), asking("coder", "stuck"), Step(text="done")],
        ),
    ]
    limits = may_ask("coder", max_model_calls=2, timeout=0.2)
    config = {
        "auxiliary": {"title_generation": {"enabled": False}},
        "agents": {"coder": {"toolsets": ["todo"]}},
        **limits,
    }
    async with FakeModelServer(Script(rules=rules)) as server, asyncio.timeout(30):
        hermes = Hermes(tmp_path, server.base_url, config)
        async with open_app(options(hermes.home, hermes.work)) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "begin", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
            await app.gateway.drained()
            history = [stored.message for stored in await app.ledger.history(session.id)]
    dug, stuck = [str(each.content) for each in history if isinstance(each, ToolMessage)]
    assert "3 model calls" in dug, "two, and one without tools"
    assert "interrupted" in stuck


async def test_without_the_setting_there_is_no_such_tool(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server, asyncio.timeout(30):
        hermes = Hermes(tmp_path, server.base_url, {"agents": {"coder": {}}})
        async with open_app(options(hermes.home, hermes.work)) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "hello", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
        offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
        assert "delegate_task" in offered
        assert "ask_agent" not in offered
