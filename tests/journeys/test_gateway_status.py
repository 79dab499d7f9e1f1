"""What keeps the bot from hearing is seen in the status within seconds, and overcome."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, running_gateway
from fakes.model import FakeModelServer, Script, Step
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
        telegram.fault("page", "getMe", times=2, code=404)
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            await until_state(gateway, lambda s: s["state"] == "connected")
            telegram.fault("page", "getUpdates", times=3, code=401)
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
