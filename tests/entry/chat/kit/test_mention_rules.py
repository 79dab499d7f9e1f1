"""When the bot is being spoken to."""

from typing import Any

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, ReplyRef, Sender
from hermes.domain.patterns import SafePattern
from hermes.entry.chat.kit.intake import Heard, judge
from hermes.entry.chat.kit.settings import ChatSettings

OURS = ReplyRef(native_id="0", own=True)


def heard(item: Heard, **settings: Any) -> bool:
    return not judge(item, ChatSettings(**settings))


def said(chat: Chat, *, mentioned: bool = False, command: bool = False, **more: Any) -> Heard:
    message: dict[str, Any] = {"platform": "p", "account": "a", "native_id": "1", "sent_at": 0.0}
    message |= {"text": "hello all", "sender": Sender(id="5"), "chat": chat} | more
    return Heard(message=InboundMessage(**message), mentioned=mentioned, command=command)


def group(**more: Any) -> Heard:
    return said(Chat(kind=ChatKind.GROUP, id="-5"), **more)


def private(**more: Any) -> Heard:
    return said(Chat(kind=ChatKind.PRIVATE, id="5"), **more)


def test_a_private_chat_needs_no_mention() -> None:
    assert heard(private())
    assert heard(private(), allowed_chats=frozenset({"-9"}))


def test_a_group_needs_one() -> None:
    assert not heard(group())
    assert heard(group(mentioned=True))
    assert heard(group(reply_to=OURS))
    assert heard(group(command=True))
    assert heard(group(), require_mention=False)


def test_a_free_response_chat_or_topic_needs_none() -> None:
    assert heard(group(), free_response_chats=frozenset({"-5"}))
    assert heard(group(thread_id="7"), free_response_chats=frozenset({"-5:7"}))
    assert not heard(group(thread_id="8"), free_response_chats=frozenset({"-5:7"}))


def test_only_allowed_chats_and_topics_are_answered() -> None:
    elsewhere = frozenset({"-6"})
    assert not heard(group(mentioned=True), allowed_chats=elsewhere)
    assert heard(group(mentioned=True), allowed_chats=frozenset({"-5"}))
    topics = frozenset({"7"})
    assert heard(group(mentioned=True, thread_id="7"), allowed_topics=topics)
    assert not heard(group(mentioned=True, thread_id="8"), allowed_topics=topics)
    assert not heard(group(mentioned=True), allowed_topics=topics)


def test_a_guest_may_mention_the_bot_in_other_chats_if_that_is_wanted() -> None:
    elsewhere = frozenset({"-6"})
    assert heard(group(mentioned=True), allowed_chats=elsewhere, guest_mode=True)
    assert not heard(group(reply_to=OURS), allowed_chats=elsewhere, guest_mode=True)


def test_an_ignored_thread_is_ignored_even_in_private() -> None:
    assert not heard(group(mentioned=True, thread_id="7"), ignored_threads=frozenset({"7"}))
    assert not heard(private(thread_id="7"), ignored_threads=frozenset({"5:7"}))


def test_a_pattern_counts_as_a_mention() -> None:
    patterns = (SafePattern(r"^hey hermes\b", ignore_case=True),)
    assert heard(group(text="Hey Hermes, hi"), mention_patterns=patterns)
    assert not heard(group(text="oh hey hermes"), mention_patterns=patterns)
