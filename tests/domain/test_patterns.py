"""Patterns that cannot be made to take long."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.domain.errors import ConfigError
from hermes.domain.patterns import SafePattern


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
        SafePattern(evil)


@pytest.mark.parametrize("allowed", [r"\w+\s*\w+!", r".*hermes.*", r"(hey|hi)? hermes", r"a+b+c"])
def test_a_pattern_that_is_allowed_is_quick_on_the_worst_text(allowed: str) -> None:
    pattern = SafePattern(allowed)
    started = time.process_time()
    for text in ("a" * 5000, "aaa " * 1000, "ab" * 3000):
        pattern.found_in(text)
    assert time.process_time() - started < 0.5


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


@pytest.mark.parametrize(
    "pattern", [".*.*x", ".*.*.*x", "a*a*a*a*a*b", r"(\w+\s)x", "(foo|bar)?baz", "^(feat|fix): .+$"]
)
def test_every_pattern_that_is_accepted_ends_soon(pattern: str) -> None:
    regex = SafePattern(pattern)
    begun = time.perf_counter()
    regex.found_in("a" * 100_000)
    assert time.perf_counter() - begun < 5
