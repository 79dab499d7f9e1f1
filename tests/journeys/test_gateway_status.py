"""What keeps the bot from hearing is seen in the status within seconds, and overcome."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import TOKEN, FakeTelegram
from fakes.telegram_kit import RememberingSink, adapter_for, receiving

ANN = 777
ECHO = Script(default=Step(echo=True))


async def until_state(
    gateway: GatewayProcess, fits: Callable[[dict[str, Any]], bool], seconds: float = 15.0
) -> dict[str, Any]:
    """Wait until the state of Telegram fits; return it."""
    path = gateway.hermes.home / "gateway_state.json"
    state: dict[str, Any] = {}
    for _ in range(round(seconds / 0.05)):
        await asyncio.sleep(0.05)
        state = json.loads(path.read_bytes()) if path.exists() else {}
        state = state.get("platforms", {}).get("telegram", {})
        if state and fits(state):
            return state
    raise AssertionError(state)


async def test_a_new_token_in_env_is_used_without_a_restart(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "before")
            await telegram.until(lambda: telegram.replies(ANN), 20)
            telegram.world.token = "4242:a_new-token"
            telegram.say(ANN, ANN, "after")
            state = await until_state(gateway, lambda s: s["state"] == "fatal", 30)
            assert state["next_try_at"]
            status = await gateway.hermes.run("gateway", "status")
            assert "The next try is in" in status.out
            (gateway.hermes.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\n")
            await telegram.until(lambda: len(telegram.replies(ANN)) == 2, 20)
            # One that works is replaced, too.
            telegram.world.token = "4242:yet_another-token"
            (gateway.hermes.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\n")
            telegram.say(ANN, ANN, "and again")
            await telegram.until(lambda: len(telegram.replies(ANN)) == 3, 20)
            assert "only after a restart" not in gateway.log()
        assert TOKEN not in gateway.log()


async def test_polls_that_fail_and_a_second_poller_are_seen_within_seconds(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.fault("page", "getMe", code=404)
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            await until_state(gateway, lambda s: s["state"] == "connected")
            telegram.fault("page", "getUpdates", times=2, code=401)
            await until_state(gateway, lambda s: "HTTP 401" in str(s["error_message"]))
            await until_state(gateway, lambda s: s["state"] == "connected")
            async with adapter_for(telegram, tmp_path) as other:
                async with receiving(other, RememberingSink()):
                    await until_state(gateway, lambda s: s["error_code"] == "conflict")
            status = await gateway.hermes.run("status")
            assert "Another process receives the messages" in status.out


async def test_a_platform_that_only_a_variable_names_is_listed(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9", {})
    (hermes.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
    assert "Platforms: telegram" in (await hermes.run("status")).out
    listed = json.loads((await hermes.run("status", "--json")).out)["config"]["platforms"]
    assert listed == ["telegram"]


async def test_a_turn_cut_off_too_long_ago_is_ended_and_said_once(tmp_path: Path) -> None:
    ring = Step(calls=[Call(name="terminal", arguments={"command": "echo x >> mark; sleep 60"})])
    script = Script(
        rules=[
            Rule(contains="go on", steps=[Step(text="Going on.")]),
            Rule(contains="ring", steps=[ring, Step(text="never said")]),
        ],
    )
    agent = {"gateway_auto_continue_freshness": 1800}
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, agent=agent, terminal={"backend": "local"}
        ) as gateway:
            telegram.say(ANN, ANN, "ring the bell")
            await model.arrived.wait()
            while not list(gateway.hermes.folder.rglob("mark")):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
            await gateway.kill()
            with sqlite3.connect(gateway.hermes.home / "state.db") as db:
                db.execute("UPDATE turns SET updated_at = updated_at - 3600")
            for _ in range(2):
                await gateway.start()
                await telegram.until(lambda: "interrupted" in _said(telegram), 20)
                await gateway.stop()
            await gateway.start()
            telegram.say(ANN, ANN, "go on")
            await telegram.until(lambda: "Going on." in _said(telegram), 20)
            assert _said(telegram).count("interrupted") == 1
            assert "send a message to continue" in _said(telegram)
            assert "never said" not in _said(telegram)


def _said(telegram: FakeTelegram) -> str:
    return "\n".join(seen.text for seen in telegram.replies(ANN))


async def test_shutting_down_and_leaving_wait_for_no_title(tmp_path: Path) -> None:
    title = Rule(contains="Assistant:", steps=[Step(text="A Late Title", stall="before")])
    async with FakeModelServer(Script(rules=[title], default=Step(echo=True))) as model:
        config = {"auxiliary": {"title_generation": {"enabled": True}}}
        hermes = Hermes(tmp_path, model.base_url, config)
        async with asyncio.timeout(15):
            outcome = await hermes.run("chat", "-Q", "-q", "why is the sky blue?")
        assert outcome.out == "why is the sky blue?\n"
        sessions = await hermes.run("sessions", "list")
        assert "why is the sky blue?" in sessions.out
