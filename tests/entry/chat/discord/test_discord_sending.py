"""Sending on Discord: once, within its limits, and what its refusals mean."""

import asyncio
import time
from pathlib import Path

import pytest

from fakes.discord import BOT, GENERAL, FakeDiscord
from fakes.discord_kit import discord_adapter, piece
from fakes.telegram_kit import RememberingSink, receiving
from hermes.domain.inbound import ChatKind
from hermes.domain.ports.platform import (
    NOTED,
    Button,
    FailureAction,
    HandoffThreads,
    MenuCommand,
    PlatformFailure,
    SentHistory,
)
from hermes.entry.chat.discord.manifest import PLATFORM

ANN = "701"


async def test_a_message_is_shown_edited_and_taken_away() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        private = discord.private(ANN)
        said = discord.say(private, ANN, "question")
        buttons = (
            (Button(label="Yes", data="y", style="primary"), Button(label="?", url="http://x/")),
        )
        sent = await adapter.send(
            piece(private, "**hi** @everyone", buttons=buttons, reply_to=f"{private}:{said}")
        )
        shown = discord.replies(private)[0]
        assert shown["content"] == "**hi** @everyone"
        assert shown["message_reference"]["message_id"] == said
        assert [each["style"] for each in shown["components"][0]["components"]] == [3, 5]
        assert discord.called("POST /channels")[0]["allowed_mentions"]["parse"] == []
        await adapter.edit(sent.native_id, piece(private, "bye"))
        assert (shown["content"], shown["components"]) == ("bye", [])
        await adapter.delete(piece(private).target, sent.native_id)
        await adapter.delete(piece(private).target, sent.native_id)
        assert discord.replies(private) == []


async def test_a_reply_in_another_channel_and_one_that_is_gone_are_plain_messages() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        private = discord.private(ANN)
        await adapter.send(piece(private, "one", reply_to=f"{GENERAL}:1"))
        await adapter.send(piece(private, "two", reply_to=f"{private}:12345"))
        assert discord.texts(private) == ["one", "two"]


@pytest.mark.parametrize("trouble", ["reset after", "502 after", "429", "502"])
async def test_a_repeated_send_is_shown_once(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: real(min(seconds, 0.01)))
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        private = discord.private(ANN)
        discord.fault("/messages", trouble, times=1 if trouble.startswith(("4", "r")) else 5)
        if trouble == "429":
            await adapter.send(piece(private, "one", key="k"))
        else:
            with pytest.raises(PlatformFailure) as caught:
                await adapter.send(piece(private, "one", key="k"))
            assert caught.value.action is FailureAction.UNKNOWN
        await adapter.send(piece(private, "one", key="k"))
        await adapter.send(piece(private, "one", key="another"))
        assert discord.texts(private) == ["one", "one"]


async def test_the_limit_of_a_channel_is_waited_out() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        discord.limit = (5, 0.3)
        private = discord.private(ANN)
        for number in range(7):
            await adapter.send(piece(private, str(number)))
        assert discord.texts(private) == list("0123456")


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (10003, FailureAction.DROP_THREAD),
        (10008, FailureAction.DROP_REPLY),
        (50001, FailureAction.DROP_THREAD),
        (50007, FailureAction.GIVE_UP),
        (40062, FailureAction.WAIT),
        (160002, FailureAction.DROP_REPLY),
    ],
)
async def test_refusals_of_a_send(code: int, action: FailureAction) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        discord.fault("/messages", f"code {code}")
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(piece(GENERAL, "x"))
        assert caught.value.action is action
        assert str(code) in caught.value.message


async def test_what_can_be_edited_no_more_is_sent_anew() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        for code in (10008, 30046):
            discord.fault("PATCH", f"code {code}")
            with pytest.raises(PlatformFailure) as caught:
                await adapter.edit(f"{GENERAL}:1", piece(GENERAL, "x"))
            assert caught.value.action is FailureAction.SEND_NEW
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(piece(GENERAL, "x" * 2001))
        assert caught.value.action is FailureAction.GIVE_UP


async def test_a_send_that_is_too_old_for_its_nonce_is_looked_for() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        assert isinstance(adapter, SentHistory)
        assert PLATFORM.capabilities.idempotent_seconds < 120
        private, since = discord.private(ANN), time.time()
        discord.say(private, ANN, "one")
        sent = await adapter.send(piece(private, "one", key="k"))
        assert await adapter.find_sent(piece(private, "one", key="k"), since) == sent
        assert await adapter.find_sent(piece(private, "two", key="l"), since) is None
        assert await adapter.find_sent(piece(private, "one", key="k"), since + 60) is None


async def test_files_go_out_under_their_name(tmp_path: Path) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        path = tmp_path / "plan.txt"
        path.write_bytes(b"content")
        await adapter.send(piece(GENERAL, attachment=str(path), key="k"))
        await adapter.send(piece(GENERAL, attachment=str(path), key="k"))
        shown = discord.replies(GENERAL)
        assert [each["attachments"][0]["filename"] for each in shown] == ["plan.txt"]
        number = shown[0]["attachments"][0]["id"]
        assert discord.files[number] == b"content"
        discord.fault("/messages", "code 40005")
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(piece(GENERAL, attachment=str(path)))
        assert caught.value.action is FailureAction.GIVE_UP


