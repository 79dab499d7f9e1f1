"""When the bot is being spoken to."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.domain.errors import ConfigError
from hermes.entry.chat.telegram.mention import Spoken, judge
from hermes.entry.chat.telegram.patterns import MentionPattern
from hermes.entry.chat.telegram.settings import TelegramSettings


def heard(spoken: Spoken, **settings: Any) -> bool:
    return judge(spoken, TelegramSettings(token="1:a", **settings)).heard


def group(**more: Any) -> Spoken:
    usual: dict[str, Any] = {"private": False, "chat_id": "-5", "text": "hello all"}
    return Spoken(**(usual | more))


def test_a_private_chat_needs_no_mention() -> None:
    assert heard(Spoken(private=True, chat_id="5"))
    assert heard(Spoken(private=True, chat_id="5"), allowed_chats=frozenset({"-9"}))


def test_a_group_needs_one() -> None:
    assert not heard(group())
    assert heard(group(mentioned=True))
    assert heard(group(replied_to=True))
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
    assert not heard(group(replied_to=True), allowed_chats=elsewhere, guest_mode=True)


def test_an_ignored_thread_is_ignored_even_in_private() -> None:
    assert not heard(group(mentioned=True, thread_id="7"), ignored_threads=frozenset({"7"}))
    private = Spoken(private=True, chat_id="5", thread_id="7")
    assert not heard(private, ignored_threads=frozenset({"5:7"}))


def test_a_pattern_counts_as_a_mention() -> None:
    patterns = (MentionPattern(r"^hey hermes\b"),)
    assert heard(group(text="Hey Hermes, hi"), mention_patterns=patterns)
    assert not heard(group(text="oh hey hermes"), mention_patterns=patterns)


@pytest.mark.parametrize(
    "evil",
    [
        r"(a+)+$",
        r"(a|a)*b",
        r"(a*)*b",
        r"(?:x+x+)+y",
        "a?" * 30 + "a" * 30,
        ".*" * 12,
        r"(\w+\s?)+$",
    ],
)
def test_a_pattern_that_could_take_for_ever_is_refused(evil: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        MentionPattern(evil)


@pytest.mark.parametrize("allowed", [r"\w+\s*\w+!", r".*hermes.*", r"(hey|hi)? hermes", r"a+b+c"])
def test_a_pattern_that_is_allowed_is_quick_on_the_worst_text(allowed: str) -> None:
    pattern = MentionPattern(allowed)
    started = time.process_time()
    for text in ("a" * 5000, "aaa " * 1000, "ab" * 3000):
        pattern.found_in(text)
    assert time.process_time() - started < 0.5


@settings(deadline=None)
@given(st.text(alphabet="ab|()*+?{}[]\\^$.,1 ", max_size=30))
def test_any_text_is_a_pattern_or_a_config_error(source: str) -> None:
    try:
        pattern = MentionPattern(source)
    except ConfigError:
        return
    started = time.process_time()
    pattern.found_in("ab" * 2000 + "a" * 500)
    assert time.process_time() - started < 1.0
