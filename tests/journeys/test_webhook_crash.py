"""kill -9 while deliveries are taken in, worked on and sent: each is done once.

Senders repeat a delivery until they get an answer, and some repeat it after
that. Results go to a chat. In the end every delivery that was answered with
success is done and its result stands in the chat once; where a kill left it
open whether a result had been sent, the delivery says so and can be repeated.
"""

import asyncio
import hashlib
import hmac
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fakes.api_crash import Power
from fakes.api_gateway import ApiGateway, running_api
from fakes.gateway import gateway_config
from fakes.model import Script, Step
from fakes.model_remote import model_process
from fakes.telegram_remote import RemoteTelegram, telegram_process
from hermes.domain.webhooks import HookDelivery, HookState
from hermes.state.sqlite.ledger import SqliteLedger

SECRET = "a-shared-secret-that-is-long"
CHATS = range(4700, 4715)
"""Many, because a bot may send to each of them only now and then."""
MARK = re.compile(r"mark-(\d+)-")


def receiver() -> dict[str, Any]:
    where = {"deliver": "telegram", "deliver_extra": {"chat_id": "{chat}"}}
    routes = {
        "work": {"prompt": "{text}", "secret": SECRET, **where},
        "plain": {"prompt": "{text}", "secret": SECRET, "deliver_only": True, **where},
    }
    return {"enabled": True, "extra": {"port": 0, "rate_limit": 0, "routes": routes}}


class Sender:
    """A service that repeats its deliveries until they are answered."""

    def __init__(self, power: Power, count: int) -> None:
        self.power = power
        self.count = count
        self.client = httpx2.AsyncClient(timeout=30.0)
        self.answers: dict[int, list[dict[str, Any]]] = {n: [] for n in range(count)}
        self.lost = 0

    def route(self, number: int) -> str:
        return "plain" if number % 3 == 0 else "work"

    async def send(self, number: int) -> dict[str, Any]:
        """Send a delivery until it is answered with success."""
        chat = CHATS[number % len(CHATS)]
        body = json.dumps({"text": f"mark-{number}-", "chat": chat}).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-delivery": f"d{number}"}
        while True:
            await self.power.up.wait()
            url = f"{self.power.gateway.listening('webhook')}/webhooks/{self.route(number)}"
            try:
                answer = await self.client.post(url, content=body, headers=headers)
            except httpx2.TransportError:
                self.lost += 1
                continue
            if answer.is_success:
                told: dict[str, Any] = answer.json()
                self.answers[number].append(told)
                return told
            assert answer.status_code in {502, 503}, answer.text
            await asyncio.sleep(0.2)

    async def send_all(self, chance: random.Random) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(self.send(number))
                if chance.random() < 0.2:
                    group.create_task(self.send(number))
                await asyncio.sleep(chance.uniform(0.0, 0.15))


async def deliveries(gateway: ApiGateway) -> dict[int, HookDelivery]:
    home = gateway.hermes.home
    ledger = await SqliteLedger.open(home / "state.db", backups=home)
    try:
        found = await ledger.hooks(tuple(HookState), limit=10_000)
    finally:
        await ledger.close()
    return {int(each.delivery_id[1:]): each for each in found}


async def all_over(gateway: ApiGateway, count: int) -> dict[int, HookDelivery]:
    async with asyncio.timeout(60):
        while True:
            found = await deliveries(gateway)
            if len(found) == count and all(each.state.over for each in found.values()):
                return found
            await asyncio.sleep(0.2)


async def shown(telegram: RemoteTelegram) -> Counter[int]:
    replies = [seen for chat in CHATS for seen in await telegram.replies(chat)]
    return Counter(int(m) for seen in replies for m in MARK.findall(seen.text))


async def soak(folder: Path, *, count: int, kills: int, seed: int) -> Counter[str]:
    step = Step(echo=True, piece_chars=3, interval=0.05)
    async with (
        telegram_process() as telegram,
        model_process(folder, Script(default=step)) as model,
    ):
        chats = gateway_config(telegram.base_url)["platforms"]
        platforms = {**chats, "webhook": receiver()}
        async with running_api(folder, model.base_url, platforms=platforms) as gateway:
            power = Power(gateway, seed)
            sender = Sender(power, count)
            for chat in CHATS:
                await telegram.say(chat, chat, "hello")
            async with asyncio.TaskGroup() as group:
                group.create_task(sender.send_all(power.chance))
                group.create_task(power.cuts(kills, 0.3, 1.2))
            first = await all_over(gateway, count)
            seen = await shown(telegram)
            totals = check(first, seen)
            asked = (await model.stats())["requests"]
            for number, each in first.items():
                told = await sender.send(number)
                again = each.state is HookState.FAILED
                assert (told["status"] == "duplicate") is not again, (each, told)
            last = await all_over(gateway, count)
            await sender.client.aclose()
            assert {each.state for each in last.values()} == {HookState.DONE}
            repeated = [n for n, each in first.items() if each.state is HookState.FAILED]
            assert await shown(telegram) == seen + Counter(repeated)
            works = sum(sender.route(number) == "work" for number in repeated)
            assert (await model.stats())["requests"] == asked + works, "a duplicate was worked on"
    totals["lost answers"], totals["kills"] = sender.lost, power.kills
    return totals


def check(found: dict[int, HookDelivery], seen: Counter[int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for number, each in found.items():
        totals[each.state.value] += 1
        if each.state is HookState.DONE:
            expected = {1} if each.attempt == 1 else {1, 2}
            assert seen[number] in expected, f"{each} stands {seen[number]} times in the chat"
        else:
            assert each.error, f"{each} failed without a reason"
            assert seen[number] <= each.attempt, each
    return totals


@pytest.mark.timeout(120)
async def test_killed_gateways_do_every_delivery_once(tmp_path: Path) -> None:
    totals = await soak(tmp_path, count=30, kills=4, seed=5)
    assert totals["done"] >= 25, totals


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
async def test_killed_gateways_do_every_delivery_once_long_form(tmp_path: Path, seed: int) -> None:
    # Fewer kills than would have a turn given up that never got to say anything.
    totals = await soak(tmp_path, count=120, kills=9, seed=seed)
    assert totals["done"] >= 100, totals
