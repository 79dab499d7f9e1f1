"""The fake, looked at by a real Telegram library, and as a process of its own."""

import asyncio
import io
from pathlib import Path

import pytest
import telegram as library
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter
from telegram.request import HTTPXRequest

from fakes.telegram import REAL_LIMITS, FakeTelegram, FaultRates, RateLimits
from fakes.telegram_faults import RateLimiter
from fakes.telegram_html import MarkupError, plain_text
from fakes.telegram_kit import RememberingSink, adapter_for, adapter_request, outgoing, receiving
from fakes.telegram_remote import telegram_process
from fakes.telegram_world import ApiError
from hermes.domain.ports.platform import PlatformFailure
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.entry.chat.telegram.settings import TelegramSettings


def bot_of(telegram: FakeTelegram, token: str = "") -> library.Bot:
    return library.Bot(
        token or telegram.token,
        base_url=f"{telegram.base_url}/bot",
        base_file_url=f"{telegram.base_url}/file/bot",
        request=HTTPXRequest(httpx_kwargs={"trust_env": False}),
        get_updates_request=HTTPXRequest(httpx_kwargs={"trust_env": False}),
    )


async def test_a_real_library_can_log_in_poll_send_edit_and_delete() -> None:
    async with FakeTelegram() as telegram, bot_of(telegram) as bot:
        assert bot.username == "hermes_bot"
        telegram.say(5, 5, "hello 🤖 @hermes_bot")
        (update,) = await bot.get_updates(timeout=1)
        assert update.message is not None
        assert update.message.parse_entities() == {update.message.entities[0]: "@hermes_bot"}
        sent = await bot.send_message(5, "<b>hi</b> &amp; bye", parse_mode="HTML")
        assert sent.text == "hi & bye"
        await bot.edit_message_text("changed", 5, sent.message_id)
        with pytest.raises(BadRequest, match="not modified"):
            await bot.edit_message_text("changed", 5, sent.message_id)
        assert (await bot.get_updates(offset=update.update_id + 1, timeout=0)) == ()
        assert telegram.replies(5)[0].history == ["hi & bye"]
        await bot.delete_message(5, sent.message_id)
        assert telegram.replies(5) == []


async def test_a_real_library_sees_buttons_files_reactions_and_topics() -> None:
    async with FakeTelegram() as telegram, bot_of(telegram) as bot:
        telegram.chat(-100, is_forum=True)
        topic = await bot.create_forum_topic(-100, "Ops")
        keyboard = library.InlineKeyboardMarkup(
            [[library.InlineKeyboardButton("Yes", callback_data="y")]]
        )
        asked = await bot.send_message(
            -100, "?", message_thread_id=topic.message_thread_id, reply_markup=keyboard
        )
        query_id = telegram.press(-100, 7, asked.message_id, "y")
        telegram.world.say_file(-100, 7, "document", b"content", name="a.txt")
        pressed, filed = await bot.get_updates(timeout=1)
        assert pressed.callback_query is not None
        assert pressed.callback_query.data == "y"
        await pressed.callback_query.answer("ok")
        assert telegram.world.queries[query_id] == "ok"
        assert filed.message is not None
        assert filed.message.document is not None
        fetched = await (await filed.message.document.get_file()).download_as_bytearray()
        assert bytes(fetched) == b"content"
        picture = await bot.send_photo(-100, io.BytesIO(b"\x00\r\n\xff"), filename="p.png")
        assert picture.photo[0].file_size == 4
        stored = telegram.world.files[picture.photo[0].file_id]
        assert stored.content == b"\x00\r\n\xff"
        await bot.set_message_reaction(-100, asked.message_id, "👀")
        with pytest.raises(BadRequest, match="Reaction_invalid"):
            await bot.set_message_reaction(-100, asked.message_id, "✅")
        await bot.send_chat_action(-100, "typing")
        await bot.set_my_commands([("new", "Start over")])
        album = [library.InputMediaPhoto(io.BytesIO(b"1")), library.InputMediaPhoto(b"2")]
        assert len(await bot.send_media_group(-100, album)) == 2


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")
async def test_a_real_library_reads_the_errors_as_what_they_are() -> None:
    async with FakeTelegram(limits=RateLimits(burst=2)) as telegram, bot_of(telegram) as bot:
        with pytest.raises(BadRequest, match=r"[Cc]hat not found"):
            await bot.send_message(404, "hi")
        telegram.chat(5)
        with pytest.raises(BadRequest, match=r"[Cc]an't parse entities"):
            await bot.send_message(5, "<h1>x</h1>", parse_mode="HTML")
        telegram.limiter.charge(5)
        with pytest.raises(RetryAfter) as caught:
            await bot.send_message(5, "hi")
        assert caught.value._retry_after.total_seconds() == 1
        telegram.chat(6).blocked = True
        with pytest.raises(Forbidden, match="blocked"):
            await bot.send_message(6, "hi")
        with pytest.raises(InvalidToken):
            await _log_in(bot_of(telegram, "4242:other"))


