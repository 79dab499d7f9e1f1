"""What leaves for a chat: never lost, never twice, and told if it cannot be delivered."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from fakes.gateway import GatewayProcess, gateway_config, running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram

ANN, BEN, CLEO, GROUP = 777, 778, 779, -1001
ECHO = Script(default=Step(echo=True))
DAY = 86_400.0


def said(telegram: FakeTelegram, chat: int) -> list[str]:
    return [seen.text for seen in telegram.replies(chat)]


async def until_said(telegram: FakeTelegram, chat: int, text: str, seconds: float = 40.0) -> None:
    await telegram.until(lambda: any(text in each for each in said(telegram, chat)), seconds)


def looks(telegram: FakeTelegram, chat: int) -> list[str]:
    """Return everything that could ever be read in a chat."""
    return [look for seen in telegram.replies(chat) for look in (*seen.history, seen.text)]


async def until_recorded(gateway: GatewayProcess, state: str) -> None:
    """Wait until a piece is in this state."""
    async with asyncio.timeout(30):
        while True:
            with sqlite3.connect(gateway.hermes.home / "state.db") as db:
                if db.execute("SELECT 1 FROM outbox WHERE state = ?", (state,)).fetchone():
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["reset_before", "reset_after", "504"])
async def test_nothing_is_lost_when_sends_are_cut_off_again_and_again(
    tmp_path: Path, kind: str
) -> None:
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf tmp"})])
    script = Script(rules=[Rule(contains="clean", steps=[wipe])], default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        for chat in (ANN, BEN, CLEO):
            telegram.fault(kind, "sendMessage", chat_id=chat, times=3)
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, terminal={"backend": "local"}
        ) as gateway:
            telegram.say(ANN, ANN, "hello")
            telegram.say(BEN, BEN, "/whoami")
            telegram.say(CLEO, CLEO, "clean up")
            await until_said(telegram, ANN, "hello")
            await until_said(telegram, BEN, str(BEN))
            await until_said(telegram, CLEO, "rm -rf tmp")
            assert await gateway.stop() == 0
        for chat in (ANN, BEN, CLEO):
            assert len([text for text in said(telegram, chat) if text != "…"]) == 1


async def test_what_is_unsent_is_counted_listed_and_sent_after_a_restart(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.fault("502", "sendMessage", times=10_000)
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "hello")
            telegram.say(BEN, BEN, "/whoami")
            chats = {ANN, BEN}
            calls = telegram.called
            await telegram.until(
                lambda: chats <= {int(c.params["chat_id"]) for c in calls("sendMessage")}, 30
            )
            hermes = gateway.hermes
            facts = json.loads((await hermes.run("status", "--json")).out)
            assert facts["outbox"]["telegram"]["unsent"] == 2
            assert "Unsent on telegram: 2 (oldest from" in (await hermes.run("status")).out
            listed = (await hermes.run("gateway", "outbox")).out.splitlines()
            assert len(listed) == 2
            assert any(f"chat {ANN}, reply" in line and "hello" in line for line in listed)
            await gateway.kill()
            telegram.faults.heal()
            await gateway.start()
            await until_said(telegram, ANN, "hello")
            await until_said(telegram, BEN, str(BEN))
            assert await gateway.stop() == 0
            assert (
                await hermes.run("gateway", "outbox")
            ).out.strip() == "Everything has been sent."
        assert [len(said(telegram, chat)) for chat in (ANN, BEN)] == [1, 1]


async def test_what_is_too_old_is_not_sent_but_told(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.fault("502", "sendMessage", times=10_000)
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "hello")
            await telegram.until(lambda: telegram.called("sendMessage"), 30)
            await gateway.kill()
            with sqlite3.connect(gateway.hermes.home / "state.db") as db:
                db.execute("UPDATE outbox SET created_at = created_at - ?", (3 * DAY,))
            telegram.faults.heal()
            await gateway.start()
            await until_said(telegram, ANN, "An answer from 3 days ago could not be delivered.")
            await until_recorded(gateway, "failed")
            listed = (await gateway.hermes.run("gateway", "outbox")).out
            assert "given up" in listed
            assert "too old" in listed
            assert await gateway.stop() == 0
            assert "too old" in gateway.log()
        assert len(said(telegram, ANN)) == 1


async def test_six_people_in_a_group_are_answered_at_once_in_order(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.chat(GROUP, "supergroup")
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "warm up")
            await until_said(telegram, ANN, "warm up")
            for number in range(6):
                telegram.say(GROUP, 900 + number, f"@hermes_bot question {number}")
            asked_at = telegram.visible(GROUP)[-1].at
            await telegram.until(lambda: len(said(telegram, GROUP)) == 6, 30)
            answers = telegram.replies(GROUP)
        assert [seen.text.split()[-1] for seen in answers] == [str(n) for n in range(6)]
        assert not any(seen.history for seen in answers), "each is one plain send"
        print(f"the last of six was answered after {answers[-1].at - asked_at:.1f} s")  # noqa: T201


async def test_the_mark_that_says_done_comes_after_the_answer(tmp_path: Path) -> None:
    platform = gateway_config("")["platforms"]["telegram"]
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.fault("502", "sendMessage", times=2)
        platform["extra"] |= {"base_url": telegram.base_url, "reactions": True}
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, platforms={"telegram": platform}
        ):
            asked = telegram.say(ANN, ANN, "hello")
            message = telegram.world.chats[ANN].messages[asked]
            await telegram.until(lambda: message.reactions == ["👍"], 30)
        sent = [call.at for call in telegram.called("sendMessage") if call.outcome == "ok"]
        done = [c.at for c in telegram.called("setMessageReaction") if "👍" in str(c.params)]
        assert len(sent) == len(done) == 1
        assert sent < done


async def test_a_preview_starts_with_text_and_no_edit_is_identical(tmp_path: Path) -> None:
    slow = Step(text="one two three four five six seven", interval=0.25)
    async with FakeModelServer(Script(default=slow)) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "hello")
            await telegram.until(lambda: said(telegram, ANN) == [slow.text], 30)
        read = looks(telegram, ANN)
        assert len(read) > 2
        assert all(look.startswith("one") for look in read)
        assert not [c for c in telegram.calls if "not modified" in c.outcome]


async def test_a_lost_send_in_a_busy_group_holds_up_nobody(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.chat(GROUP, "supergroup")
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.fault("reset_before", "sendMessage", chat_id=GROUP)
            telegram.say(GROUP, ANN, "@hermes_bot hello")
            await telegram.until(lambda: telegram.called("sendMessage"), 30)
            for number in range(40):
                telegram.say(GROUP, BEN, f"chatter {number}")
            telegram.say(GROUP, CLEO, "@hermes_bot and I")
            await until_said(telegram, GROUP, "and I", 20)
        assert sorted(said(telegram, GROUP)) == ["and I", "hello"]
        (edit,) = telegram.called("editMessageText")
        assert edit.outcome == "ok", "what others said was not tried"


async def test_a_command_is_answered_before_the_message_after_it(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            for text in ("/status", "/whoami", "/title Holiday", "/new Work", "hello in work"):
                telegram.say(ANN, ANN, text)
            await until_said(telegram, ANN, "hello in work")
        answers = said(telegram, ANN)
    assert len(answers) == 5
    assert "New conversation" in answers[3]
    assert answers[4] == "hello in work"


async def test_where_a_message_was_marked_as_seen_the_last_mark_follows(tmp_path: Path) -> None:
    platform = gateway_config("")["platforms"]["telegram"]
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        telegram.chat(GROUP, "supergroup")
        platform["extra"] |= {"base_url": telegram.base_url, "reactions": True}
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, platforms={"telegram": platform}
        ):
            asked = [telegram.say(GROUP, 900 + n, f"@hermes_bot question {n}") for n in range(4)]
            await telegram.until(lambda: len(said(telegram, GROUP)) == 4, 30)
            messages = [telegram.world.chats[GROUP].messages[each] for each in asked]
            await telegram.until(
                lambda: (
                    any(each.reactions == ["👍"] for each in messages)
                    and not any(each.reactions == ["👀"] for each in messages)
                ),
                60,
            )
        marked = {str(c.params["message_id"]) for c in telegram.called("setMessageReaction")}
        done = {
            str(c.params["message_id"])
            for c in telegram.called("setMessageReaction")
            if "👍" in str(c.params)
        }
        assert marked == done
