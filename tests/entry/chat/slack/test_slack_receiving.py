"""Receiving over Socket Mode: nothing lost, nothing acknowledged too early, nothing twice."""

import asyncio
from typing import Any

import pytest

from fakes.slack import BOT, FakeSlack
from fakes.slack_kit import adapter_for, listening, outgoing
from fakes.telegram_kit import RememberingSink
from hermes.domain.errors import StoreError
from hermes.domain.inbound import ChatKind
from hermes.domain.ports.platform import Button, FailureAction, PlatformFailure
from hermes.testing import FakeClock

HI = f"<@{BOT}>"


async def test_an_envelope_is_acknowledged_only_after_the_inbox_has_it() -> None:
    async with FakeSlack() as slack:
        sink = RememberingSink()
        sink.gate = asyncio.Event()
        async with listening(slack, sink):
            slack.say("D1", "U1", "one")
            await sink.until(lambda: sink.arrivals)
            assert len(slack.unacked) == 1
            sink.gate.set()
            await slack.until(lambda: not slack.unacked)
            (ack,) = slack.acks
            assert list(ack) == ["envelope_id"]
            assert sink.texts == ["one"]


async def test_what_was_not_acknowledged_comes_again_and_is_one_message() -> None:
    async with FakeSlack() as slack:
        sink = RememberingSink()
        sink.gate = asyncio.Event()
        async with listening(slack, sink):
            slack.say("D1", "U1", "one")
            await sink.until(lambda: sink.arrivals)
        sink.gate.set()
        async with listening(slack, sink):
            await slack.until(lambda: not slack.unacked)
        assert len(sink.arrivals) == 2
        assert sink.texts == ["one"]


async def test_an_inbox_that_fails_ends_receiving_and_acknowledges_nothing() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        sink = RememberingSink()
        sink.refusals = 1
        slack.say("D1", "U1", "one")
        with pytest.raises(StoreError):
            await adapter.receive(sink)
        assert slack.acks == []
        task = asyncio.ensure_future(adapter.receive(sink))
        await slack.until(lambda: not slack.unacked)
        task.cancel()
        assert sink.texts == ["one"]


async def test_a_mention_and_its_twin_are_one_message_in_a_thread_of_its_own() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        ts = slack.say("C1", "U1", f"{HI} what&apos;s &lt;up&gt;?")
        await slack.until(lambda: len(slack.acks) == 2)
        (message,) = sink.messages.values()
        assert sink.arrivals == [f"C1:{ts}"] * 2
        assert message.text == "what&apos;s <up>?"
        assert (message.chat.kind, message.thread_id) == (ChatKind.GROUP, ts)
        assert (message.sender.id, message.sender.name) == ("U1", "Ann")


async def test_rules_of_channels_and_threads() -> None:
    async with FakeSlack() as slack:
        sink = RememberingSink()
        async with listening(slack, sink):
            slack.say("C1", "U1", "not for us")
            first = slack.say("C1", "U1", f"hey {HI}")
            slack.say("C1", "U2", "in the thread", thread_ts=first)
            slack.say("C1", "U2", "!status now", thread_ts=slack.say("C1", "U2", "else"))
            slack.say("C1", "U2", "!important")
            slack.say("D1", "U1", "private")
            await sink.until(lambda: "private" in sink.texts)
        # Also after a restart it is known where one takes part.
        async with listening(slack, sink):
            slack.say("C1", "U2", "later", thread_ts=first)
            await sink.until(lambda: "later" in sink.texts)
        assert sink.texts == ["hey", "in the thread", "/status now", "private", "later"]
        threads = [each.thread_id for each in sink.messages.values()]
        assert threads[:2] == [first, first]
        assert threads[3] is None
        async with listening(slack, sink, strict_mention=True, reply_in_thread=False):
            slack.say("C1", "U2", "silence", thread_ts=first)
            slack.say("C1", "U2", f"{HI} flat")
            await sink.until(lambda: "flat" in sink.texts)
        assert "silence" not in sink.texts
        assert [each.thread_id for each in sink.messages.values()][-1] is None


async def test_what_was_said_in_a_thread_before_a_mention_can_be_told_along() -> None:
    async with FakeSlack() as slack, listening(slack, history_backfill=2) as (adapter, sink):
        first = slack.say("C1", "U1", "too long ago")
        for text in ("one &amp; two", f"{HI} hm", "<@U2> three"):
            slack.say("C1", "U1", text, thread_ts=first)
        said = slack.say("C1", "U2", f"{HI} what do you think?", thread_ts=first)
        await sink.until(lambda: len(sink.texts) == 3)
        asked = sink.messages[f"C1:{said}"]
        assert await adapter.said_before(asked) == ["Ann: one & two", "Ann: @U2 three"]
        await adapter.send(outgoing("C1", "my own word", thread_id=first))
        assert await adapter.said_before(asked) == []
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        assert await adapter.said_before(asked) == []
        assert slack.count("conversations.replies") == 0


