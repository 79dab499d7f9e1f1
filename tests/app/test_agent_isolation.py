"""Nothing of one agent reaches another: model calls, tools, replies, sessions, logs."""

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.model import Call, FakeModelServer, RecordedRequest, Rule, Script, Step
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.control.admission.routing import Router, facts_of
from hermes.control.lanes.lane import Ticket
from hermes.domain.errors import NotFound
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.profile import current_profile, use_profile

LOOK = Call(
    name="terminal",
    arguments={"command": "env | tee seen; pwd; ls -a . ..; cat .env ../.env 2>/dev/null"},
)
SCRIPT = Script(
    rules=[Rule(contains="look", steps=[Step(calls=[LOOK]), Step(text="I looked.")])],
    default=Step(echo=True),
)
PLACES = st.sampled_from(["telegram", "discord"]), st.sampled_from(["1", "2", "33"])


def marker(agent: str, what: str) -> str:
    return f"zq{agent}x{what}qz"


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True))
    agents: dict[str, Any] = {}
    for name in names:
        entry: dict[str, Any] = {"settings": {"agent": {}}}
        if draw(st.booleans()):
            own = {"provider": "custom", "base_url": "${OWN_URL}", "default": f"model-{name}"}
            entry["model"] = own
        if draw(st.booleans()):
            entry["prompt"] = f"I am {marker(name, 'prompt')}."
        if draw(st.booleans()):
            entry["settings"]["memory"] = {"user_profile_enabled": draw(st.booleans())}
        agents[name] = entry
    everybody = st.sampled_from(["main", *names])
    routes = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "match": st.fixed_dictionaries(
                        {},
                        optional={
                            "platform": PLACES[0],
                            "chat_id": st.one_of(PLACES[1], st.lists(PLACES[1]), st.just("3*")),
                            "user_id": st.sampled_from(["ann", "b*"]),
                        },
                    ),
                    "agent": everybody,
                    "prompt": st.booleans(),
                }
            ),
            max_size=4,
        )
    )
    for route in routes:
        route["prompt"] = marker(str(route["agent"]), "note") if route["prompt"] else ""
    said = st.tuples(*PLACES, st.sampled_from(["ann", "ben"]), st.booleans())
    traffic = draw(st.lists(said, min_size=4, max_size=6))
    return {
        "agents": agents,
        "routes": routes,
        "default": draw(everybody),
        "traffic": traffic,
        "seed": draw(st.integers(0, 999)),
    }


def write_home(root: Path, url: str, setup: dict[str, Any]) -> None:
    for agent in ("main", *setup["agents"]):
        home = root if agent == "main" else root / "agents" / agent
        (home / "memories").mkdir(parents=True)
        skill = home / "skills" / marker(agent, "skill")
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\ndescription: {marker(agent, 'skill')}\n---\n")
        (home / "SOUL.md").write_text(f"I am {marker(agent, 'soul')}.")
        for name in ("MEMORY.md", "USER.md"):
            (home / "memories" / name).write_text(marker(agent, "memory"))
        secret = f"OPENAI_API_KEY={marker(agent, 'key')}\nMY_TOKEN={marker(agent, 'token')}\n"
        (home / ".env").write_text(f"{secret}OWN_URL={url}\n")
    config = {
        "model": {"provider": "custom", "default": "general", "base_url": url},
        "auxiliary": {"title_generation": {"enabled": False}},
        "terminal": {
            "backend": "local",
            "daemon_term_grace_seconds": 0.0,
            "env_passthrough": ["*TOKEN*", "*KEY*"],
        },
        "approvals": {"mode": "off"},
        "toolsets": ["terminal"],
        "platform_toolsets": {"telegram": ["terminal"], "discord": ["terminal"]},
        "agents": setup["agents"],
        "routes": setup["routes"],
        "default_agent": setup["default"],
    }
    (root / "config.yaml").write_text(yaml.safe_dump(config))


def message(number: int, place: tuple[str, str, str, bool], agent: str) -> InboundMessage:
    platform, chat, user, looks = place
    return InboundMessage(
        platform=platform,
        account="bot",
        native_id=str(number),
        chat=Chat(kind=ChatKind.PRIVATE, id=chat),
        sender=Sender(id=user),
        text=f"{'look ' if looks else ''}{marker(agent, 'said')}",
        sent_at=0.0,
    )


async def traffic(app: App, setup: dict[str, Any]) -> list[tuple[str, str]]:
    """Send everything at once; return whose answer says what."""
    router = Router(app.settings.general, lambda: app.profiles.served)

    async def one(number: int, place: tuple[str, str, str, bool]) -> tuple[str, str]:
        decision = await router.route(facts_of(message(number, place, "")))
        agent = decision.agent
        told = replace(message(number, place, agent), routed=decision.terms)
        ticket = await app.gateway.submit(agent, told)
        assert ticket.entry.session_key.startswith(f"agent:{agent}:")
        stream = await ticket.stream()
        async for _event in stream.follow():
            pass
        finished = stream.finished
        assert finished is not None
        assert finished.error is None, finished.error
        session = await app.ledger.session(ticket.session_id)
        stored = await app.ledger.transcript(ticket.session_id)
        return agent, str([finished.text, session, *(each.message for each in stored)])

    places = list(enumerate(setup["traffic"]))
    random.Random(setup["seed"]).shuffle(places)
    return list(await asyncio.gather(*(one(*each) for each in places)))