async def _log_in(bot: library.Bot) -> None:
    async with bot:
        pass


async def test_a_second_poller_ends_the_poll_of_the_first() -> None:
    async with FakeTelegram() as telegram, bot_of(telegram) as one, bot_of(telegram) as two:
        first = asyncio.ensure_future(one.get_updates(timeout=30))
        await telegram.until(lambda: len(telegram.called("getUpdates")) == 1)
        second = asyncio.ensure_future(two.get_updates(timeout=30))
        with pytest.raises(Conflict):
            await first
        telegram.say(5, 5, "hi")
        assert len(await second) == 1


@pytest.mark.parametrize(
    "wrong",
    ["<b>", "</b>", "<b><i></b></i>", "<h1>x</h1>", "a < b", "<a onclick='x'>y</a>", "<br>", "<"],
)
def test_wrong_markup_is_refused(wrong: str) -> None:
    with pytest.raises(MarkupError):
        plain_text(wrong)


def test_right_markup_is_read() -> None:
    text = '<pre><code class="language-py">a &lt; b</code></pre><a href="https://x?a=1&amp;b">l</a>'
    assert plain_text(text) == "a < bl"
    assert plain_text("<blockquote expandable>q</blockquote> &unknown; &#128512;") == (
        "q &unknown; 😀"
    )


async def test_random_faults_are_the_same_for_the_same_seed() -> None:
    happened = []
    for _ in range(2):
        async with FakeTelegram() as telegram:
            telegram.faults.draw(FaultRates(seed=7, rates={"429": 0.2, "502": 0.2}))
            happened.append([telegram.faults.next("sendmessage", 5) for _ in range(50)])
    assert [f and f.kind for f in happened[0]] == [f and f.kind for f in happened[1]]
    assert {f.kind for f in happened[0] if f} == {"429", "502"}


async def test_as_a_process_it_outlives_its_clients(tmp_path: Path) -> None:
    async with telegram_process() as remote:
        await remote.say(5, 5, "hello")
        settings = TelegramSettings(token="4242:fake-secret_TOKEN", base_url=remote.base_url)
        adapter = TelegramAdapter(lambda: settings, adapter_request())
        sink = RememberingSink()
        await adapter.connect()
        await remote.control("fault", kind="429", method="sendMessage", seconds=0)
        async with receiving(adapter, sink):
            stats = await remote.until(lambda stats: stats["confirmed"] == 1)
        assert stats["pending"] == 0
        await remote.control("draw", seed=1, rates={"slow": 1.0})
        with pytest.raises(Exception, match="Too Many Requests"):
            await adapter.send(outgoing(5, "hi"))
        await adapter.send(outgoing(5, "hi"))
        await adapter.close()
        assert [seen.text for seen in await remote.visible(5)] == ["hello", "hi"]
        assert (await remote.stats())["faults"]["429"] == 1


async def test_a_message_delivered_twice_has_one_name(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.say(5, 5, "once")
        telegram.world.redeliver(telegram.world.updates[0])
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert sink.arrivals == ["5:1", "5:1"]
        assert len(sink.messages) == 1


async def test_real_limits_count_everything_per_chat_group_and_account() -> None:
    async with FakeTelegram(limits=REAL_LIMITS) as telegram:
        limiter = telegram.limiter
        for call in range(4):
            assert refused(limiter, 5) is (call == 3)
        for call in range(21):
            assert refused(limiter, -100) is (call == 20)
        room = 30 - 3 - 20
        assert [refused(limiter, chat) for chat in range(1, 12)].count(True) == 11 - room


def refused(limiter: RateLimiter, chat: int) -> bool:
    try:
        limiter.charge(chat)
    except ApiError as error:
        return error.parameters["retry_after"] >= 1
    return False


@pytest.mark.parametrize("kind", ["refused", "reset_before", "504"])
async def test_nothing_gets_through_an_outage_and_everything_afterwards(
    tmp_path: Path, kind: str
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        async with telegram.outage(kind):
            with pytest.raises(PlatformFailure):
                await adapter.send(outgoing(5, "lost"))
        await adapter.send(outgoing(5, "hi"))
        assert [seen.text for seen in telegram.replies(5)] == ["hi"]
        assert telegram.stats()["methods"]["sendmessage"] == (1 if kind == "refused" else 2)
