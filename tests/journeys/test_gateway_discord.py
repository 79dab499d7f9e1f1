"""A gateway on Discord: conversations, approvals by button, slash commands, and kill -9.

The crash test is that of Telegram in short form: every message is answered exactly once and in
order, though the gateway is killed, calls fail and events come twice.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.command import Hermes
from fakes.discord import BOT, GENERAL, FakeDiscord
from fakes.gateway import GatewayProcess
from fakes.model import Call, FakeModelServer, Rule, Script, Step

ANN, BOB = "701", "702"
MARK = re.compile(r"mark-(\d+)-")


def config_for(discord: FakeDiscord, **more: Any) -> dict[str, Any]:
    platform = {
        "enabled": True,
        "token": discord.token,
        "allow_all_users": True,
        "extra": {"base_url": discord.base_url, "history_backfill": 5},
    }
    titles = {"title_generation": {"enabled": False}}
    return {"platforms": {"discord": platform}, "auxiliary": titles, **more}


@asynccontextmanager
async def running(
    folder: Path, model: FakeModelServer, discord: FakeDiscord, **more: Any
) -> AsyncIterator[GatewayProcess]:
    gateway = GatewayProcess(Hermes(folder, model.base_url, config_for(discord, **more)))
    await gateway.start()
    try:
        await discord.until(lambda: discord.connected)
        yield gateway
    finally:
        await gateway.kill()


async def test_a_conversation_with_everything(tmp_path: Path) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -r" + "f tmp"})])
    rule = Rule(contains="clean", steps=[wipe, Step(text="All clean.")])
    script = Script(rules=[rule], default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeDiscord() as discord:
        async with running(tmp_path, model, discord, terminal={"backend": "local"}) as gateway:
            private = discord.private(ANN)
            said = discord.say(private, ANN, "hello in private")
            await discord.until(lambda: discord.reactions.get(said) == ["✅"])
            shown = discord.replies(private)
            assert len(shown) == 1
            assert "hello in private" in shown[0]["content"]
            assert shown[0]["message_reference"]["message_id"] == said
            # Nobody is told that all is well whose answer could not be sent.
            discord.fault(f"POST /channels/{private}/messages", "code 50007")
            unsent = discord.say(private, ANN, "hello in vain")
            await discord.until(lambda: discord.reactions.get(unsent) == ["❌"])
            # A mention is answered in a thread, where it goes on without one.
            discord.say(GENERAL, BOB, "the garden is green")
            asked = discord.say(GENERAL, ANN, f"<@{BOT}> hello in the channel")
            await discord.until(lambda: discord.texts(asked))
            request = str(model.requests[-1].body["messages"][-1]["content"])
            assert request.index("hello in the channel") < request.index(
                "> user702: the garden is green"
            )
            discord.say(asked, ANN, "and again")
            await discord.until(lambda: any("and again" in each for each in discord.texts(asked)))
            assert discord.texts(GENERAL) == []
            # Slash commands are those of the registry, and are answered in their place.
            assert {"new", "status", "help"} <= {each["name"] for each in discord.commands}
            number = discord.slash(private, ANN, "status")
            await discord.until(
                lambda: discord.interactions[number].get("message", {}).get("content")
            )
            # A button counts for whoever asked; others are told so alone.
            asked = discord.say(GENERAL, ANN, f"<@{BOT}> clean up")
            await discord.until(lambda: any(m["components"] for m in discord.replies(asked)))
            prompt = next(m for m in discord.replies(asked) if m["components"])
            allow = prompt["components"][0]["components"][0]["custom_id"]
            for person, told in ((BOB, 4), (ANN, 6)):
                number = discord.press(asked, person, prompt["id"], allow)
                await discord.until(lambda: discord.interactions[number]["answer"])  # noqa: B023
                assert discord.interactions[number]["answer"]["type"] == told
            await discord.until(lambda: "All clean." in discord.texts(asked))
            assert "Approved" in prompt["content"]
            assert prompt["components"] == []
            assert await gateway.stop() == 0


async def talk(
    discord: FakeDiscord, places: list[str], chance: random.Random, messages: int
) -> None:
    for number in range(messages):
        place = places[number % len(places)]
        message = discord.say(place, place[1:], f"mark-{number}-")
        if chance.random() < 0.15:
            discord.redeliver(place, message)
        await asyncio.sleep(chance.uniform(0.0, 0.4))


async def cut_the_power(
    gateway: GatewayProcess, discord: FakeDiscord, chance: random.Random, kills: int
) -> None:
    for number in range(kills):
        await discord.until(lambda: discord.connected)
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        await gateway.kill()
        if number % 3 == 1:
            # Down for so long that Discord has forgotten the session.
            discord.sessions.clear()
        await gateway.start()


@pytest.mark.timeout(120)
async def test_killed_gateways_answer_every_message_once(tmp_path: Path) -> None:
    await soak(tmp_path, messages=20, kills=3, seed=7)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_gateways_answer_every_message_once_long_form(
    tmp_path: Path, seed: int
) -> None:
    await soak(tmp_path, messages=120, kills=20, seed=seed)


async def soak(tmp_path: Path, *, messages: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    script = Script(default=Step(echo=True, interval=0.04, piece_chars=1))
    async with FakeModelServer(script) as model, FakeDiscord() as discord:
        places = [discord.private(str(700 + each)) for each in range(4)]
        busy = {"busy_input_mode": "queue", "platforms": {"discord": {"streaming": True}}}
        async with running(tmp_path, model, discord, display=busy) as gateway:
            for place in places:
                discord.say(place, place[1:], "hello")
            await discord.until(lambda: all(discord.texts(place) for place in places))
            for kind in ("429", "reset after", "reset", "502"):
                discord.fault("POST /channels", kind, times=2 + kills // 3)
            async with asyncio.TaskGroup() as group:
                group.create_task(talk(discord, places, chance, messages))
                group.create_task(cut_the_power(gateway, discord, chance, kills))

            def marks(place: str) -> list[int]:
                return [int(m) for text in discord.texts(place) for m in MARK.findall(text)]

            await discord.until(
                lambda: sum(len(set(marks(each))) for each in places) == messages, 60 + messages
            )
            await discord.until(lambda: discord.connected)
            assert await gateway.stop() == 0
        for at, place in enumerate(places):
            assert marks(place) == list(range(at, messages, 4))
