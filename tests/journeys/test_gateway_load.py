"""Many chats at once, and many messages one after the other.

The model runs in a process of its own and is slow or stands still on purpose;
the gateway is a real process whose memory is read from outside. Bounds are
orders, counts and ratios: how long a second of this machine is does not matter.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.gateway import GatewayProcess, running_gateway, unpaced
from fakes.model import Rule, Script, Step
from fakes.model_remote import RemoteModel, model_process
from fakes.telegram import FakeTelegram

pytestmark = pytest.mark.xdist_group("load")

FIRST = 10_000
"""The chat with the lowest number."""
QUICK = "quick"
KB_PER_LIVE_CHAT = 200.0
LOCAL = {"backend": "local"}
"""Where commands would run: a sandbox for each chat is another test's subject."""


class Crowd:
    """People who each say something in a chat of their own."""

    def __init__(self, telegram: FakeTelegram, size: int, number: int = 0) -> None:
        self.telegram = telegram
        first = FIRST + number * size
        self.chats = range(first, first + size)

    def speak(self, text: str) -> None:
        for chat in self.chats:
            self.telegram.say(chat, chat, f"{text} {chat}")

    async def answered(self, text: str, seconds: float) -> None:
        """Wait until each of them sees the answer to what they said."""
        await all_shown(self.telegram, {chat: f"{text} {chat}" for chat in self.chats}, seconds)


async def all_shown(telegram: FakeTelegram, wanted: dict[int, str], seconds: float) -> None:
    """Wait until each chat shows its text."""
    left = list(wanted)

    def no_more_left() -> bool:
        # One at a time from the end: what has been seen once is not looked at again.
        while left and shows(telegram, left[-1], wanted[left[-1]]):
            left.pop()
        return not left

    await telegram.until(no_more_left, seconds)


def shows(telegram: FakeTelegram, chat: int, text: str) -> bool:
    return any(seen.text == text for seen in telegram.replies(chat)[-3:])


def resident_kb(gateway: GatewayProcess) -> int:
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


async def first_answer(telegram: FakeTelegram) -> None:
    """Have everything loaded that the first turn loads."""
    telegram.say(1, 1, QUICK)
    await all_shown(telegram, {1: QUICK}, 30)


@asynccontextmanager
async def loaded(
    folder: Path, script: Script
) -> AsyncIterator[tuple[RemoteModel, FakeTelegram, GatewayProcess]]:
    """Run a gateway that has answered once, beside a model in its own process."""
    async with model_process(folder, script) as model, FakeTelegram() as telegram:
        urls = (model.base_url, telegram.base_url)
        async with running_gateway(folder, *urls, unpaced(folder), terminal=LOCAL) as gateway:
            await first_answer(telegram)
            yield model, telegram, gateway
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.log()


async def waiting_together(folder: Path, size: int, seconds: float) -> None:
    """All turns stand still in the model at the same time, and a newcomer is answered."""
    quick = Rule(contains=QUICK, steps=[Step(echo=True)])
    script = Script(rules=[quick], default=Step(echo=True, stall="before"), strict=False)
    async with loaded(folder, script) as (model, telegram, gateway):
        before = resident_kb(gateway)
        crowd = Crowd(telegram, size)
        crowd.speak("hold")
        await model.until(lambda stats: stats["at_once"] == size, seconds)
        assert resident_kb(gateway) - before < size * KB_PER_LIVE_CHAT
        telegram.say(2, 2, QUICK)
        await all_shown(telegram, {2: QUICK}, 30)
        assert (await model.stats())["at_once"] == size
        await model.release()
        await crowd.answered("hold", seconds)
        await check_once(telegram, model, crowd, size + 2)


async def check_once(
    telegram: FakeTelegram, model: RemoteModel, crowd: Crowd, requests: int
) -> None:
    stats = await model.stats()
    assert stats["requests"] == requests
    assert stats["disconnects"] == 0
    doubled = {chat for chat in crowd.chats if len(telegram.replies(chat)) != 1}
    assert not doubled


async def test_two_hundred_chats_wait_for_the_model_together(tmp_path: Path) -> None:
    await waiting_together(tmp_path, 200, 40)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_chats_wait_for_the_model_together(tmp_path: Path) -> None:
    await waiting_together(tmp_path, 1_000, 120)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_chats_with_a_slow_model_take_little_longer_than_one(
    tmp_path: Path,
) -> None:
    size, model_seconds = 1_000, 2.0
    slow = Script(default=Step(echo=True, delay=model_seconds), strict=False)
    async with loaded(tmp_path, slow) as (model, telegram, _gateway):
        crowd = Crowd(telegram, size)
        start = time.monotonic()
        crowd.speak("slow")
        await crowd.answered("slow", 240)
        took = time.monotonic() - start
        await check_once(telegram, model, crowd, size + 1)
        # One after the other they would take a thousand times as long as one.
        assert took < 20 * model_seconds


async def memory_growth(folder: Path, *, size: int, crowds: int, rounds: int) -> float:
    """Return how many KB a message leaves behind, in the second half of them.

    Crowds take turns, so that histories stay short: what long ones weigh while
    they are in use is bounded elsewhere and would look like growth here.
    """
    script = Script(default=Step(echo=True), strict=False)
    resident: list[int] = []
    async with loaded(folder, script) as (_model, telegram, gateway):
        for number in range(rounds):
            crowd = Crowd(telegram, size, number % crowds)
            crowd.speak(f"round {number}")
            await crowd.answered(f"round {number}", 120)
            resident.append(resident_kb(gateway))
    growth = sorted(later - earlier for earlier, later in pairwise(resident[rounds // 2 :]))
    # What is lost shows in every round; steps in some of them are a cache or the allocator.
    return growth[len(growth) // 4] / size


@pytest.mark.timeout(120)
async def test_two_thousand_messages_leave_no_memory_behind(tmp_path: Path) -> None:
    assert await memory_growth(tmp_path, size=150, crowds=5, rounds=14) < 2.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_twenty_thousand_messages_leave_no_memory_behind(tmp_path: Path) -> None:
    assert await memory_growth(tmp_path, size=500, crowds=10, rounds=40) < 0.5
