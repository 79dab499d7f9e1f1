"""Receiving: nothing lost, nothing confirmed too early, nothing deaf."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.telegram import FakeTelegram
from fakes.telegram_kit import RememberingSink, adapter_for, outgoing, receiving
from hermes.domain.errors import StoreError
from hermes.domain.ports.platform import Button, FailureAction, PlatformFailure
from hermes.testing import FakeClock


async def test_an_update_is_confirmed_only_after_the_inbox_has_it(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        sink.gate = asyncio.Event()
        telegram.say(5, 5, "one")
        async with receiving(adapter, sink):
            await sink.until(lambda: sink.arrivals)
            assert len(telegram.world.updates) == 1
            assert not sink.saved
            sink.gate.set()
            await telegram.until(lambda: not telegram.world.updates)
            assert sink.texts == ["one"]
            assert sink.saved["offset"] == 1001


async def test_a_crash_before_the_confirmation_brings_the_update_again_and_once(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram:
        sink = RememberingSink()
        sink.gate = asyncio.Event()
        telegram.say(5, 5, "one")
        async with adapter_for(telegram, tmp_path) as adapter, receiving(adapter, sink):
            await sink.until(lambda: sink.arrivals)
        sink.gate.set()
        async with adapter_for(telegram, tmp_path) as adapter, receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert sink.arrivals == ["5:1", "5:1"]
        assert sink.texts == ["one"]


async def test_an_inbox_that_fails_stops_receiving_and_the_batch_comes_again(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        sink.refusals = 1
        telegram.say(5, 5, "one")
        telegram.say(6, 6, "two")
        with pytest.raises(StoreError):
            await adapter.receive(sink)
        assert len(telegram.world.updates) == 2
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert sorted(sink.texts) == ["one", "two"]


async def test_a_poll_whose_answer_is_lost_costs_nothing(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            telegram.say(5, 5, "one")
            telegram.fault("reset_after", "getUpdates")
            async with receiving(adapter, sink):
                await clock.until_sleeping()
                assert sink.heartbeats == 0
                clock.advance(60)
                await sink.until(lambda: sink.texts == ["one"])


async def test_messages_of_one_chat_stay_in_order(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        for number in range(250):
            telegram.say(1 + number % 7, None, str(number))
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        for chat in range(1, 8):
            said = [int(m.text) for m in sink.messages.values() if m.chat.id == str(chat)]
            assert said == sorted(said)
        assert len(sink.messages) == 250


async def test_a_slow_file_does_not_hold_up_receiving(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.fault("hang", "getFile", times=9)
        telegram.world.say_file(5, 5, "document", b"x", name="a.txt")
        telegram.say(6, 6, "quick")
        async with receiving(adapter, sink):
            await sink.until(lambda: sink.texts == ["", "quick"])
            telegram.say(5, 5, "next")
            await sink.until(lambda: sink.texts == ["", "quick", "next"])
        assert not telegram.called("getFile")


async def test_malformed_updates_are_skipped_and_the_cursor_moves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.world.push("message", {"message_id": "seven"})
        telegram.world.updates.append({"update_id": 1500, "callback_query": 7})
        telegram.world.next_update = 1600
        telegram.world.push("something_new", {"a": [1]})
        telegram.say(5, 5, "x" * 10_000_000)
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert [len(text) for text in sink.texts] == [10_000_000]
        assert sink.saved["offset"] == 1602
        assert "unknown shape: callback_query" in caplog.text


async def test_one_odd_update_costs_neither_its_text_nor_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.say(5, 5, "of a new shape")
        telegram.world.updates[-1]["message"]["quote"] = ["new"]
        telegram.say(6, 6, "half \ud83d a character")
        telegram.world.push("something_new", {"\udc00": "\ud83d"})
        telegram.say(7, 7, "an ordinary one")
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
            telegram.say(7, 7, "and the next")
            await sink.until(lambda: "and the next" in sink.texts)
        assert sink.texts[0] == "of a new shape"
        assert sink.texts[1].startswith("half ")
        assert sink.texts[2:] == ["an ordinary one", "and the next"]
        assert "message.quote" in caplog.text


async def test_a_second_poller_is_reported_and_given_time_to_go_away(tmp_path: Path) -> None:
    conflict = {"code": 409, "description": "Conflict: terminated by other getUpdates request"}
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        telegram.fault("error", "getUpdates", times=3, **conflict)
        # A poll that works in between must not start the count anew.
        telegram.fault("error", "getUpdates", times=3, skip=1, **conflict)
        telegram.say(5, 5, "hi")
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            async with receiving(adapter, sink):
                for number in range(1, 7):
                    await sink.until(partial(lambda n: len(sink.failures) == n, number))
                    await clock.until_sleeping()
                    clock.advance(50)
                telegram.say(5, 5, "after")
                await sink.until(lambda: sink.texts == ["hi", "after"])
        assert [pause for _, pause in sink.failures] == [10, 20, 30, 40, 40, 40]
        assert all("Another process" in failure.message for failure, _ in sink.failures)
        assert "token" in sink.failures[0][0].hint


async def test_a_page_in_place_of_an_answer_is_tried_again(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            telegram.fault("page", "getUpdates", times=3, code=404)
            telegram.say(5, 5, "behind the portal")
            async with receiving(adapter, sink):
                for _ in range(3):
                    await clock.until_sleeping()
                    clock.advance(30)
                await sink.until(lambda: sink.texts)
        assert {failure.status for failure, _ in sink.failures} == {404}


async def test_a_conflict_that_ends_is_overcome(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            async with receiving(adapter, sink):
                await telegram.until(lambda: telegram.called("getUpdates"))
                async with adapter_for(telegram, tmp_path) as other:
                    rival = RememberingSink()
                    async with receiving(other, rival):
                        await clock.until_sleeping()
                assert telegram.conflicts == 1
                telegram.say(5, 5, "after the storm")
                clock.advance(10)
                await sink.until(lambda: sink.texts)
        assert sink.texts == ["after the storm"]


async def test_a_webhook_set_by_somebody_is_removed(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            telegram.world.webhook = {"url": "http://127.0.0.1:9/", "secret": ""}
            telegram.say(5, 5, "hi")
            async with receiving(adapter, sink):
                await clock.until_sleeping()
                clock.advance(10)
                await sink.until(lambda: sink.texts)
        assert (sink.texts, telegram.world.webhook) == (["hi"], {})


async def test_a_poll_that_hangs_is_given_up(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        telegram.fault("hang", "getUpdates")
        telegram.say(5, 5, "hi")
        patience = {"poll_timeout": 0.1, "poll_grace": 0.2}
        async with adapter_for(telegram, tmp_path, clock, **patience) as adapter:
            sink = RememberingSink()
            async with receiving(adapter, sink):
                await clock.until_sleeping()
                clock.advance(5)
                await sink.until(lambda: sink.texts)
        assert sink.texts == ["hi"]
        assert len(telegram.called("getUpdates")) > 1


async def test_a_flood_of_polls_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        telegram.fault("429", "getUpdates", seconds=7)
        telegram.say(5, 5, "hi")
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            async with receiving(adapter, sink):
                await clock.until_sleeping()
                clock.advance(6.9)
                assert clock.sleeping == 1
                clock.advance(0.2)
                await sink.until(lambda: sink.texts)


async def test_a_network_that_stays_away_ends_in_a_failure_and_not_in_silence(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            telegram.fault("502", "getUpdates", times=99)
            receive = asyncio.ensure_future(adapter.receive(RememberingSink()))
            while not receive.done():
                sleeping = asyncio.ensure_future(clock.until_sleeping())
                await asyncio.wait({receive, sleeping}, return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
                clock.advance(30)
            with pytest.raises(PlatformFailure, match="HTTP 502"):
                await receive
        assert 4 <= len(telegram.called("getUpdates")) <= 10
        assert clock.monotonic() >= 90


async def test_a_token_revoked_while_polling_is_fatal(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.fault("error", "getUpdates", code=401, description="Unauthorized")
        with pytest.raises(PlatformFailure) as caught:
            await adapter.receive(RememberingSink())
        assert caught.value.action is FailureAction.FATAL
        assert "TELEGRAM_BOT_TOKEN" in caught.value.hint


async def test_reading_goes_on_where_it_left_off_unless_that_is_long_ago(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        for age, expected in ((3600.0, 900), (8 * 86400.0, None)):
            sink = RememberingSink()
            sink.saved = {"offset": 900, "at": clock.now() - age}
            async with adapter_for(telegram, tmp_path, clock) as adapter, receiving(adapter, sink):
                await telegram.until(lambda: telegram.called("getUpdates"))
            assert telegram.called("getUpdates")[-1].params.get("offset") == expected
            telegram.calls.clear()


async def test_an_album_is_heard_whole_if_one_part_mentions_the_bot(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        mention = [{"type": "mention", "offset": 0, "length": 11}]
        caption: dict[str, Any] = {"caption": "@hermes_bot look", "caption_entities": mention}
        for number in range(3):
            more = caption if number == 1 else {}
            telegram.world.say_file(-5, 7, "photo", b"x", media_group_id="g", **more)
        telegram.world.say_file(-5, 7, "photo", b"x", media_group_id="other")
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert [m.group_id for m in sink.messages.values()] == ["g"] * 3


async def test_what_was_said_before_a_mention_is_context_where_that_is_wanted(
    tmp_path: Path,
) -> None:
    async with (
        FakeTelegram() as telegram,
        adapter_for(telegram, tmp_path, observe_unmentioned_group_messages=True) as adapter,
    ):
        sink = RememberingSink()
        telegram.say(-5, 7, "the build is red")
        telegram.say(-6, 7, "elsewhere")
        telegram.say(-5, 8, "@hermes_bot yes")
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        (message,) = sink.messages.values()
        assert (message.text, message.context) == ("yes", "User 7: the build is red")


async def test_a_press_is_answered_with_what_the_sink_says(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        buttons = ((Button(label="Allow", data="ea:once:1"),),)
        sent = await adapter.send(outgoing(5, "May I?", buttons=buttons))
        sink = RememberingSink()
        query = telegram.press(5, 5, 1, "ea:once:1")
        async with receiving(adapter, sink):
            await telegram.until(lambda: telegram.world.queries[query] == "Done.")
        (press,) = sink.presses
        assert (press.message_id, press.data) == (sent.native_id, "ea:once:1")


async def test_a_press_that_is_too_old_to_answer_disturbs_nothing(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        await adapter.send(outgoing(5, "May I?", buttons=((Button(label="A", data="a"),),)))
        sink = RememberingSink()
        telegram.world.queries.pop(telegram.press(5, 5, 1, "a"))
        telegram.say(5, 5, "and on")
        async with receiving(adapter, sink):
            await sink.until(lambda: sink.texts == ["and on"])
            await telegram.until(lambda: telegram.called("answerCallbackQuery"))
            telegram.say(5, 5, "and on")
            await sink.until(lambda: len(sink.texts) == 2)
        assert [press.data for press in sink.presses] == ["a"]


async def test_the_token_is_neither_logged_nor_part_of_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        secret = telegram.token.partition(":")[2]
        telegram.chat(5)
        await adapter.send(outgoing(5, "hi"))
        telegram.fault("reset_before", "sendMessage")
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(outgoing(5, "hi"))
        assert "HTTP Request" in caplog.text
        assert secret not in caplog.text
        assert secret not in f"{caught.value} {caught.value.__context__!r} {adapter!r}"


async def test_updates_are_asked_for_in_the_form_telegram_documents(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        async with receiving(adapter, RememberingSink()):
            await telegram.until(lambda: len(telegram.called("getUpdates")) == 2)
        methods = [call.method for call in telegram.calls[:4]]
        assert methods == ["getme", "deletewebhook", "getupdates", "getupdates"]
        assert telegram.calls[1].params == {"drop_pending_updates": False}
        assert telegram.calls[2].params["timeout"] == 0, "what waits is not waited for"
        assert json.loads(json.dumps(telegram.calls[3].params)) == {
            "timeout": 30,
            "limit": 100,
            "allowed_updates": ["message", "channel_post", "callback_query"],
        }


async def test_what_waited_for_the_gateway_was_missed(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.say(5, 5, "while away")
        async with receiving(adapter, sink):
            await telegram.until(lambda: len(telegram.called("getUpdates")) == 3)
            telegram.say(5, 5, "now")
            await sink.until(lambda: len(sink.texts) == 2)
        assert [each.missed for each in sink.messages.values()] == [True, False]
