"""Updates become inbound messages, presses, or nothing for a reason."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.domain.inbound import ChatKind
from hermes.domain.ports.platform import ButtonPress
from hermes.entry.chat.kit.decode import decode_leniently, loose_document
from hermes.entry.chat.kit.intake import Heard
from hermes.entry.chat.telegram.inbound import Bot, parse
from hermes.entry.chat.telegram.wire import UpdateWire

BOT = Bot(id=42, username="my_bot", commands={"reload_mcp": "reload-mcp"})
ANN = {"id": 777, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "ann"}
OPS = {"id": -1001234567890, "type": "supergroup", "title": "Ops"}


def message(**fields: Any) -> dict[str, Any]:
    usual = {"message_id": 9, "date": 1793000000, "chat": OPS, "from": ANN}
    return {"update_id": 1, "message": usual | fields}


def decode_update(raw: bytes) -> UpdateWire | None:
    return decode_leniently(raw, UpdateWire)


def read(update: dict[str, Any]) -> Heard | ButtonPress | str:
    decoded = decode_update(json.dumps(update).encode())
    assert decoded is not None
    return parse(decoded, BOT)


def heard(**fields: Any) -> Heard:
    result = read(message(**fields))
    assert isinstance(result, Heard), result
    return result


def ignored(update: dict[str, Any]) -> str:
    result = read(update)
    assert isinstance(result, str), result
    return result


def marked(text: str, part: str, kind: str = "mention", **more: Any) -> dict[str, Any]:
    offset = len(text[: text.index(part)].encode("utf-16-le")) // 2
    return {"type": kind, "offset": offset, "length": len(part.encode("utf-16-le")) // 2} | more


def test_a_private_message_is_named_by_chat_and_message() -> None:
    private = {"id": 777, "type": "private", "first_name": "Ann"}
    inbound = heard(chat=private, text="hello").message
    assert inbound.native_id == "777:9"
    assert (inbound.chat.kind, inbound.chat.id) == (ChatKind.PRIVATE, "777")
    assert (inbound.sender.id, inbound.sender.name) == ("777", "Ann Lee")
    assert (inbound.account, inbound.sent_at) == ("42", 1793000000)
    assert inbound.thread_id is None


def test_a_mention_is_found_behind_emoji_and_taken_off_the_beginning_and_end() -> None:
    text = "@my_bot status? 🤖"
    result = heard(text=text, entities=[marked(text, "@my_bot")])
    assert result.mentioned
    assert result.message.text == "status? 🤖"
    text = "🤖🤖 status @MY_bot?"
    result = heard(text=text, entities=[marked(text, "@MY_bot")])
    assert result.mentioned
    assert result.message.text == "🤖🤖 status?"
    text = "ask @my_bot about it"
    assert heard(text=text, entities=[marked(text, "@my_bot")]).message.text == text


def test_other_mentions_are_not_ours() -> None:
    text = "@my_bot_two hi"
    assert not heard(text=text, entities=[marked(text, "@my_bot_two")]).mentioned
    user = {"id": 43, "is_bot": True, "first_name": "x"}
    entity = marked(text, "hi", "text_mention", user=user)
    assert not heard(text=text, entities=[entity]).mentioned


def test_a_text_mention_and_a_caption_mention_count() -> None:
    user = {"id": 42, "is_bot": True, "first_name": "My"}
    entity = marked("My hi", "My", "text_mention", user=user)
    assert heard(text="My hi", entities=[entity]).mentioned
    photo = [{"file_id": "L", "file_unique_id": "u", "width": 10, "height": 10}]
    caption = "@my_bot look"
    result = heard(photo=photo, caption=caption, caption_entities=[marked(caption, "@my_bot")])
    assert result.mentioned
    assert result.message.text == "look"


def test_a_bare_mention_keeps_its_text() -> None:
    entities = [marked("@my_bot", "@my_bot")]
    assert heard(text="@my_bot", entities=entities).message.text == "@my_bot"


def test_commands_lose_the_name_of_the_bot_and_keep_their_arguments() -> None:
    result = heard(text="/new@My_Bot some thing")
    assert result.message.text == "/new some thing"
    assert result.mentioned
    assert result.command
    assert heard(text="/reload_mcp now").message.text == "/reload-mcp now"
    text = "@my_bot /status"
    assert heard(text=text, entities=[marked(text, "@my_bot")]).message.text == "/status"
    assert ignored(message(text="/new@other_bot")) == "command for another bot"
    path = heard(text="/etc/hosts is broken")
    assert not path.command
    assert path.message.text == "/etc/hosts is broken"


def test_a_thread_id_is_a_topic_only_when_telegram_says_so() -> None:
    forum = OPS | {"is_forum": True}
    assert heard(text="x", message_thread_id=5).message.thread_id is None
    topic = heard(text="x", chat=forum, message_thread_id=5, is_topic_message=True)
    assert topic.message.thread_id == "5"
    assert heard(text="x", chat=forum).message.thread_id == "1"


def test_a_reply_carries_what_it_answers() -> None:
    own = {"id": 42, "is_bot": True, "first_name": "My"}
    earlier = {"message_id": 8, "date": 1, "chat": OPS, "from": own, "text": "done and dusted"}
    result = heard(text="really?", reply_to_message=earlier)
    reply = result.message.reply_to
    assert reply is not None
    assert (reply.native_id, reply.text, reply.own) == ("-1001234567890:8", "done and dusted", True)
    assert result.message.reply_to is not None
    assert result.message.reply_to.own
    quoted = heard(text="which?", reply_to_message=earlier, quote={"text": "dusted"})
    assert quoted.message.reply_to is not None
    assert quoted.message.reply_to.text == "dusted"


def test_the_formal_reply_of_every_topic_message_is_none() -> None:
    opening = {"message_id": 5, "date": 1, "chat": OPS, "from": ANN}
    result = heard(text="x", message_thread_id=5, is_topic_message=True, reply_to_message=opening)
    assert result.message.reply_to is None


def test_anonymous_admins_and_channels_speak_as_their_chat() -> None:
    stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    admin = heard(text="x", sender_chat=OPS, **{"from": stand_in}).message.sender
    assert (admin.id, admin.name, admin.is_bot) == (str(OPS["id"]), "Ops", False)
    assert admin.roles == ("administrator",)
    channel = {"id": -100555, "type": "channel", "title": "News"}
    post = {"message_id": 3, "date": 1, "chat": channel, "text": "news"}
    result = read({"update_id": 1, "channel_post": post})
    assert isinstance(result, Heard)
    assert (result.message.sender.id, result.message.chat.kind) == ("-100555", ChatKind.CHANNEL)


def test_other_bots_are_marked_and_our_own_messages_ignored() -> None:
    other = {"id": 50, "is_bot": True, "first_name": "Other"}
    assert heard(text="x", **{"from": other}).message.sender.is_bot
    own = {"id": 42, "is_bot": True, "first_name": "My"}
    assert ignored(message(text="x", **{"from": own})) == "our own message"


def test_the_largest_picture_is_taken_and_albums_keep_their_id() -> None:
    sizes = [
        {"file_id": "S", "file_unique_id": "u1", "width": 90, "height": 90},
        {"file_id": "L", "file_unique_id": "u2", "width": 1280, "height": 960, "file_size": 9},
        {"file_id": "M", "file_unique_id": "u3", "width": 320, "height": 240},
    ]
    result = heard(photo=sizes, media_group_id="g1")
    assert [(f.kind, f.remote, f.size) for f in result.message.attachments] == [("image", "L", 9)]
    assert result.message.group_id == "g1"


@pytest.mark.parametrize(
    ("fields", "kind", "name"),
    [
        ({"document": {"file_id": "D", "file_name": "a.pdf"}}, "document", "a.pdf"),
        ({"document": {"file_id": "D", "mime_type": "image/png"}}, "image", "document"),
        ({"voice": {"file_id": "V", "duration": 3}}, "voice", "voice.ogg"),
        ({"audio": {"file_id": "A", "file_name": "s.mp3"}}, "audio", "s.mp3"),
        ({"video": {"file_id": "V"}}, "video", "video.mp4"),
        ({"video_note": {"file_id": "V"}}, "video", "video_note.mp4"),
        ({"animation": {"file_id": "G"}, "document": {"file_id": "G"}}, "video", "animation.mp4"),
        ({"sticker": {"file_id": "K", "emoji": "😀"}}, "image", "sticker.webp"),
    ],
)
def test_every_kind_of_file_is_described(fields: dict[str, Any], kind: str, name: str) -> None:
    assert [(f.kind, f.name) for f in heard(**fields).message.attachments] == [(kind, name)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"location": {"latitude": 1.5, "longitude": -2}}, "[Location: 1.500000, -2.000000]"),
        ({"contact": {"phone_number": "+1", "first_name": "Bo"}}, "[Contact: Bo +1]"),
        (
            {"poll": {"question": "Q?", "options": [{"text": "a"}, {"text": "b"}]}},
            "[Poll: Q? (a / b)]",
        ),
        ({"sticker": {"file_id": "K", "emoji": "😀", "is_animated": True}}, "[Sticker 😀]"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[Dice 🎲: 4]"),
        ({"story": {"id": 4}}, "[A story, which cannot be read here]"),
    ],
)
def test_what_is_neither_text_nor_file_is_put_into_words(
    fields: dict[str, Any], words: str
) -> None:
    assert heard(**fields).message.text == words


def test_edits_and_service_messages_are_ignored_with_a_reason() -> None:
    edited = {"update_id": 2, "edited_message": message(text="x")["message"]}
    assert ignored(edited) == "kind of update"
    assert ignored(message(new_chat_title="Y")) == "service message"
    assert ignored({"update_id": 3, "my_chat_member": {}}) == "kind of update"


def test_a_press_names_the_message_as_the_send_did() -> None:
    under = {"message_id": 56, "date": 0, "chat": OPS}
    query = {"id": "438", "from": ANN, "chat_instance": "-3", "data": "a:1", "message": under}
    result = read({"update_id": 4, "callback_query": query})
    assert isinstance(result, ButtonPress)
    assert (result.message_id, result.data) == ("-1001234567890:56", "a:1")
    assert (result.sender.id, result.chat.kind) == ("777", ChatKind.GROUP)
    assert result.native_id == "438"


def test_a_message_survives_fields_of_the_wrong_shape() -> None:
    result = heard(text="keep me", quote="odd", photo={"a": 1}, entities=[{"type": 3}])
    assert result.message.text == "keep me"


def test_half_a_character_is_replaced_and_not_fatal() -> None:
    raw = b'{"update_id":7,"message":{"message_id":1,"date":1,"chat":{"id":5,"type":"private"},'
    raw += b'"from":{"id":5,"first_name":"A"},"text":"a\\ud800b"}}'
    decoded = decode_update(raw)
    assert decoded is not None
    result = parse(decoded, BOT)
    assert isinstance(result, Heard)
    assert result.message.text == "a\ufffdb"


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
names = st.sampled_from(
    [
        "update_id",
        "message",
        "edited_message",
        "callback_query",
        "id",
        "from",
        "chat",
        "type",
        "text",
        "entities",
        "offset",
        "length",
        "caption",
        "photo",
        "file_id",
        "sticker",
        "reply_to_message",
        "quote",
        "date",
        "data",
        "private",
        "supergroup",
        "message_id",
        "message_thread_id",
        "is_topic_message",
        "user",
        "mention",
    ]
)
anything = st.recursive(
    scalars | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6),
    max_leaves=30,
)
entity = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["mention", "bot_command", "text_mention", "bold"]),
        "offset": st.integers(-5, 2**40),
        "length": st.integers(-5, 2**40),
    }
)


@settings(deadline=None)
@given(anything)
def test_no_json_at_all_makes_decoding_or_parsing_fail(document: Any) -> None:
    raw = json.dumps(document).encode()
    decoded = decode_update(raw)
    assert decoded is None or isinstance(parse(decoded, BOT), Heard | ButtonPress | str)


@settings(deadline=None)
@given(st.dictionaries(names, anything, max_size=8), st.text(max_size=30), st.lists(entity))
def test_no_message_makes_parsing_fail(
    fields: dict[str, Any], text: str, entities: list[dict[str, Any]]
) -> None:
    update = message(**({"text": text, "entities": entities} | fields))
    decoded = decode_update(json.dumps(update).encode())
    assert decoded is None or isinstance(parse(decoded, BOT), Heard | ButtonPress | str)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_make_decoding_fail(raw: bytes) -> None:
    assert isinstance(loose_document(raw), dict)
    assert isinstance(decode_update(raw), UpdateWire | None)


def test_what_has_an_unknown_shape_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    odd_quote = {"message_id": 3, "chat": OPS, "from": ANN | {"is_bot": "no"}, "text": "before"}
    entities = [{"type": "bold", "offset": {}, "length": 2}, marked("@my_bot hi", "@my_bot")]
    result = heard(
        text="@my_bot hi",
        quote=["new"],
        chat=OPS | {"is_forum": {"since": 3}},
        reply_to_message=odd_quote,
        entities=entities,
        sticker={"file_id": 8},
    )
    inbound = result.message
    assert (inbound.text, inbound.sender.name, result.mentioned) == ("hi", "Ann Lee", True)
    assert inbound.reply_to is not None
    assert (inbound.reply_to.text, inbound.reply_to.sender) == ("before", inbound.sender)
    for name in ("message.quote", "message.chat.is_forum", "message.sticker.file_id"):
        assert name in caplog.text
    assert "'update_id': 1" in caplog.text


def test_a_press_below_a_message_of_a_new_shape_counts() -> None:
    below = {"message_id": 4, "chat": OPS, "checklist": 1, "photo": {"new": "shape"}}
    query = {"id": "q", "from": ANN, "data": "ea:once:1", "message": below}
    press = read({"update_id": 2, "callback_query": query})
    assert isinstance(press, ButtonPress)
    assert (press.data, press.sender.id) == ("ea:once:1", "777")


def test_nesting_without_end_costs_only_itself() -> None:
    raw = json.dumps(message(text="hello", game="HERE")).encode()
    raw = raw.replace(b'"HERE"', b"[" * 5000 + b"]" * 5000)
    decoded = decode_update(raw)
    assert decoded is not None
    result = parse(decoded, BOT)
    assert isinstance(result, Heard)
    assert result.message.text.startswith("hello")
