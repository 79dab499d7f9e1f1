"""The whole gateway on loopback: Slack on one side, a model on the other."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.command import Hermes
from fakes.gateway import GatewayProcess
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.slack import BOT, FakeSlack, Posted
from fakes.slack_kit import slack_platform

MARK = re.compile(r"mark-(\d+)-")


@asynccontextmanager
async def gateway_on(
    folder: Path, model: FakeModelServer, slack: FakeSlack, **more: Any
) -> AsyncIterator[GatewayProcess]:
    titles = {"title_generation": {"enabled": False}}
    config = {"platforms": {"slack": slack_platform(slack)}, "auxiliary": titles} | more
    gateway = GatewayProcess(Hermes(folder, model.base_url, config))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()


async def shown(slack: FakeSlack, channel: str, text: str) -> Posted:
    """Wait for a finished message with this text."""

    def found() -> list[Posted]:
        here = slack.replies(channel)
        return [each for each in here if text in each.text and "▉" not in each.text]

    await slack.until(found, 30)
    return found()[0]


async def test_a_day_in_a_workspace(tmp_path: Path) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf tmp"})])
    script = Script(
        rules=[
            Rule(contains="clean up", steps=[wipe, Step(text="All **clean**.")]),
        ],
        default=Step(echo=True),
    )
    more = {
        "terminal": {"backend": "local"},
    }
    async with (
        FakeModelServer(script) as model,
        FakeSlack() as slack,
        gateway_on(tmp_path, model, slack, **more) as gateway,
    ):
        await slack.until(lambda: slack.sockets, 30)
        # In private, at the top.
        slack.say("D1", "U1", "hello &amp; &lt;b&gt;")
        private = await shown(slack, "D1", "hello &amp; &lt;b&gt;")
        assert private.thread_ts == ""
        # In a channel, in a thread, which goes on without a mention.
        asked = slack.say("C1", "U1", f"<@{BOT}> clean up")
        prompt = await shown(slack, "C1", "Approval needed")
        assert prompt.thread_ts == asked
        assert "`!approve" in prompt.text
        slack.press(prompt, "Allow once", "U2")
        await slack.until(lambda: slack.ephemerals)
        assert slack.ephemerals[0]["user"] == "U2"
        slack.press(prompt, "Allow once")
        done = await shown(slack, "C1", "All *clean*.")
        assert done.thread_ts == asked
        await slack.until(lambda: prompt.buttons == [])
        slack.say("C1", "U1", "and then?", thread_ts=asked)
        assert (await shown(slack, "C1", "and then?")).thread_ts == asked
        # Commands both ways.
        slack.slash("D1", "U1", "/status")
        await shown(slack, "D1", "tokens")
        # Where the app is no member, whoever used a command is answered in private.
        slack.closed.add("C5")
        slack.slash("C5", "U1", "/version")
        await shown(slack, "U1", "ermes")
        slack.say("C1", "U1", "!whoami", thread_ts=asked)
        assert (await shown(slack, "C1", "U1 (slack)")).thread_ts == asked
        counted = Counter(slack.texts("D1"))
        assert max(counted.values()) == 1
        assert await gateway.stop() == 0


@pytest.mark.timeout(150)
async def test_killed_gateways_answer_every_message_once_and_in_order(tmp_path: Path) -> None:
    await soak(tmp_path, count=24, kills=(True, False, True, True), seed=5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_gateways_answer_every_message_once_long_form(
    tmp_path: Path, seed: int
) -> None:
    await soak(tmp_path, count=120, kills=(True, True, False, True, True) * 5, seed=seed)


async def soak(tmp_path: Path, *, count: int, kills: Sequence[bool], seed: int) -> None:
    chance = random.Random(seed)
    script = Script(default=Step(echo=True, interval=0.01, piece_chars=3))
    async with FakeModelServer(script) as model, FakeSlack() as slack:
        display = {"display": {"busy_input_mode": "queue"}}
        async with gateway_on(tmp_path, model, slack, **display) as gateway:
            slack.rates = {"429": 0.02, "html": 0.03, "reset_before": 0.03, "reset_after": 0.05}

            async def talk() -> None:
                for number in range(count):
                    channel = f"D{number % 4}"
                    slack.say(channel, f"U{number % 4}", f"mark-{number}-")
                    if chance.random() < 0.2 and slack.unacked:
                        slack.redeliver(next(iter(slack.unacked)))
                    await asyncio.sleep(chance.uniform(0, 0.4))

            async def trouble() -> None:
                for kill in kills:
                    await slack.until(lambda: slack.sockets, 30)
                    await asyncio.sleep(chance.uniform(0.3, 1.3))
                    if not kill:
                        slack.disconnect("refresh_requested")
                        continue
                    await gateway.kill()
                    await gateway.start()

            async with asyncio.TaskGroup() as group:
                group.create_task(talk())
                group.create_task(trouble())
            await slack.until(lambda: len(_marks(slack)) >= count, 90 + count)
            await gateway.stop()
    assert sorted(_marks(slack)) == list(range(count)), gateway.log()
    for channel in [f"D{number}" for number in range(4)]:
        order = [int(mark) for text in slack.texts(channel) for mark in MARK.findall(text)]
        assert order == sorted(order)


def _marks(slack: FakeSlack) -> list[int]:
    texts = [text for channel in list(slack.messages) for text in slack.texts(channel)]
    return [int(mark) for text in texts for mark in MARK.findall(text)]
