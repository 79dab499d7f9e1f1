"""Patterns that cannot be made to take long."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from hermes.domain.errors import ConfigError
from hermes.domain.patterns import SafePattern, any_found

EVIL = [
    r"(a+)+$",
    r"(a|a)*b",
    r"(a*)*b",
    r"(?:x+x+)+y",
    "a?" * 30 + "a" * 30,
    ".*" * 12,
    r"(\w+\s?)+$",
    r"(?P<n>a+)(?P=n)+$",
    r"(?:(?:a{1,20}){1,20}){1,20}b",
]
LONG = ["a" * 5000 + "!", "aaa " * 2000 + "!", "ab" * 50_000, "x" * 200_000]


@pytest.mark.parametrize("evil", EVIL)
def test_a_pattern_that_could_take_for_ever_is_given_up(evil: str) -> None:
    try:
        pattern = SafePattern(evil)
    except ConfigError:
        return
    for text in LONG:
        begun = time.process_time()
        pattern.found_in(text)
        assert time.process_time() - begun < 2.0, "seconds of work, not years"


def test_a_pattern_that_was_given_up_says_so() -> None:
    pattern = SafePattern(r"\s+$")
    assert pattern.found_in("end ")
    assert not pattern.too_slow
    assert not pattern.found_in(" " * 50_000 + "!")
    assert pattern.too_slow


@pytest.mark.parametrize(
    "huge",
    [
        "(x{1000}){1000}",
        r"(a+)+$",
        r"(\w+\s?)+$",
        r"(?:x+x+)+y",
        r"^(\w+\s?)*$",
        r"(?:\d+,?)*;",
        r"((a*)b?){2,}",
        "(((a{99}){99}){99}){99}",
        "x" * 501,
        "(",
    ],
)
def test_a_pattern_that_takes_too_long_is_refused(huge: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        SafePattern(huge)


def test_taking_a_pattern_costs_no_search() -> None:
    """However many different characters are in it, and however slow it is."""

    def cost(characters: str) -> float:
        source = rf"(.{{0,15}})(.{{0,15}})\2\d(?#{characters})"
        return least_cpu(lambda: [SafePattern(source) for _ in range(20)])

    usual = cost("a" * 440)
    assert cost("".join(map(chr, range(0x4E00, 0x4E00 + 440)))) < 50 * usual


def test_many_slow_patterns_share_one_deadline() -> None:
    slow = [SafePattern(r"\s+$") for _ in range(40)]
    spaces = " " * 50_000 + "!"
    one = least_cpu(lambda: slow[0].found_in(spaces))
    assert not any_found(slow, spaces, spaces)
    assert least_cpu(lambda: any_found(slow, spaces, spaces)) < 5 * one


@pytest.mark.parametrize(
    "source",
    [r"(?:\d+\.)+\d", r"^([a-z]+,)*[a-z]+$", r"(?:[0-9a-f]{2}:){5}", r"(?:foo|bar)+", r"(a+)?b"],
)
def test_repetitions_that_can_be_told_apart_are_taken(source: str) -> None:
    assert SafePattern(source).source == source


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\bгермес\b", "привет гермес"),
        (r"^hey,? hermes", "Hey hermes"),
        (r"listening on .*:\d+", "x" * 3000 + " listening on 127.0.0.1:8080"),
        (r"(?=.*error)(?=.*disk)", "disk error"),
        ("\ud800", "\ud800"),
    ],
)
def test_ordinary_patterns_find_what_they_should(source: str, text: str) -> None:
    assert SafePattern(source, ignore_case=True).found_in(text)


@settings(deadline=None)
@given(st.text(alphabet="ab|()*+?{}[]\\^$.,1 ", max_size=30))
def test_any_text_is_a_pattern_or_a_config_error(source: str) -> None:
    try:
        pattern = SafePattern(source)
    except ConfigError:
        return
    started = time.process_time()
    pattern.found_in("ab" * 2000 + "a" * 500)
    assert time.process_time() - started < 1.0