async def test_a_thread_that_the_bot_began_needs_no_mention() -> None:
    async with FakeSlack() as slack, listening(slack) as (adapter, sink):
        sent = await adapter.send(outgoing("C1", "report"))
        seed = sent.native_id.partition(":")[2]
        slack.say("C1", "U1", "go on", thread_ts=seed)
        await sink.until(lambda: sink.texts == ["go on"])


@pytest.mark.parametrize(
    "event",
    [
        {"user": BOT, "text": "mine"},
        {"bot_id": "BBOT", "subtype": "bot_message", "text": "mine"},
        {"subtype": "message_changed", "user": "U1", "text": "edited"},
        {"subtype": "channel_join", "user": "U1", "text": "joined"},
        {"user": "U1", "text": ""},
        {"user": "U1", "text": 7, "files": "odd", "blocks": {"odd": 1}},
    ],
)
async def test_what_is_no_message_is_acknowledged_and_left_out(event: dict[str, Any]) -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        slack.event({"type": "message", "channel": "D1", "ts": "1.1", "channel_type": "im"} | event)
        slack.event({"type": "reaction_added", "user": "U1"})
        slack.envelope("interactive", {"type": "view_submission", "user": {"id": "U1"}})
        slack.envelope("never_heard_of", {})
        await slack.until(lambda: len(slack.acks) == 4)
        assert sink.texts == []


async def test_other_bots_text_in_blocks_and_slacks_markup() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        slack.event(
            {"type": "message", "channel": "D1", "channel_type": "im", "ts": "1.5"}
            | {"subtype": "bot_message", "bot_id": "B7", "username": "cron", "text": "built"}
        )
        elements = [
            {"type": "user", "user_id": BOT},
            {"type": "text", "text": " see "},
            {"type": "link", "url": "https://a.b/?x=1&amp;y"},
        ]
        rich = {"type": "rich_text_section", "elements": elements}
        slack.say("C1", "U1", "", blocks=[{"type": "rich_text", "elements": [rich]}])
        marked = "<@U2> <#C9|ops> <!here> <https://x.y|docs> <mailto:a@b.c|a@b.c> <!subteam^S1|@t>"
        slack.say("C1", "U1", f"{HI} {marked}")
        slack.say(
            "C1", "U1", "@Hermes in blocks", blocks=[{"type": "rich_text", "elements": [rich]}]
        )
        await sink.until(lambda: len(sink.messages) == 4)
        assert sink.texts[0] == "built"
        assert next(iter(sink.messages.values())).sender.is_bot
        assert sink.texts[1].startswith("see https://a.b/?x=1&y")
        assert sink.texts[3] == "@Hermes in blocks"
        assert sink.texts[2] == "@U2 #ops @here docs (https://x.y) a@b.c @t"


async def test_slash_commands_and_the_own_command() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        slack.slash("C1", "U1", "/new", "fresh")
        slack.slash("C1", "U1", "/hermes", "status all")
        slack.slash("C1", "U1", "/hermes", "what is &lt;that&gt;?")
        slack.slash("C1", "U1", "/hermes")
        await slack.until(lambda: len(slack.acks) == 4)
        assert sink.texts == ["/new fresh", "/status all", "what is <that>?", "/help"]
        assert {each.sender.name for each in sink.messages.values()} == {"Ann"}


async def test_somebody_who_may_not_use_a_command_is_told_so_alone() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        sink.refused = {"/new"}
        slack.closed.add("C5")
        slack.slash("C1", "U2", "/new")
        slack.slash("C5", "U2", "/new")
        slack.say("D1", "U2", "/new")
        await slack.until(lambda: slack.ephemerals and slack.texts("U2"))
        (told,) = slack.ephemerals
        assert (told["channel"], told["user"]) == ("C1", "U2")
        assert told["text"] == slack.texts("U2")[0] == "You cannot use this here."
        assert slack.texts("C1") == slack.texts("D1") == []
        assert len(slack.acks) == 3


@pytest.mark.parametrize("retries", [True, False])
async def test_what_waited_for_a_connection_was_missed(retries: bool) -> None:
    async with FakeSlack() as slack:
        slack.retries = retries
        slack.say("D1", "U1", "while away", ts="1793000000.000100")
        async with listening(slack) as (_, sink):
            await sink.until(lambda: sink.texts)
            slack.say("D1", "U1", "now")
            await sink.until(lambda: len(sink.texts) == 2)
    assert [each.missed for each in sink.messages.values()] == [True, False]


