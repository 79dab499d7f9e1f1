"""kill -9 under load: every message is answered exactly once, in order per chat.

Uniquely marked messages go to many chats while the gateway is killed and
restarted at seeded random moments. Updates are delivered again, calls get 429
and 502, connections are reset before and after the effect, and the model fails
now and then. At the end every mark must stand in exactly one final answer.
"""

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import FakeModelServer, Script, Step
from fakes.telegram_remote import RemoteTelegram, telegram_process

MARK = re.compile(r"mark-(\d+)-")
FAULTS = {"429": 0.02, "502": 0.02, "reset_before": 0.03, "reset_after": 0.03}


class Plan:
    """How much of everything."""

    def __init__(self, *, messages: int, chats: int, kills: int, seed: int) -> None:
        self.messages = messages
        self.chats = chats
        self.kills = kills
        self.chance = random.Random(seed)
        self.seed = seed

    def chat(self, number: int) -> int:
        return 1000 + number % self.chats


async def talk(telegram: RemoteTelegram, plan: Plan) -> None:
    """Send all messages, some of them delivered a second time."""
    for number in range(plan.messages):
        chat = plan.chat(number)
        message_id = await telegram.say(chat, chat, f"mark-{number}-")
        if plan.chance.random() < 0.1:
            await telegram.control("redeliver", chat_id=chat, message_id=message_id)
        await asyncio.sleep(plan.chance.uniform(0.0, 0.1))


async def cut_the_power(gateway: GatewayProcess, plan: Plan) -> None:
    """Kill and restart at random moments."""
    for _ in range(plan.kills):
        await asyncio.sleep(plan.chance.uniform(0.4, 1.6))
        await gateway.kill()
        await gateway.start()


async def answers(telegram: RemoteTelegram, plan: Plan) -> dict[int, list[list[int]]]:
    """Return, per chat, the marks of each message the bot shows, in order."""
    shown: dict[int, list[list[int]]] = {}
    for chat in {plan.chat(number) for number in range(plan.messages)}:
        replies = await telegram.replies(chat)
        shown[chat] = [[int(m) for m in MARK.findall(seen.text)] for seen in replies]
    return shown


async def all_answered(telegram: RemoteTelegram, plan: Plan, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            shown = await answers(telegram, plan)
            seen = {mark for chat in shown.values() for marks in chat for mark in marks}
            if len(seen) == plan.messages:
                return
            await asyncio.sleep(0.3)


async def soak(folder: Path, plan: Plan, seconds: float) -> Counter[str]:
    troubles = [Step(status=503, headers={"Retry-After": "0"}), Step(echo=True)] * 4
    script = Script(steps=troubles, default=Step(echo=True, interval=0.01, piece_chars=3))
    async with FakeModelServer(script) as model, telegram_process() as telegram:
        config = gateway_config(telegram.base_url, display={"busy_input_mode": "queue"})
        gateway = GatewayProcess(Hermes(folder, model.base_url, config))
        await telegram.control(
            "draw",
            seed=plan.seed,
            rates=FAULTS,
            seconds=1,
            methods=["sendMessage", "editMessageText"],
        )
        await gateway.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(talk(telegram, plan))
                group.create_task(cut_the_power(gateway, plan))
            await all_answered(telegram, plan, seconds)
            await gateway.stop()
        finally:
            await gateway.kill()
        shown = await answers(telegram, plan)
        stats = await telegram.stats()
    check(plan, shown)
    totals: Counter[str] = Counter({"messages": plan.messages, "kills": plan.kills})
    totals["placeholders left"] = sum(not marks for chat in shown.values() for marks in chat)
    totals["faults"] = sum(stats.get("faults", {}).values())
    return totals


def check(plan: Plan, shown: dict[int, list[list[int]]]) -> None:
    counted = Counter(mark for chat in shown.values() for marks in chat for mark in marks)
    doubled = [mark for mark, count in counted.items() if count > 1]
    missing = [mark for mark in range(plan.messages) if mark not in counted]
    assert not doubled, f"answered twice: {doubled}"
    assert not missing, f"not answered: {missing}"
    for chat, messages in shown.items():
        order = [mark for marks in messages for mark in marks]
        assert order == sorted(order), f"out of order in chat {chat}: {order}"


@pytest.mark.timeout(150)
async def test_killed_gateways_answer_every_message_once(tmp_path: Path) -> None:
    plan = Plan(messages=40, chats=6, kills=4, seed=11)
    totals = await soak(tmp_path, plan, seconds=90)
    assert totals["kills"] == 4


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_killed_gateways_answer_every_message_once_long_form(
    tmp_path: Path, seed: int
) -> None:
    plan = Plan(messages=200, chats=20, kills=20, seed=seed)
    await soak(tmp_path, plan, seconds=300)
