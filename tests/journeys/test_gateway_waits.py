"""Nobody waits for anybody: slow files and floods of commands are their chat's own affair."""

import time
from pathlib import Path

import pytest

from fakes.gateway import running_gateway
from fakes.model import FakeModelServer, Script, Step
from fakes.telegram import FakeTelegram

ECHO = Script(default=Step(echo=True))
BOB, SLOW = 6, 20.0


async def asked_and_answered(telegram: FakeTelegram, text: str) -> float:
    """Have Bob say something; return how long he waited for the answer."""
    begun = time.monotonic()
    telegram.say(BOB, BOB, text)
    await answered(telegram, text)
    return time.monotonic() - begun


async def answered(telegram: FakeTelegram, text: str, chat: int = BOB, count: int = 1) -> None:
    def shown() -> bool:
        texts = [seen.text for seen in telegram.replies(chat)]
        return sum(text in each and "▉" not in each for each in texts) >= count

    await telegram.until(shown, SLOW * 0.75)


@pytest.mark.parametrize("method", ["getFile", "file"])
async def test_slow_files_of_some_hold_up_nobody_else(tmp_path: Path, method: str) -> None:
    async with (
        FakeModelServer(ECHO) as model,
        FakeTelegram() as telegram,
        running_gateway(tmp_path, model.base_url, telegram.base_url),
    ):
        await asked_and_answered(telegram, "awake?")
        telegram.fault("slow", method, seconds=SLOW, times=6)
        for chat in range(50, 56):
            telegram.world.say_file(chat, chat, "document", b"x", name="slow.txt")
        await telegram.until(lambda: len(telegram.called(method)) == 6)
        assert await asked_and_answered(telegram, "and now?") < SLOW / 2
        telegram.world.say_file(BOB, BOB, "document", b"x", name="quick.txt", caption="this one")
        await answered(telegram, "this one")


async def test_twenty_commands_of_one_hold_up_neither_others_nor_the_text_behind_them(
    tmp_path: Path,
) -> None:
    async with (
        FakeModelServer(ECHO) as model,
        FakeTelegram() as telegram,
        running_gateway(tmp_path, model.base_url, telegram.base_url),
    ):
        await asked_and_answered(telegram, "awake?")
        ann = 5
        telegram.fault("slow", "sendMessage", chat_id=ann, seconds=SLOW)
        for _ in range(20):
            telegram.say(ann, ann, "/help")
        telegram.say(ann, ann, "/new")
        telegram.say(ann, ann, "a text behind them")
        assert await asked_and_answered(telegram, "and now?") < SLOW / 2
        await telegram.until(
            lambda: any("a text behind them" in str(each.body) for each in model.requests)
        )


async def test_a_text_after_new_belongs_to_the_new_session_also_after_a_kill(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            await asked_and_answered(telegram, "the first")
            telegram.say(BOB, BOB, "/new")
            telegram.say(BOB, BOB, "the second")
            await telegram.until(lambda: not telegram.world.updates)
            await gateway.kill()
            await gateway.start()
            await answered(telegram, "the second")
        said = [
            str(message["content"])
            for message in model.requests[-1].body["messages"]
            if message["role"] == "user"
        ]
        assert len(said) == 1
        assert said[0].startswith("the second")
