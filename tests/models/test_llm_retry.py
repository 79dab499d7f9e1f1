"""How long is waited, in all the ways providers say it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.models.client import RetryPolicy, backoff, retry_after

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-reset-tokens": "6ms"}, 0.006),
        ({"x-ratelimit-reset": "1700000030"}, 30.0),
        ({"x-ratelimit-reset": "1700000030000"}, 30.0),
        ({"anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_wish_of_the_provider_is_read(headers: dict[str, str], seconds: float | None) -> None:
    got = retry_after(headers, NOW)
    assert got == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=30))
def test_nonsense_is_never_an_error_or_a_negative_wait(value: str) -> None:
    got = retry_after({"retry-after": value, "x-ratelimit-reset": value}, NOW)
    assert got is None or got >= 0


@given(attempt=st.integers(1, 30), seed=st.integers())
def test_backoff_stays_within_its_bounds(attempt: int, seed: int) -> None:
    policy = RetryPolicy()
    delay = backoff(attempt, policy, random.Random(seed))
    base = min(5.0 * 2 ** (attempt - 1), 120.0)
    assert base <= delay <= base * 1.5
