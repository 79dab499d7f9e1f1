"""Sending: what each call looks like, and what each failure means."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.telegram import FakeTelegram, RateLimits
from fakes.telegram_kit import adapter_for, adapter_request, outgoing, settings_for
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import Button, FailureAction, MenuCommand, PlatformFailure
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.entry.chat.telegram.settings import TelegramSettings

FORUM = -100500


def place(chat_id: int, thread_id: str | None = None) -> Target:
    return Target(platform="telegram", account="4242", chat_id=str(chat_id), thread_id=thread_id)


async def test_a_text_is_sent_as_html_and_edited_into_its_final_form(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        asked = telegram.say(5, 5, "hello")
        sent = await adapter.send(outgoing(5, "<b>Hel</b>", reply_to=f"5:{asked}"))
        await adapter.edit(sent.native_id, outgoing(5, "<b>Hello</b> you"))
        await adapter.edit(sent.native_id, outgoing(5, "<b>Hello</b> you"))
        (seen,) = telegram.replies(5)
        assert (seen.text, seen.history, seen.reply_to) == ("Hello you", ["Hel"], asked)
        assert sent.native_id == f"5:{seen.message_id}"


async def test_plain_text_is_sent_as_it_is(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        await adapter.send(outgoing(5, plain="1 < 2 & <b>"))
        await adapter.send(outgoing(5, "1 < 2 & <b>", plain="1 < 2 & <b>"))
        assert [seen.text for seen in telegram.replies(5)] == ["1 < 2 & <b>"] * 2


async def test_markup_that_telegram_refuses_asks_for_plain_text(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(outgoing(5, "<b>open", plain="open"))
        assert caught.value.action is FailureAction.PLAIN
        assert telegram.replies(5) == []


@pytest.mark.parametrize(
    ("code", "description", "action"),
    [
        (400, "Bad Request: message to edit not found", FailureAction.SEND_NEW),
        (400, "Bad Request: message can't be edited", FailureAction.SEND_NEW),
        (400, "Bad Request: message to be replied not found", FailureAction.DROP_REPLY),
        (400, "Bad Request: message thread not found", FailureAction.DROP_THREAD),
        (400, "Bad Request: TOPIC_CLOSED", FailureAction.DROP_THREAD),
        (400, "Bad Request: message is too long", FailureAction.GIVE_UP),
        (400, "Bad Request: chat not found", FailureAction.GIVE_UP),
        (403, "Forbidden: bot was blocked by the user", FailureAction.GIVE_UP),
        (403, "Forbidden: user is deactivated", FailureAction.GIVE_UP),
        (401, "Unauthorized", FailureAction.FATAL),
        (404, "Not Found", FailureAction.FATAL),
        (500, "Internal Server Error", FailureAction.RETRY),
    ],
)
async def test_every_refusal_has_its_meaning(
    tmp_path: Path, code: int, description: str, action: FailureAction
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        telegram.fault("error", "sendMessage", code=code, description=description)
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(outgoing(5, "hi"))
        assert caught.value.action is action


async def test_a_rate_limit_says_how_long_to_wait(tmp_path: Path) -> None:
    async with FakeTelegram(limits=RateLimits(burst=1)) as telegram:
        async with adapter_for(telegram, tmp_path) as adapter:
            telegram.chat(5)
            await adapter.send(outgoing(5, "one"))
            with pytest.raises(PlatformFailure) as caught:
                await adapter.send(outgoing(5, "two"))
        assert caught.value.action is FailureAction.WAIT
        assert caught.value.retry_after == 1
        assert [seen.text for seen in telegram.replies(5)] == ["one"]


@pytest.mark.parametrize(
    ("fault", "sending", "editing", "shown"),
    [
        ("reset_before", FailureAction.UNKNOWN, FailureAction.RETRY, 1),
        ("reset_after", FailureAction.UNKNOWN, FailureAction.RETRY, 2),
        ("hang", FailureAction.UNKNOWN, FailureAction.RETRY, 1),
        ("garbage", FailureAction.UNKNOWN, FailureAction.RETRY, 1),
        ("504", FailureAction.UNKNOWN, FailureAction.RETRY, 1),
        ("502", FailureAction.RETRY, FailureAction.RETRY, 1),
    ],
)
async def test_what_may_have_been_sent_is_unknown_but_edits_can_be_repeated(
    tmp_path: Path, fault: str, sending: FailureAction, editing: FailureAction, shown: int
) -> None:
    async with FakeTelegram() as telegram:
        async with adapter_for(telegram, tmp_path, request_timeout=0.3) as adapter:
            telegram.chat(5)
            sent = await adapter.send(outgoing(5, "first"))
            for action, call in (
                (sending, adapter.send(outgoing(5, "second"))),
                (editing, adapter.edit(sent.native_id, outgoing(5, "edited"))),
                (editing, adapter.delete(place(5), sent.native_id)),
            ):
                telegram.fault(fault)
                with pytest.raises(PlatformFailure) as caught:
                    await call
                assert caught.value.action is action
        everything = telegram.world.chats[5].messages
        assert len([m for m in everything.values() if m.from_bot]) == shown


async def test_no_connection_means_that_nothing_happened(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        settings = settings_for(telegram)
    adapter = TelegramAdapter(lambda: settings, adapter_request())
    for call in (adapter.connect(), adapter.send(outgoing(5, "hi"))):
        with pytest.raises(PlatformFailure) as caught:
            await call
        assert caught.value.action is FailureAction.RETRY
    await adapter.close()


async def test_a_group_that_became_a_supergroup_tells_its_new_id(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(-5, "group").migrated_to = -1005
        telegram.chat(-1005)
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(outgoing(-5, "hi"))
        assert caught.value.moved_to == "-1005"
        assert caught.value.action is FailureAction.RETRY
        await adapter.send(outgoing(-1005, "hi"))


@pytest.mark.parametrize("token", ["4242:wrong", "4242:wrong/../x", "nonsense", ""])
async def test_a_wrong_token_is_fatal_and_says_where_it_comes_from(
    tmp_path: Path, token: str
) -> None:
    async with FakeTelegram() as telegram:
        settings = settings_for(telegram, token=token)
        adapter = TelegramAdapter(lambda: settings, adapter_request())
        with pytest.raises(PlatformFailure) as caught:
            await adapter.connect()
        await adapter.close()
    assert caught.value.action is FailureAction.FATAL
    assert "TELEGRAM_BOT_TOKEN" in caught.value.hint
    assert "wrong" not in f"{caught.value}"


async def test_topics_are_named_except_the_general_one_which_only_typing_names(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(FORUM, is_forum=True, topics={5: "Ops"})
        await adapter.send(outgoing(FORUM, "in topic", thread_id="5"))
        await adapter.send(outgoing(FORUM, "in general", thread_id="1"))
        await adapter.typing(place(FORUM, "1"))
        await adapter.typing(place(FORUM, "5"))
        assert [seen.thread_id for seen in telegram.replies(FORUM)] == [5, None]
        assert [action["thread"] for action in telegram.world.actions] == [1, 5]
        with pytest.raises(PlatformFailure) as caught:
            await adapter.send(outgoing(FORUM, "gone", thread_id="77"))
        assert caught.value.action is FailureAction.DROP_THREAD


async def test_buttons_appear_and_an_edit_without_them_takes_them_away(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        buttons = ((Button(label="Yes", data="y"), Button(label="No", data="n", style="danger")),)
        sent = await adapter.send(outgoing(5, "May I?", buttons=buttons))
        assert telegram.replies(5)[0].buttons == [[("Yes", "y"), ("No", "n")]]
        await adapter.edit(sent.native_id, outgoing(5, "Allowed."))
        assert telegram.replies(5)[0].buttons == []
        await adapter.edit(sent.native_id, outgoing(5, "And now?", buttons=buttons))
        assert telegram.replies(5)[0].buttons != []
        assert telegram.replies(5)[0].text == "And now?"


async def test_deleting_twice_is_deleting_once(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        sent = await adapter.send(outgoing(5, "oops"))
        await adapter.delete(place(5), sent.native_id)
        await adapter.delete(place(5), sent.native_id)
        assert telegram.visible(5) == []


async def test_reactions_use_what_telegram_allows_and_only_where_wanted(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        name = f"5:{telegram.say(5, 5, 'hi')}"
        async with adapter_for(telegram, tmp_path, reactions=True) as adapter:
            for emoji, shown in (("👀", ["👀"]), ("✅", ["👍"]), ("❌", ["👎"]), ("", [])):
                await adapter.react(place(5), name, emoji)
                assert telegram.visible(5)[0].reactions == shown
        async with adapter_for(telegram, tmp_path) as adapter:
            await adapter.react(place(5), name, "👀")
            assert telegram.visible(5)[0].reactions == []


async def test_the_command_menu_fits_telegrams_rules(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        many = [MenuCommand(name=f"command-{n}", help="what it does " * 40) for n in range(150)]
        first = [MenuCommand(name="reload-mcp", help="Reload"), MenuCommand(name="new", help="")]
        await adapter.publish_commands([*first, *many])
        names = [command["command"] for command in telegram.world.commands]
        assert names[:2] == ["reload_mcp", "new"]
        assert 2 < len(names) <= 100


async def test_every_kind_of_file_is_shown_as_what_it_is(tmp_path: Path) -> None:
    kinds = {
        "a.png": ("image", "sendPhoto"),
        "a.gif": ("image", "sendDocument"),
        "a.ogg": ("voice", "sendVoice"),
        "a.wav": ("voice", "sendDocument"),
        "a.mp3": ("audio", "sendAudio"),
        "a.mp4": ("video", "sendVideo"),
        "a.txt": ("document", "sendDocument"),
        "a.unknown": ("hologram", "sendDocument"),
    }
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(FORUM, is_forum=True, topics={5: "Ops"})
        for name, (kind, method) in kinds.items():
            path = tmp_path / name
            path.write_bytes(b"\r\n--bytes--\r\n\0" + name.encode())
            piece = outgoing(FORUM, attachment=str(path), attachment_kind=kind, thread_id="5")
            await adapter.send(piece)
            seen = telegram.replies(FORUM)[-1]
            assert (seen.method, seen.thread_id) == (method, 5)
            assert telegram.world.files[seen.file_id].content == path.read_bytes()
            assert telegram.world.files[seen.file_id].name == name


async def test_a_picture_that_telegram_cannot_show_goes_as_a_file(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        path = tmp_path / "a.png"
        path.write_bytes(b"NOT A PICTURE")
        await adapter.send(outgoing(5, attachment=str(path), attachment_kind="image"))
        (seen,) = telegram.replies(5)
        assert seen.method == "sendDocument"


@pytest.mark.parametrize("size", [None, 0, 50_000_001])
async def test_a_file_that_cannot_be_sent_is_given_up_with_a_reason(
    tmp_path: Path, size: int | None
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        path = tmp_path / "a.bin"
        if size is not None:
            with path.open("wb") as file:
                file.truncate(size)
        with pytest.raises(PlatformFailure, match=r"a\.bin cannot be sent") as caught:
            await adapter.send(outgoing(5, attachment=str(path)))
        assert caught.value.action is FailureAction.GIVE_UP


async def test_pictures_can_be_shown_as_one_album(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        pieces = []
        for number in range(3):
            path = tmp_path / f"{number}.png"
            path.write_bytes(b"PNG%d" % number)
            pieces.append(outgoing(5, attachment=str(path), attachment_kind="image"))
        sent = await adapter.send_album(pieces)
        assert [s.native_id for s in sent] == ["5:1", "5:2", "5:3"]
        assert [seen.file_id != "" for seen in telegram.replies(5)] == [True, True, True]


async def test_link_previews_and_replies_can_be_switched_off(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        asked = telegram.say(5, 5, "hello")
        async with adapter_for(
            telegram, tmp_path, disable_link_previews=True, reply_to_mode="off"
        ) as adapter:
            await adapter.send(outgoing(5, "hi", reply_to=f"5:{asked}"))
        call = telegram.called("sendMessage")[0]
        assert call.params["link_preview_options"] == {"is_disabled": True}
        assert "reply_parameters" not in call.params


async def test_many_chats_can_be_sent_to_at_once(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        for chat in range(1, 201):
            telegram.chat(chat)
        await asyncio.gather(*(adapter.send(outgoing(chat, "hi")) for chat in range(1, 201)))
        assert all(len(telegram.replies(chat)) == 1 for chat in range(1, 201))


async def test_half_a_character_does_not_keep_a_message_from_being_sent(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.chat(5)
        buttons = ((Button(label="\ud800", data="y"),),)
        await adapter.send(outgoing(5, "a\ud800b", buttons=buttons))
        assert telegram.replies(5)[0].text == "a\ufffdb"


@pytest.mark.parametrize("proxy", ["nonsense", "socks9://user:hunter2@h:1"])
async def test_a_proxy_that_cannot_work_is_explained_without_its_password(
    tmp_path: Path, proxy: str
) -> None:
    settings = TelegramSettings(token="1:a", proxy=proxy)
    adapter = TelegramAdapter(lambda: settings, adapter_request())
    with pytest.raises(PlatformFailure, match="proxy") as caught:
        await adapter.connect()
    assert caught.value.action is FailureAction.FATAL
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("module", [".manifest", ".settings", ".adapter"])
def test_no_http_library_is_loaded_before_the_first_call(module: str) -> None:
    code = f"import sys, hermes.entry.chat.telegram{module}; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