async def test_progress_is_one_reaction_at_a_time() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        said = discord.say(GENERAL, ANN, "do it")
        target, name = piece(GENERAL).target, f"{GENERAL}:{said}"
        await adapter.react(target, name, "👀")
        assert discord.reactions[said] == ["👀"]
        await adapter.react(target, name, "✅")
        assert discord.reactions[said] == ["✅"]
        await adapter.react(target, name, "❌")
        await adapter.react(target, "interaction:5", "👀")
        assert discord.reactions == {said: ["❌"]}


async def test_slash_commands_come_from_the_registry_and_a_refusal_costs_nothing() -> None:
    commands = [
        MenuCommand(name="new", help="Start over"),
        MenuCommand(name="reload-mcp", help="x" * 300, args="[name]"),
    ]
    async with FakeDiscord() as discord:
        async with discord_adapter(discord) as adapter:
            await adapter.publish_commands(commands)
            assert [each["name"] for each in discord.commands] == ["new", "reload_mcp"]
            assert discord.commands[1]["options"][0]["name"] == "text"
            discord.fault("/commands", "code 50001")
            await adapter.publish_commands(commands)
        async with discord_adapter(discord, command_sync_policy="off") as adapter:
            await adapter.publish_commands(commands)
        assert len(discord.called("/commands")) == 2


async def test_a_slash_command_is_deferred_and_answered_in_its_place() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        await adapter.publish_commands([MenuCommand(name="reload-mcp", help="h", args="[name]")])
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            number = discord.slash(GENERAL, ANN, "reload_mcp", "all of it")
            await discord.until(lambda: discord.interactions[number]["answer"])
            message = sink.messages[f"interaction:{number}"]
            assert message.text == "/reload-mcp all of it"
            assert discord.interactions[number]["answer"] == {"type": 5}
            context = message.reply_context
            first = await adapter.send(piece(GENERAL, "done", context=context, key="a"))
            await adapter.send(piece(GENERAL, "and more", context=context, key="b"))
            await adapter.send(piece(GENERAL, "done", context=context, key="a"))
            assert discord.texts(GENERAL) == ["done", "and more"]
            await adapter.edit(first.native_id, piece(GENERAL, "done!"))
            assert discord.texts(GENERAL) == ["done!", "and more"]
        # The next process does not write over what was said.
        async with discord_adapter(discord) as again:
            await again.send(piece(GENERAL, "third", context=context, key="c"))
        assert discord.texts(GENERAL) == ["done!", "and more", "third"]


async def test_an_answer_does_not_overtake_the_deferral_and_finds_it_after_a_restart() -> None:
    async with FakeDiscord() as discord:
        sink = RememberingSink()
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            sink.gate = asyncio.Event()
            number = discord.slash(discord.private(ANN), ANN, "status")
            await sink.until(lambda: sink.arrivals)
            private, context = discord.private(ANN), f"interaction {number} token-{number}"
            async with asyncio.TaskGroup() as group:
                group.create_task(adapter.send(piece(private, "fine", context=context, key="a")))
                await asyncio.sleep(0)
                sink.gate.set()
            assert discord.texts(private) == ["fine"]
            other = discord.slash(private, ANN, "status")
            await discord.until(lambda: discord.interactions[other]["answer"])
        context = context.replace(number, other)
        async with discord_adapter(discord) as again:
            await again.send(piece(private, "late", context=context, key="b"))
            discord.interactions.clear()
            await again.send(piece(private, "too late", context=context, key="c"))
        assert discord.texts(private) == ["fine", "late", "too late"]


async def test_who_may_not_use_a_slash_command_is_told_so_alone() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        sink.refused = {"/status"}
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            number = discord.slash(GENERAL, ANN, "status")
            await discord.until(lambda: discord.interactions[number]["answer"])
        told = discord.interactions[number]["answer"]
        assert (told["type"], told["data"]["flags"]) == (4, 64)


async def test_a_press_is_let_go_within_three_seconds() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            sent = await adapter.send(
                piece(GENERAL, "May I?", buttons=((Button(label="Yes", data="a:y"),),))
            )
            message = sent.native_id.partition(":")[2]
            for sink.answer, shown in ((NOTED, 6), ("You are not allowed to answer this.", 4)):
                number = discord.press(GENERAL, ANN, message, "a:y")
                await discord.until(lambda: discord.interactions[number]["answer"])  # noqa: B023
                assert discord.interactions[number]["answer"]["type"] == shown
        press = sink.presses[0]
        assert (press.data, press.message_id, press.chat.id) == ("a:y", sent.native_id, GENERAL)
        assert press.sender.id == ANN


async def test_a_press_does_not_wait_for_a_history() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            sink.gate = asyncio.Event()
            discord.say(discord.private(ANN), ANN, "slow disk")
            await sink.until(lambda: sink.arrivals)
            sent = await adapter.send(piece(GENERAL, "May I?"))
            number = discord.press(GENERAL, ANN, sent.native_id.partition(":")[2], "x")
            await discord.until(lambda: discord.interactions[number]["answer"])
            sink.gate.set()


async def test_a_handoff_gets_a_thread_of_its_own() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        assert isinstance(adapter, HandoffThreads)
        discord.channels["615"] = {**discord.channels[GENERAL], "id": "615", "type": 15}
        for channel in (GENERAL, "615"):
            target = await adapter.create_handoff_thread(piece(channel).target, "Hermes — Rome")
            assert target.thread_id is not None
            assert discord.channels[target.thread_id]["name"] == "Hermes — Rome"
            assert discord.channels[target.thread_id]["parent_id"] == channel
            assert target.chat_kind is ChatKind.THREAD
        private = piece(discord.private(ANN)).target
        assert await adapter.create_handoff_thread(private, "Hermes") == private
        assert adapter.account == BOT
