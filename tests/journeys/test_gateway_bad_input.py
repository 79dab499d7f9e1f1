"""What goes wrong around a running gateway: it says so, stays up and loses nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config, running_gateway
from fakes.model import FakeModelServer, Rule, Script, Step
from fakes.telegram import TOKEN, FakeTelegram
from hermes.control.supervision.health import GatewayState, read_gateway_state

ANN = 777
BOB = 888
ECHO = Script(default=Step(echo=True))


def standing() -> Script:
    """A model that stands still once and then answers."""
    return Script(steps=[Step(text="cut off", stall="before")], default=Step(text="the answer"))


"""The first turn stands still; the same turn, taken up again, is answered."""

NOISE: tuple[Any, ...] = (
    None,
    7,
    "text",
    [],
    {},
    {"message_id": "one", "chat": [], "text": {"a": 1}},
    {"message_id": 1, "date": 0, "chat": {"id": 5, "type": "planet"}, "text": "x"},
    {"message_id": 2, "date": -1, "chat": {"id": 2**70, "type": "private"}},
)


def said(telegram: FakeTelegram, chat: int) -> list[str]:
    return [seen.text for seen in telegram.replies(chat)]


async def until_said(telegram: FakeTelegram, chat: int, text: str, seconds: float = 30.0) -> None:
    await telegram.until(lambda: text in said(telegram, chat), seconds)


async def until_state(
    gateway: GatewayProcess, condition: Callable[[GatewayState], Any], seconds: float = 30.0
) -> GatewayState:
    """Wait until the gateway says this about itself; return all it says."""
    path = gateway.hermes.home / "gateway_state.json"
    state: GatewayState | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                state = read_gateway_state(path)
                if state is not None and condition(state):
                    return state
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"it still says {state}\n{gateway.log()}")


async def until_logged(gateway: GatewayProcess, text: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if text in gateway.log():
                return
            await asyncio.sleep(0.05)


async def test_a_token_revoked_while_it_runs_is_said_clearly_and_the_answer_comes_later(
    tmp_path: Path,
) -> None:
    script = Script(steps=[Step(text="the answer", stall="before")], default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "hello")
            await model.arrived.wait()
            telegram.world.token = "4242:another-token"
            model.release()
            state = await until_state(gateway, lambda s: s.platforms["telegram"].state == "fatal")
            assert "TELEGRAM_BOT_TOKEN" in (state.platforms["telegram"].hint or "")
            status = await gateway.hermes.run("gateway", "status")
            assert "telegram: fatal" in status.out
            assert "TELEGRAM_BOT_TOKEN" in status.out
            assert TOKEN not in status.out + gateway.log()
            await gateway.kill()
            telegram.world.token = TOKEN
            telegram.say(BOB, BOB, "still there?")
            await gateway.start()
            await until_said(telegram, BOB, "still there?")
            await until_said(telegram, ANN, "the answer")
            assert said(telegram, ANN) == ["the answer"]


async def test_a_second_gateway_with_the_same_token_says_whose_it_is_and_waits(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        gateways = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            hermes = Hermes(tmp_path / name, model.base_url, gateway_config(telegram.base_url))
            hermes.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
            gateways.append(GatewayProcess(hermes))
        first, second = gateways
        await first.start()
        try:
            await until_state(first, lambda s: s.gateway_state == "running")
            await second.start()
            state = await until_state(second, lambda s: s.platforms["telegram"].error_message)
            problem = state.platforms["telegram"].error_message or ""
            assert "Another gateway on this machine uses the same telegram account" in problem
            assert str(first.hermes.home) in problem
            assert problem in second.log()
            telegram.say(ANN, ANN, "who answers?")
            await until_said(telegram, ANN, "who answers?")
            assert telegram.conflicts == 0
            await first.stop()
            telegram.say(ANN, ANN, "and now?")
            await until_said(telegram, ANN, "and now?", 45)
            assert said(telegram, ANN) == ["who answers?", "and now?"]
        finally:
            for gateway in (first, second):
                if gateway.process is not None:
                    await gateway.kill()


async def test_what_is_said_while_the_network_is_gone_is_answered_afterwards(
    tmp_path: Path,
) -> None:
    script = Script(steps=[Step(text="before", stall="before")], default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "hello")
            await model.arrived.wait()
            await telegram.stop()
            for number in range(5):
                telegram.say(BOB + number, BOB + number, f"meanwhile {number}")
            model.release()
            await until_logged(gateway, "Receiving failed")
            await telegram.start(telegram.port)
            await until_said(telegram, ANN, "before")
            for number in range(5):
                await until_said(telegram, BOB + number, f"meanwhile {number}")
            assert said(telegram, ANN) == ["before"]
            shown = [said(telegram, BOB + number) for number in range(5)]
            assert shown == [[f"meanwhile {number}"] for number in range(5)]


async def test_malformed_updates_are_passed_over_and_the_rest_is_answered(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            await until_state(gateway, lambda s: s.gateway_state == "running")
            for body in NOISE:
                telegram.world.push("message", body)
            telegram.say(ANN, ANN, "after the noise")
            await until_said(telegram, ANN, "after the noise")
            assert len(model.requests) == 1
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.log()


async def test_ten_megabytes_of_text_harm_nobody_else(tmp_path: Path) -> None:
    short = Rule(contains="short again", steps=[Step(text="Short.")])
    script = Script(rules=[short], default=Step(text="I have read it."))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "many words " * 950_000)
            telegram.say(BOB, BOB, "and I?")
            await until_said(telegram, BOB, "I have read it.")
            await telegram.until(lambda: any(len(text) > 1 for text in said(telegram, ANN)), 40)
            telegram.say(ANN, ANN, "/new")
            telegram.say(ANN, ANN, "short again")
            await until_said(telegram, ANN, "Short.")
            assert b"many words" not in model.requests[-1].raw
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.log()


async def test_an_unknown_kind_of_attachment_does_not_stop_what_follows(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, hologram={"file_id": "h1", "depth": 3})
            telegram.say(BOB, BOB, "look at this", hologram={"file_id": "h2"})
            telegram.world.say_file(ANN + 1, ANN + 1, "document", b"\0\1\2", name="thing.xyzzy")
            await until_said(telegram, BOB, "look at this")
            await telegram.until(lambda: said(telegram, ANN + 1), 30)
            telegram.say(ANN, ANN, "never mind")
            await until_said(telegram, ANN, "never mind")
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.log()


async def test_a_config_that_breaks_is_reported_and_the_last_good_one_stays(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            await until_state(gateway, lambda s: s.gateway_state == "running")
            config = gateway.hermes.home / "config.yaml"
            good = config.read_text(encoding="utf-8")
            config.write_text("model: [unclosed\n", encoding="utf-8")
            await until_state(gateway, lambda s: any("does not load" in w for w in s.warnings))
            status = await gateway.hermes.run("gateway", "status")
            assert "does not load" in status.out + status.err
            telegram.say(ANN, ANN, "still served")
            await until_said(telegram, ANN, "still served")
            config.write_text(good, encoding="utf-8")
            await until_state(gateway, lambda s: not s.warnings)
            telegram.say(ANN, ANN, "repaired")
            await until_said(telegram, ANN, "repaired")


async def test_replace_takes_over_without_losing_a_message(tmp_path: Path) -> None:
    async with FakeModelServer(standing()) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as first:
            telegram.say(ANN, ANN, "begun before")
            await model.arrived.wait()
            second = GatewayProcess(first.hermes)
            await second.start("--replace")
            try:
                telegram.say(BOB, BOB, "said in between")
                assert first.process is not None
                async with asyncio.timeout(30):
                    assert await first.process.wait() == 0
                await until_said(telegram, BOB, "the answer")
                await until_said(telegram, ANN, "the answer")
                assert said(telegram, ANN) == said(telegram, BOB) == ["the answer"]
            finally:
                await second.kill()


async def test_a_turn_that_sigterm_cuts_off_goes_on_at_the_next_start(tmp_path: Path) -> None:
    async with FakeModelServer(standing()) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "go")
            await model.arrived.wait()
            assert await gateway.stop() == 0
            assert "the answer" not in said(telegram, ANN)
            await gateway.start()
            await until_said(telegram, ANN, "the answer")
            assert said(telegram, ANN) == ["the answer"]
            assert len(model.requests) == 2