async def test_presses_come_once_and_only_who_may_not_is_told() -> None:
    async with FakeSlack() as slack, listening(slack) as (adapter, sink):
        ask = slack.say("C1", "U1", f"{HI} go")
        button = Button(label="Allow", data="ea:once:1", style="primary")
        page = Button(label="Read", url="https://x.y")
        asking = outgoing("C1", "May I?", buttons=((button, page),), thread_id=ask)
        sent = await adapter.send(asking)
        (posted,) = slack.replies("C1")
        sink.answer = "You are not allowed to answer this."
        envelope_id = slack.press(posted, "Allow", "U2")
        again = dict(slack.unacked[envelope_id])
        await slack.until(lambda: slack.ephemerals)
        slack.redeliver(envelope_id, again)
        sink.answer = "Noted."
        slack.press(posted, "Allow")
        await slack.until(lambda: len(slack.acks) == 6)
        (told,) = slack.ephemerals
        assert told["user"] == "U2"
        assert told["thread_ts"] == ask
        assert [each.data for each in sink.presses] == ["ea:once:1"] * 2
        assert {each.message_id for each in sink.presses} == {sent.native_id}


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_the_next_connection_is_there_before_the_old_one_ends(reason: str) -> None:
    async with FakeSlack() as slack, listening(slack) as (_, sink):
        await slack.until(lambda: slack.sockets)
        slack.disconnect(reason)
        await slack.until(lambda: len(slack.sockets) == 2)
        slack.say("D1", "U1", "one")
        slack.say("D1", "U1", "two")
        await slack.until(lambda: not slack.unacked)
        slack.cut(1)
        await slack.until(lambda: len(slack.sockets) == 1)
        slack.say("D1", "U1", "three")
        await sink.until(lambda: len(sink.texts) == 3)
        assert slack.opened == 2


async def test_an_outage_is_overcome_and_socket_mode_switched_off_is_said() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        sink = RememberingSink()
        task = asyncio.ensure_future(adapter.receive(sink))
        await slack.until(lambda: slack.sockets)
        slack.down = True
        slack.cut()
        await sink.until(lambda: sink.failures)
        slack.fault("429", "apps.connections.open")
        slack.down = False
        slack.say("D1", "U1", "still there?")
        await sink.until(lambda: sink.texts == ["still there?"])
        assert {each.action for each, _ in sink.failures} <= {
            FailureAction.RETRY,
            FailureAction.WAIT,
        }
        slack.disconnect("link_disabled")
        with pytest.raises(PlatformFailure, match="switched off") as told:
            await task
        assert told.value.action is FailureAction.FATAL


async def test_a_connection_that_answers_no_ping_is_made_again() -> None:
    async with FakeSlack() as slack, listening(slack, heartbeat=0.1) as (_, sink):
        slack.pongs = False
        await slack.until(lambda: slack.opened >= 2)
        slack.pongs = True
        slack.say("D1", "U1", "one")
        await sink.until(lambda: sink.texts == ["one"])


async def test_another_gateway_with_the_same_app_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeSlack() as slack:
        for elsewhere in (0, 2):
            slack.elsewhere = elsewhere
            async with listening(slack) as (_, sink):
                slack.say("D1", "U1", f"hello {elsewhere}")
                await sink.until(lambda: sink.texts)
            assert ("shares this Slack app" in caplog.text) is bool(elsewhere)


async def test_connections_that_end_at_once_are_not_hammered() -> None:
    clock = FakeClock()
    async with FakeSlack() as slack, adapter_for(slack, clock) as adapter:
        sink = RememberingSink()
        task = asyncio.ensure_future(adapter.receive(sink))
        for count in (1, 2):
            await slack.until(lambda: slack.opened == count and slack.sockets)  # noqa: B023
            slack.disconnect("too_many_websockets")
        await clock.until_sleeping()
        assert slack.opened == 2
        clock.advance(5)
        await slack.until(lambda: slack.opened == 3)
        task.cancel()


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ({"app_token": "xapp-wrong-wrong"}, "invalid_auth"),
        ({"token": "xoxb-wrong-wrong-wrong"}, "invalid_auth"),
    ],
)
async def test_wrong_tokens_are_refused_at_the_start(tokens: dict[str, Any], reason: str) -> None:
    async with FakeSlack() as slack:
        with pytest.raises(PlatformFailure, match=reason) as told:
            async with adapter_for(slack, **tokens):
                pass
        assert told.value.action is FailureAction.FATAL
        assert "SLACK_APP_TOKEN" in told.value.hint


async def test_workspaces_share_a_connection_and_each_is_answered_with_its_token() -> None:
    teams = {"T1": "xoxb-1-aaaaaaaaaa", "T2": "xoxb-2-bbbbbbbbbb"}
    async with FakeSlack(teams) as slack, listening(slack) as (adapter, sink):
        slack.say("D1", "U1", "one", team="T1")
        slack.say("D2", "U1", "two", team="T2")
        await sink.until(lambda: len(sink.texts) == 2)
        assert slack.opened == 1
        contexts = {each.chat.id: each.reply_context for each in sink.messages.values()}
        for channel, context in contexts.items():
            await adapter.send(outgoing(channel, "hi", context=context))
        slack.channels["C9"] = "T2"
        await adapter.send(outgoing("C9", "found by asking"))
        assert slack.texts("D1") + slack.texts("D2") + slack.texts("C9") == [
            *("hi", "hi", "found by asking"),
        ]