def written(root: Path, agent: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of an agent: what is below its home and belongs to no other or to all."""
    home = root if agent == "main" else root / "agents" / agent
    for path in home.rglob("*"):
        of_others = agent == "main" and path.is_relative_to(root / "agents")
        # The configuration and the ledger are those of the gateway.
        of_all = path.parent == root and path.name.startswith(("config.yaml", "state.db", "ledger"))
        if path.is_file() and not of_others and not of_all:
            yield path, path.read_text(errors="replace")


def owners(text: str, agents: list[str]) -> set[str]:
    return {agent for agent in agents if f"zq{agent}x" in text}


def whole(request: RecordedRequest) -> str:
    return msgspec.json.encode([request.headers, request.body]).decode()


@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(setup=setups())
def test_nothing_of_one_agent_reaches_another(
    setup: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def main() -> None:
        root = tmp_path_factory.mktemp("home")
        agents = ["main", *setup["agents"]]
        async with FakeModelServer(SCRIPT) as model:
            write_home(root, model.base_url, setup)
            environ = {"PATH": "/usr/bin:/bin", "HOME": str(root), "A_TOKEN": marker("main", "env")}
            options = AppOptions(
                home=HermesHome(root=root), environ=environ, cwd=root, platform="gateway"
            )
            async with open_app(options) as app:
                answers = await traffic(app, setup)
            for agent, text in answers:
                assert owners(text, agents) <= {agent}
            for request in model.requests:
                (owner,) = owners(str(request.body["messages"][0]), agents)
                assert owners(whole(request), agents) == {owner}
                assert request.key in ("", marker(owner, "key"))
            looked = 0
            for agent in agents:
                work = root if agent == "main" else root / "agents" / agent / "workspace"
                if (work / "seen").exists():
                    seen = (work / "seen").read_text()
                    assert owners(seen, agents) == {agent}
                    assert marker(agent, "token") in seen, "its own it does have"
                    looked += 1
                for path, text in written(root, agent):
                    assert owners(text, agents) <= {agent}, path
            assert looked or not any(each[3] for each in setup["traffic"])
            log = (root / "logs" / "agent.log").read_text() if (root / "logs").is_dir() else ""
            assert not any(marker(agent, "key") in log for agent in agents)

    asyncio.run(main())


async def test_the_agent_of_a_turn_is_known_in_tasks_threads_and_nested_contexts(
    tmp_path: Path,
) -> None:
    for agent in ("a", "b"):
        (tmp_path / "agents" / agent).mkdir(parents=True)
    (tmp_path / "config.yaml").write_text(
        "agents: {a: {settings: {agent: {max_turns: 1}}}, b: {settings: {agent: {max_turns: 2}}}}"
    )
    home = HermesHome(root=tmp_path)
    options = AppOptions(home=home, environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    async with open_app(options) as app:

        def seen() -> tuple[str, int, str]:
            profile = current_profile()
            turns = app.settings().agent.max_turns
            return (profile.id if profile else "", turns, home.of_turn().root.name)

        async def work(agent: str) -> list[tuple[str, int, str]]:
            with use_profile(app.agent(agent)):
                await asyncio.sleep(0)
                child = asyncio.ensure_future(asyncio.to_thread(seen))
                other = "b" if agent == "a" else "a"
                with use_profile(app.agent(other)):
                    inner = seen()
                assert inner[0] == other
                return [seen(), await child]

        a, b = await asyncio.gather(work("a"), work("b"))
        assert a == [("a", 1, "a")] * 2
        assert b == [("b", 2, "b")] * 2
        assert seen() == ("", 90, tmp_path.name)


async def test_an_agent_that_hangs_or_fails_does_not_keep_others_waiting(tmp_path: Path) -> None:
    hang = Rule(contains="hang", steps=[Step(text="never", stall="first")])
    fail = Rule(contains="fail", steps=[Step(status=401, body={"error": {"message": "no"}})])
    setup = {"agents": {"a": {}, "b": {}}, "routes": [], "default": "main"}
    async with FakeModelServer(Script(rules=[hang, fail], default=Step(echo=True))) as model:
        write_home(tmp_path, model.base_url, setup)
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        options = AppOptions(
            home=HermesHome(root=tmp_path), environ=environ, cwd=tmp_path, platform="gateway"
        )
        async with open_app(options) as app, asyncio.timeout(30):

            async def say(agent: str, chat: int, text: str) -> Ticket:
                told = message(chat, ("telegram", str(chat), "ann", False), agent)
                return await app.gateway.submit(agent, replace(told, text=text))

            stuck = [await say("a", number, "hang") for number in range(40)]
            failed = await (await (await say("a", 98, "fail")).stream()).wait()
            assert failed.error is not None
            answered = await (await (await say("b", 99, "hello")).stream()).wait()
            assert (answered.error, answered.text) == (None, "hello")
            for ticket in stuck:
                assert (await ticket.stream()).finished is None
                app.gateway.interrupt(ticket.session_id)


PLAIN = Path(__file__).parents[1] / "fakes" / "mcp_plain.py"
ASKING = Script(
    rules=[
        Rule(
            contains="use",
            steps=[
                *(Step(calls=[Call(name=f"mcp_demo_{each}")]) for each in ("note", "think")),
                Step(text="I used it."),
            ],
        )
    ],
    default=Step(text="a thought"),
)


async def test_mcp_servers_and_budgets_are_those_of_the_agent(tmp_path: Path) -> None:
    setup = {"agents": {"a": {}, "b": {}, "poor": {"settings": {"budget": {"day_tokens": 1}}}}}
    async with FakeModelServer(ASKING) as model:
        write_home(tmp_path, model.base_url, {**setup, "routes": [], "default": "main"})
        config = yaml.safe_load((tmp_path / "config.yaml").read_text())
        program = {"command": sys.executable, "args": [str(PLAIN)]}
        config["mcp_servers"] = {"demo": {**program, "env": {"HEARD": "${HEARD_BY}"}}}
        config |= {"mcp_discovery_timeout": 60.0, "toolsets": ["mcp-demo"]}
        config["platform_toolsets"] = {"telegram": ["mcp-demo"]}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        for agent in ("main", "a", "b", "poor"):
            home = tmp_path if agent == "main" else tmp_path / "agents" / agent
            with (home / ".env").open("a") as file:
                file.write(f"HEARD_BY={home / 'heard'}\n")
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        options = AppOptions(
            home=HermesHome(root=tmp_path), environ=environ, cwd=tmp_path, platform="gateway"
        )
        async with open_app(options) as app, asyncio.timeout(60):

            async def used(agent: str, chat: str) -> tuple[str, Any]:
                told = replace(message(1, ("telegram", chat, "ann", False), agent), text="use")
                told = replace(told, native_id=f"{agent}{chat}")
                ticket = await app.gateway.submit(agent, told)
                finished = await (await ticket.stream()).wait()
                said = await app.ledger.transcript(ticket.session_id)
                return str([each.message for each in said]), finished.error

            agents = ("main", "a", "b", "poor")
            found = await asyncio.gather(*(used(agent, "1") for agent in agents))
            for agent, (said, error) in zip(agents, found, strict=True):
                assert (error is None) == (agent != "poor"), error
                assert owners(said, [*agents]) <= {agent}
                home = tmp_path if agent == "main" else tmp_path / "agents" / agent
                assert len((home / "heard").read_text().splitlines()) == (2 if not error else 1)
            asked = [each for each in model.requests if "2+2?" in whole(each)]
            assert {each.key for each in asked} >= {marker(each, "key") for each in ("a", "b")}
            # What one has spent stops this one only, and its message says whose limit it is.
            _, error = await used("poor", "2")
            assert error is not None
            assert error.code == "budget"
            assert "Today this agent has used" in error.message
            assert "config set agents.poor.settings.budget.day_tokens" in error.hint
            assert (await used("a", "2"))[1] is None
            servers = app.tools.servers
            kept = servers.of(app.agent("a"))
            await servers.keep(["a"])
            assert servers.of(app.agent("a")) is kept
            assert [each[:2] for each in servers.of(app.agent("b")).states()] == [("demo", 0)]


async def test_an_agent_that_is_removed_ends_its_turn_with_what_it_had_and_takes_no_other(
    tmp_path: Path,
) -> None:
    slow = Rule(contains="look", steps=[Step(calls=[LOOK], stall="first"), Step(text="I looked.")])
    async with FakeModelServer(Script(rules=[slow], default=Step(echo=True))) as model:
        write_home(tmp_path, model.base_url, {"agents": {"a": {}}, "routes": [], "default": "main"})
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        home = HermesHome(root=tmp_path)
        options = AppOptions(home=home, environ=environ, cwd=tmp_path, platform="gateway")
        async with open_app(options) as app, asyncio.timeout(30):
            told = message(1, ("telegram", "1", "ann", True), "a")
            stream = await (await app.gateway.submit("a", told)).stream()
            while not model.requests:  # noqa: ASYNC110 - the model is asked
                await asyncio.sleep(0.01)
            config = yaml.safe_load(home.config_file.read_text())
            del config["agents"]
            home.config_file.write_text(yaml.safe_dump(config))
            app.loaded = load_config(home, environ)
            app.settings.update(app.loaded.config)
            app.profiles.update(app.loaded, app.settings.general())
            with pytest.raises(NotFound, match="no agent `a`"):
                await app.gateway.submit("a", message(2, ("telegram", "1", "ann", False), "a"))
            model.release()
            finished = await stream.wait()
            assert (finished.error, finished.text) == (None, "I looked.")
            seen = (home.agents_dir / "a" / "workspace" / "seen").read_text()
            assert marker("a", "token") in seen
            assert owners(seen, ["main", "a"]) == {"a"}
