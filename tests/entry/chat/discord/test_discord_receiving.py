"""Receiving on Discord: in order, without gaps over restarts, each message once."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.discord import BOT, GENERAL, GUILD, FakeDiscord
from fakes.discord_kit import QuickClock, discord_adapter, piece
from fakes.telegram_kit import RememberingSink, receiving
from hermes.domain.errors import MissingExtra, StoreError
from hermes.domain.inbound import ChatKind
from hermes.domain.ports.platform import FailureAction, PlatformFailure

ANN, BOB = "701", "702"
HI = f"<@{BOT}> hi"


async def test_messages_of_every_kind_of_place_arrive_with_their_place() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord, auto_thread=False) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            private = discord.private(ANN)
            discord.roles[ANN] = ["42"]
            discord.say(private, ANN, "in private")
            discord.say(GENERAL, ANN, f"<@{BOT}> in the channel, <@{ANN}>")
            discord.say(GENERAL, ANN, "not for us")
            discord.thread("9001", GENERAL, BOT)
            discord.say("9001", ANN, "in our thread, without a mention")
            await sink.until(lambda: len(sink.texts) == 3)
            said = {message.text[:10]: message for message in sink.messages.values()}
            one, two, three = (said[text] for text in ("in private", "in the cha", "in our thr"))
        assert (one.chat.kind, one.chat.id, one.text) == (ChatKind.PRIVATE, private, "in private")
        assert (two.chat.kind, two.chat.id, two.chat.scope_id) == (ChatKind.GROUP, GENERAL, GUILD)
        assert two.text == "in the channel, @user701"
        assert two.sender.roles == ("42",)
        assert (three.chat.kind, three.chat.id, three.thread_id) == (
            *(ChatKind.THREAD, GENERAL, "9001"),
        )


async def test_what_was_said_while_nobody_listened_is_read_from_the_history() -> None:
    async with FakeDiscord() as discord:
        sink = RememberingSink()
        private = discord.private(ANN)
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(private, ANN, "one")
            discord.say(GENERAL, ANN, HI)
            await sink.until(lambda: sink.saved and len(sink.saved["last"]) >= 2)
        discord.sessions.clear()
        for number in range(120):
            discord.say(private, ANN, f"missed {number}")
        discord.roles[BOB] = ["42"]
        discord.say(GENERAL, BOB, f"<@{BOT}> missed, too")
        discord.say(discord.private(BOB), BOB, "the first words of Bob")
        async with (
            discord_adapter(discord, allowed_users=frozenset({BOB})) as adapter,
            receiving(adapter, sink),
        ):
            await sink.until(lambda: len(sink.messages) == 124)
            discord.say(private, ANN, "live")
            await sink.until(lambda: "live" in sink.texts)
        of_ann = [m.text for m in sink.messages.values() if m.chat.id == private]
        assert of_ann == ["one", *(f"missed {n}" for n in range(120)), "live"]
        assert len(sink.arrivals) == len(set(sink.arrivals))
        missed = next(m for m in sink.messages.values() if m.text == "missed, too")
        assert missed.sender.roles == ("42",)


async def test_a_session_is_resumed_by_the_next_process() -> None:
    async with FakeDiscord() as discord:
        sink = RememberingSink()
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(discord.private(ANN), ANN, "one")
            await sink.until(lambda: sink.saved and sink.saved["last"])
        # Nobody could know of this private chat.
        discord.say(discord.private(BOB), BOB, "two")
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await sink.until(lambda: len(sink.texts) == 2)
        assert len(discord.identified) == 1
        assert len(discord.resumed) == 1


async def test_a_message_is_behind_the_cursor_only_when_the_inbox_has_it() -> None:
    async with FakeDiscord() as discord:
        sink, private = RememberingSink(), discord.private(ANN)
        sink.refusals = 1
        async with discord_adapter(discord) as adapter:
            task = asyncio.ensure_future(adapter.receive(sink))
            await discord.until(lambda: discord.connected)
            await sink.until(lambda: sink.saved)
            discord.say(private, ANN, "one")
            with pytest.raises(StoreError):
                await task
        assert sink.saved["last"] == {}
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await sink.until(lambda: sink.texts == ["one"])


@pytest.mark.parametrize("trouble", ["op7", "op9 true", "op9 false", "4000", "4009", "1006"])
async def test_lost_connections_lose_nothing_and_repeat_nothing(trouble: str) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink, private = RememberingSink(), discord.private(ANN)
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            first = discord.say(private, ANN, "one")
            await sink.until(lambda: sink.texts == ["one"])
            if trouble.startswith("op"):
                await discord.order(int(trouble[2]), trouble.endswith("true"))
            elif trouble == "1006":
                session = discord.connected
                assert session is not None
                assert session.socket is not None
                session.socket._req.transport.abort()  # type: ignore[union-attr]
            else:
                await discord.hang_up(int(trouble))
            discord.say(private, ANN, "two")
            await sink.until(lambda: sink.texts == ["one", "two"])
            discord.redeliver(private, first)
            discord.say(private, ANN, "three")
            await sink.until(lambda: sink.texts == ["one", "two", "three"])
        assert len(discord.resumed) == (trouble != "op9 false")
        assert len(sink.arrivals) == 3


async def test_a_session_that_cannot_be_resumed_is_begun_again() -> None:
    async with FakeDiscord() as discord:
        sink, private = RememberingSink(), discord.private(ANN)
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(private, ANN, "one")
            await sink.until(lambda: sink.saved and sink.saved["last"])
        discord.refuse_resume = 4009
        discord.say(private, ANN, "two")
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await sink.until(lambda: sink.texts == ["one", "two"])
        assert len(discord.identified) == 2


async def test_an_invalid_session_is_followed_by_a_pause_also_at_the_start() -> None:
    class Noting(QuickClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append((seconds, len(discord.identified)))
            await super().sleep(seconds)

    pauses = list[tuple[float, int]]()
    async with FakeDiscord() as discord:
        sink, clock = RememberingSink(), Noting()
        async with discord_adapter(discord, clock) as adapter, receiving(adapter, sink):
            await sink.until(lambda: sink.saved)
        discord.sessions.clear()
        pauses.clear()
        async with discord_adapter(discord, clock) as adapter, receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
    ((seconds, before),) = pauses
    assert 1.0 <= seconds <= 5.0
    assert (before, len(discord.identified)) == (1, 2)


async def test_no_session_is_begun_when_discord_allows_none() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        discord.starts_left, sink = 0, RememberingSink()
        async with receiving(adapter, sink):
            await sink.until(lambda: sink.failures)
            ((failure, pause), *_) = sink.failures
            assert (failure.action, pause) == (FailureAction.WAIT, 14_400.0)
            assert discord.identified == []
            discord.starts_left = 5
            await discord.until(lambda: discord.connected)


async def test_what_was_said_before_a_connection_was_missed() -> None:
    async with FakeDiscord() as discord:
        sink, private = RememberingSink(), discord.private(ANN)
        for forgotten in (False, True):
            async with discord_adapter(discord) as adapter, receiving(adapter, sink):
                await discord.until(lambda: discord.connected)
                if forgotten:  # the replay, and then what may be missing beside it
                    pages = f"GET /channels/{private}/messages"
                    await discord.until(lambda: len(discord.called(pages)) == 3)  # noqa: B023
                discord.say(private, ANN, f"live {forgotten}")
                await sink.until(lambda: f"live {forgotten}" in sink.texts)  # noqa: B023
                await sink.until(lambda: sink.saved and sink.saved["last"])
            if forgotten:
                discord.sessions.clear()
            discord.say(private, ANN, f"missed {forgotten}")
        async with discord_adapter(discord) as adapter, receiving(adapter, sink):
            await sink.until(lambda: len(sink.texts) == 4)
            discord.say(private, ANN, "live again")
            discord.say(private, ANN, "live at once")
            await sink.until(lambda: len(sink.texts) == 6)
    assert {each.text: each.missed for each in sink.messages.values()} == {
        "live False": False,
        "missed False": True,
        "live True": False,
        "missed True": True,
        "live again": False,
        "live at once": False,
    }


async def test_what_is_said_together_in_a_chat_that_nobody_knew_is_live() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink, private = RememberingSink(), discord.private(ANN)
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            for number in range(3):
                discord.say(private, ANN, f"part {number}")
            await sink.until(lambda: len(sink.texts) == 3)
        assert not any(each.missed for each in sink.messages.values())


async def test_a_silent_connection_is_given_up() -> None:
    async with FakeDiscord(beat=0.2) as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            session = discord.connected
            assert session is not None
            beats = adapter._api._client.ws._keep_alive
            assert beats.heartbeat_timeout == 5.0
            beats.heartbeat_timeout, beats.interval = 0.05, 0.05
            discord.mute = True
            await discord.until(lambda: discord.resumed)
            discord.mute = False
            discord.say(discord.private(ANN), ANN, "still there")
            await sink.until(lambda: sink.texts == ["still there"])


@pytest.mark.parametrize(
    ("code", "hint"), [(4004, "DISCORD_BOT_TOKEN"), (4014, "Message Content Intent")]
)
async def test_what_cannot_work_says_what_to_do(code: int, hint: str) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        discord.refuse_identify = code
        with pytest.raises(PlatformFailure) as caught:
            await adapter.receive(RememberingSink())
        assert caught.value.action is FailureAction.FATAL
        assert hint in caught.value.hint


async def test_a_wrong_token_is_fatal_and_a_dead_server_is_not() -> None:
    async with FakeDiscord() as discord:
        with pytest.raises(PlatformFailure) as caught:
            async with discord_adapter(discord, token="wrong"):
                pass
        assert caught.value.action is FailureAction.FATAL
    with pytest.raises(PlatformFailure) as caught:
        async with discord_adapter(discord):
            pass
    assert caught.value.action is FailureAction.RETRY


async def test_an_outage_is_waited_out() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink, private = RememberingSink(), discord.private(ANN)
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(private, ANN, "w")
            await sink.until(lambda: sink.texts == ["w"])
            port = discord.port
            await discord.stop()
            discord.messages[private].append(discord._message(private, discord.person(ANN), "x"))
            await sink.until(lambda: len(sink.failures) > 2)
            discord.sessions.clear()
            await discord.start(port)
            discord.say(private, ANN, "y")
            await sink.until(lambda: sink.texts == ["w", "x", "y"])


@pytest.mark.parametrize(
    ("text", "more", "settings", "heard"),
    [
        (HI, {}, {}, True),
        ("hi", {}, {}, False),
        ("hi", {}, {"require_mention": False}, True),
        ("hi", {}, {"free_response_chats": frozenset({GENERAL})}, True),
        (HI, {}, {"ignored_chats": frozenset({GENERAL})}, False),
        (HI, {}, {"allowed_chats": frozenset({"1"})}, False),
        ("<@&777> hi", {"mention_roles": ["777"]}, {}, True),
        ("<@&778> hi", {"mention_roles": ["778"]}, {}, False),
        ("@everyone hi", {"mention_everyone": True}, {}, False),
        (HI, {"type": 7}, {}, False),
        ("/status", {}, {}, True),
    ],
)
async def test_mention_rules(
    text: str, more: dict[str, Any], settings: dict[str, Any], heard: bool
) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord, **settings) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(GENERAL, ANN, text, **more)
            discord.say(discord.private(BOB), BOB, "end")
            await sink.until(lambda: "end" in sink.texts)
        assert (len(sink.texts) == 2) is heard


async def test_a_mention_opens_a_thread_and_the_conversation_goes_on_there() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            said = discord.say(GENERAL, ANN, f"<@{BOT}> plan a trip\nto Rome")
            await sink.until(lambda: sink.texts)
            message = next(iter(sink.messages.values()))
            assert (message.chat.id, message.thread_id) == (GENERAL, said)
            assert said not in discord.channels
            answer = piece(GENERAL, "gladly", thread_id=said, context=message.reply_context)
            await adapter.typing(answer.target)
            assert len(discord.called(f"{said}/typing")) == 1
            sent = await adapter.send(answer)
            assert sent.native_id.startswith(f"{said}:")
            assert discord.channels[said]["name"] == "plan a trip to Rome"
            assert discord.texts(said) == ["gladly"]
            discord.say(said, BOB, "and I come along")
            await sink.until(lambda: len(sink.texts) == 2)
            follow_up = list(sink.messages.values())[1]
            assert (follow_up.chat.id, follow_up.thread_id) == (GENERAL, said)
            assert follow_up.chat.topic == message.chat.topic == "plan a trip to Rome"
            assert follow_up.chat.kind is message.chat.kind is ChatKind.THREAD
        # After a restart the thread is there already.
        async with discord_adapter(discord) as again:
            await again.send(piece(GENERAL, "more", thread_id=said, context=message.reply_context))
        assert discord.texts(said) == ["gladly", "more"]


async def test_what_was_said_before_a_mention_can_be_told_along() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord, history_backfill=3) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            for text in ("too long ago", "one", HI, "two"):
                discord.say(GENERAL, ANN, text)
            said = discord.say(GENERAL, BOB, f"<@{BOT}> what do you think?")
            discord.say(GENERAL, ANN, "later")
            await sink.until(lambda: len(sink.texts) == 2)
        asked = sink.messages[f"{GENERAL}:{said}"]
        assert await adapter.said_before(asked) == ["user701: one", "user701: two"]
        await adapter.send(piece(GENERAL, "my own word"))
        discord.say(GENERAL, ANN, "three")
        again = replace(asked, native_id=f"{GENERAL}:{discord.say(GENERAL, BOB, 'so?')}")
        assert await adapter.said_before(again) == ["user701: three"]
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        assert await adapter.said_before(asked) == []
        assert not discord.called("/messages")


async def test_without_permission_for_threads_the_channel_is_used() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        discord.fault("/threads", "code 50013")
        said = discord.say(GENERAL, ANN, HI)
        answer = piece(GENERAL, "x", thread_id=said, context="thread x")
        for call in (adapter.typing(answer.target), adapter.send(answer)):
            with pytest.raises(PlatformFailure) as caught:
                await call
            assert caught.value.action is FailureAction.DROP_THREAD
        await adapter.typing(answer.target)
        assert len(discord.called("/threads")) == 1, "one refusal is enough"
        assert len(discord.called(f"{GENERAL}/typing")) == 1


async def test_own_messages_and_odd_events_are_left_out() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink, private = RememberingSink(), discord.private(ANN)
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            await adapter.send(piece(private, "from us"))
            discord.dispatch("MESSAGE_CREATE", {"id": 7})
            discord.dispatch("MESSAGE_CREATE", ["odd"])
            discord.dispatch("GUILD_CREATE", {"id": "1", "channels": None})
            discord.dispatch("SOMETHING_NEW", {"a": 1})
            discord.dispatch("INTERACTION_CREATE", {"id": "7"})
            discord.person("800", "Other", bot=True)
            discord.say(GENERAL, "800", f"<@{BOT}> a bot speaks")
            discord.say(private, ANN, "from Ann", sticker_items=[{"name": "Wave"}])
            snapshot = {"message": {"content": "older news"}}
            discord.say(private, ANN, "", message_snapshots=[snapshot])
            await sink.until(lambda: len(sink.texts) == 3)
        ann, forwarded, bot = sorted(sink.messages.values(), key=lambda m: m.sender.id)
        assert bot.sender.is_bot
        assert bot.mentioned
        assert ann.text == "from Ann\n[Sticker Wave]"
        assert forwarded.text == "[Forwarded] older news"


async def test_replies_say_what_they_answer() -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink = RememberingSink()
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            sent = await adapter.send(piece(GENERAL, "news"))
            channel, _, number = sent.native_id.partition(":")
            earlier = discord.find(channel, number)
            reference = {"type": 0, "message_id": number, "channel_id": channel}
            reply = {"type": 19, "message_reference": reference, "referenced_message": earlier}
            discord.say(GENERAL, ANN, "thanks", **reply)
            await sink.until(lambda: sink.texts == ["thanks"])
            message = next(iter(sink.messages.values()))
        assert message.reply_to is not None
        assert message.reply_to.own
        assert message.reply_to.text == "news"
        assert message.reply_to.native_id == sent.native_id
        assert message.thread_id is None


async def test_files_come_with_messages(tmp_path: Any) -> None:
    async with FakeDiscord() as discord, discord_adapter(discord) as adapter:
        sink, private = RememberingSink(), discord.private(ANN)
        picture = discord.attach("a.png", b"picture", "image/png")
        voice = discord.attach("voice.ogg", b"sound", "audio/ogg")
        async with receiving(adapter, sink):
            await discord.until(lambda: discord.connected)
            discord.say(private, ANN, "look", attachments=[picture])
            discord.say(private, ANN, "", attachments=[voice], flags=8192)
            await sink.until(lambda: len(sink.texts) == 2)
        one, two = (message.attachments[0] for message in sink.messages.values())
        assert (one.kind, one.name, one.media_type) == ("image", "a.png", "image/png")
        assert two.kind == "voice"
        assert await adapter.fetch(one.remote, tmp_path / "a") == 7
        large = one.remote.replace("7 ", "99000000 ", 1)
        with pytest.raises(OSError, match="larger than 33 MB"):
            await adapter.fetch(large, tmp_path / "c")


async def test_without_the_library_the_install_command_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "discord", None)
    async with FakeDiscord() as discord:
        with pytest.raises(MissingExtra) as caught:
            async with discord_adapter(discord, QuickClock()):
                pass
    assert "pip install 'hermes-gateway[discord]'" in caught.value.hint
