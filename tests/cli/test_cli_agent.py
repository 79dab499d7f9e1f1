"""`hermes agent`: agents and routes come, change and go, and config.yaml keeps its comments."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace

from fakes.ledgers import session
from hermes.cli.root import hermes
from hermes.control.supervision.instance import hold_home
from hermes.domain.errors import HermesError
from hermes.state.sqlite.ledger import SqliteLedger

CONFIG = """\
# My gateway.
model: fake-1  # the usual one
agents:
  # Reviews.
  coder:
    description: Writes code.  # and tests
    secrets: [GITHUB_TOKEN]
    toolsets: [todo]
routes:
  # The team.
  - match: {platform: telegram, chat_id: "-100"}
    agent: coder
  - {match: {platform: slack}, agent: main}
  # Ben.
  - {match: {user_id: "7"}, agent: hermes/coder}
platforms:
  telegram:
    extra:
      accounts:
        work: {token: x, agent: coder}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    own = home / "agents" / "coder"
    (own / "memories").mkdir(parents=True)
    (own / "skills" / "review").mkdir(parents=True)
    (own / "SOUL.md").write_text("I am the coder.")
    (own / "memories" / "MEMORY.md").write_text("tabs")
    (own / "skills" / "review" / "SKILL.md").write_text("look twice")
    (own / ".env").write_text("CODER_API_KEY=secret-of-the-coder\n")
    (home / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    return home


def run(*args: str) -> str:
    done = outcome(*args)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def outcome(*args: str) -> Result:
    return CliRunner().invoke(hermes, args)


def refused(*args: str) -> HermesError:
    error = outcome(*args).exception
    assert isinstance(error, HermesError), error
    return error


def config(home: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((home / "config.yaml").read_text())
    return data


def test_agents_are_listed_and_shown_with_what_leads_to_them_and_their_trouble(home: Path) -> None:
    assert "coder  fake-1  Writes code." in run("agent", "list")
    shown = run("agent", "show", "coder")
    assert str(home / "agents" / "coder") in shown
    assert "Toolsets: todo" in shown
    assert "On the API: yes" in shown
    assert "routes[0], routes[2]" in shown
    assert "secret-of" not in shown
    facts = json.loads(run("agent", "show", "coder", "--json"))
    assert facts["model"] == "fake-1"
    assert facts["routes"] == ["routes[0]", "routes[2]"]
    assert "There is no agent `nobody`" in refused("agent", "show", "nobody").message
    (home / "config.yaml").write_text(CONFIG.replace("toolsets:", "tolsets:"))
    broken = outcome("agent", "show", "coder")
    assert broken.exit_code == 1
    assert "Trouble: agents.coder cannot be read" in broken.output
    assert "coder  cannot answer" in run("agent", "list")


def test_an_agent_is_added_and_cloned_without_secrets_unless_asked(home: Path) -> None:
    run("agent", "add", "writer", "--description", "Prose.", "-m", "prose-1", "--hidden")
    assert config(home)["agents"]["writer"] == {
        "description": "Prose.",
        "model": "prose-1",
        "expose": False,
    }
    assert (home / "agents" / "writer").stat().st_mode & 0o777 == 0o700
    text = (home / "config.yaml").read_text()
    assert all(line in text for line in CONFIG.splitlines() if "#" in line)

    run("agent", "add", "second", "--clone", "coder", "--model", "code-2")
    own = home / "agents" / "second"
    assert (own / "SOUL.md").read_text() == "I am the coder."
    assert (own / "memories" / "MEMORY.md").read_text() == "tabs"
    assert (own / "skills" / "review" / "SKILL.md").exists()
    assert not (own / ".env").exists()
    entry = {"description": "Writes code.", "toolsets": ["todo"], "model": "code-2"}
    assert config(home)["agents"]["second"] == entry

    run("agent", "add", "third", "--clone", "coder", "--with-env")
    assert "secret-of-the-coder" in (home / "agents" / "third" / ".env").read_text()
    assert "secrets" in str(config(home)["agents"]["third"])

    run("agent", "add", "light", "--home", "coder", "--prompt", "Be brief.")
    assert not (home / "agents" / "light").exists()
    for wrong in (["coder"], ["Main!"], ["hermes"], ["x", "--clone", "nobody"]):
        refused("agent", "add", *wrong)
    assert not (home / "agents" / "x").exists()


def test_a_removed_agent_leaves_its_routes_refusing_unless_they_go_too(home: Path) -> None:
    run("agent", "add", "light", "--home", "coder")
    assert "light shares the home" in refused("agent", "remove", "coder").message
    run("agent", "remove", "light")
    kept = (home / "config.yaml").read_text()
    told = run("agent", "remove", "coder")
    assert "routes.0.agent still names it and refuses messages" in told
    assert "routes.2.agent" in told
    assert "agents" not in config(home)
    assert (home / "agents" / "coder" / "SOUL.md").exists()
    assert outcome("agent", "route", "test", "--user-id", "7").exit_code != 0

    (home / "config.yaml").write_text(kept)
    told = run("agent", "remove", "coder", "--routes", "--delete-home", "--yes")
    assert config(home)["routes"] == [{"match": {"platform": "slack"}, "agent": "main"}]
    assert "accounts.work.agent still names it" in told, "a bot of its own is not given to others"
    assert not (home / "agents" / "coder").exists()
    assert "# the usual one" in (home / "config.yaml").read_text()
    assert "cannot be removed" in refused("agent", "remove", "main").message


def test_a_renamed_agent_keeps_home_routes_and_conversations(home: Path) -> None:
    asyncio.run(_talked(home))
    hooks = home / "webhook_subscriptions.json"
    hooks.write_text('{"ci": {"agent": "coder", "prompt": "look"}, "other": {"prompt": "x"}}')
    with hold_home(home):
        assert "gateway" in refused("agent", "rename", "coder", "dev").message
    told = run("agent", "rename", "coder", "dev")
    assert "coder is now dev, with 1 conversation" in told
    expected = CONFIG.replace("  coder:", "  dev:").replace("agent: coder", "agent: dev")
    assert (home / "config.yaml").read_text() == expected.replace("hermes/coder", "dev")
    assert (home / "agents" / "dev" / "SOUL.md").exists()
    assert json.loads(hooks.read_text()) == {
        "ci": {"agent": "dev", "prompt": "look"},
        "other": {"prompt": "x"},
    }
    assert not (home / "agents" / "coder").exists()
    assert asyncio.run(_found(home, "agent:dev:telegram:dm:c1")) == (
        "dev",
        str(home / "agents" / "dev" / "workspace"),
    )
    assert asyncio.run(_found(home, "agent:coder:telegram:dm:c1")) is None
    assert "already" in refused("agent", "rename", "dev", "main").message

    # What cannot be done is undone.
    (home / "agents" / "taken").mkdir()
    refused("agent", "rename", "dev", "taken")
    assert asyncio.run(_found(home, "agent:dev:telegram:dm:c1"))


async def _talked(home: Path) -> None:
    ledger = await SqliteLedger.open(home / "state.db", backups=home / "backups")
    cwd = str(home / "agents" / "coder" / "workspace")
    await ledger.create_session(replace(session(agent_id="coder"), cwd=cwd))
    await ledger.bind_key("agent:coder:telegram:dm:c1", "s1", 1.0)
    await ledger.close()


async def _found(home: Path, key: str) -> tuple[str, str | None] | None:
    ledger = await SqliteLedger.open(home / "state.db", backups=home / "backups")
    try:
        found = await ledger.session_for_key(key)
        return None if found is None else (found.agent_id, found.cwd)
    finally:
        await ledger.close()


def test_routes_are_listed_added_in_order_and_removed(home: Path) -> None:
    run("agent", "route", "add", "coder", "--platform", "discord", "--chat-id", "1,2")
    run("agent", "route", "add", "main", "--user-id", "7", "--at", "0")
    routes = list(config(home)["routes"])
    assert routes[0] == {"match": {"user_id": "7"}, "agent": "main"}
    last = {"match": {"platform": "discord", "chat_id": ["1", "2"]}, "agent": "coder"}
    assert routes[-1] == last
    assert len(routes) == 5
    listed = run("agent", "route", "list")
    assert "routes[0]: {match: {user_id: '7'}, agent: main}" in listed
    assert "# Ben." in (home / "config.yaml").read_text()
    run("agent", "route", "remove", "0")
    assert list(config(home)["routes"]) == routes[1:]
    assert "needs a condition" in refused("agent", "route", "add", "coder").message
    refused("agent", "route", "add", "nobody", "--platform", "x")
    refused("agent", "route", "remove", "9")


OWN_BOTS = """
model: {default: gpt-5.2, provider: openai}
agents:
  coder: {expose: false}
  tutor: {}
  light: {home: coder, prompt: Brief.}
routes:
  - {match: {platform: telegrm}, agent: tutor}
  - {match: {platform: irc}, agent: tutor}
  - {match: {user_id: "9"}, agent: gone}
platforms:
  telegram:
    token: "1:first"
    accounts: {work: {token: "2:work", agent: tutor}, lost: {token: "4:lost", agent: codr}}
  api_server: {extra: {model_routes: {fast: {agent: coder, model: m}, good: {model: m}}}}
"""


def test_a_bot_of_an_agent_decides_who_answers_and_every_doubt_is_named(home: Path) -> None:
    (home / "config.yaml").write_text(OWN_BOTS)
    (home / ".env").write_text("OPENAI_API_KEY=sk-of-main-123456\n")
    (home / "agents" / "coder" / ".env").write_text("TELEGRAM_BOT_TOKEN=3:coder\n")
    facts = {each["id"]: each for each in json.loads(run("agent", "list", "--json"))["agents"]}
    assert facts["coder"]["bots"] == ["telegram:coder"]
    assert facts["tutor"]["bots"] == ["telegram:work"]
    assert facts["light"]["bots"] == []
    assert facts["main"]["model_problem"] is None
    assert str(home / "agents" / "tutor" / ".env") in facts["tutor"]["model_problem"]
    assert "cannot answer: Provider `openai` needs an API key" in run("agent", "list")
    shown = run("agent", "show", "coder")
    assert "Reached by: telegram:coder" in shown
    assert "Trouble: Provider `openai` needs an API key" in shown

    def tested(*words: str) -> Any:
        done = outcome("agent", "route", "test", "--json", "--platform", "telegram", *words)
        return json.loads(done.stdout)

    for account, agent in (("coder", "coder"), ("3", "coder"), ("work", "tutor"), ("2", "tutor")):
        told = tested("--account", account)
        assert (told["agent"], told["problem"]) == (agent, None)
    refused_here = tested("--account", "1")
    assert "cannot be understood" in refused_here["problem"]

    (home / "webhook_subscriptions.json").write_text('{"ci": {"agent": "gone", "prompt": "x"}}')
    run("keys", "create", "web", "--agent", "coder")
    status, check = run("status"), outcome("config", "check").output
    doctor = outcome("doctor")
    assert doctor.exit_code == 1
    named = (
        "routes[0] cannot be understood and refuses messages: there is no platform `telegrm`",
        "routes[1] has no effect: there is no platform `irc`",
        "routes: there is no agent `gone`",
        "platforms.telegram.accounts.lost: there is no agent `codr`",
        "the webhook ci: there is no agent `gone`",
        "model_routes.fast has no effect: it leads to `coder`",
    )
    for text in named:
        assert text in status
        assert text in check
        assert f"✗ {text}" in doctor.output
        assert text in outcome("agent", "route", "test", "--platform", "slack").output
    assert "model_routes.good" not in status
    assert "the API key web is bound to `coder`, which the API does not offer" in status
    assert "Agent tutor cannot answer: Provider `openai` needs an API key" in status
    assert "✗ The agent tutor cannot answer: Provider `openai`" in doctor.output
    assert "! the API key web is bound to `coder`" in doctor.output
    assert "web" in run("keys", "list")


def test_a_hook_that_does_not_run_is_named_by_status_and_check(home: Path) -> None:
    hook = home / "hooks" / "pick"
    hook.mkdir(parents=True)
    (hook / "HOOK.yaml").write_text("events: [select_agent]\n")
    (hook / "handler.py").write_text("def handle(event, context): return None\n")
    run("hooks", "enable", "pick")
    assert "hook pick" not in run("status")
    (hook / "handler.py").write_text("changed")
    for told in (run("status"), outcome("config", "check").output):
        assert "The hook pick does not run: its files have changed" in told
        assert "messages that no route is about are refused" in told


def test_a_conversation_of_another_agent_is_not_continued(home: Path) -> None:
    asyncio.run(_talked(home))
    error = refused("-a", "main", "-r", "s1", "-q", "hello")
    assert "one of the agent `coder`, not of `main`" in error.message
    assert "hermes -a coder -r s1" in error.hint
