"""What is read out of a request: payload, event, delivery id; and the rate limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.webhooks.intake import (
    HookRefused,
    RateLimit,
    delivery_id_of,
    event_of,
    parse_body,
)
from hermes.control.webhooks.signatures import SCHEMES, identity


def test_json_and_forms_are_understood() -> None:
    assert parse_body(b'{"a": [1]}') == {"a": [1]}
    assert parse_body(b"a=1&b=x%20y&a=2") == {"a": ["1", "2"], "b": "x y"}
    assert parse_body(b"payload=%7B%22a%22%3A1%7D") == {"a": 1}


def test_what_calls_itself_something_else_is_no_form() -> None:
    form = "Application/X-WWW-Form-Urlencoded; charset=utf-8"
    assert parse_body(b"a=1", form) == {"a": "1"}
    assert parse_body(b'{"a": 1}', form) == {"a": 1}
    for kind in ("application/json", "text/plain"):
        with pytest.raises(HookRefused, match="nor called a form"):
            parse_body(b"a=1", kind)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"5",
        b'"text"',
        b"null",
        b"just words",
        b"\xff\xfe",
        b"[" * 200_000,
        b"a=%ff",
        b"[0" + b",0" * 100_000 + b"]",
    ],
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(HookRefused) as refused:
        parse_body(body)
    assert refused.value.status == 400


@given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_body_is_understood_or_refused(body: bytes) -> None:
    try:
        payload = parse_body(body)
    except HookRefused:
        return
    assert isinstance(payload, (dict, list))
    assert event_of({}, payload)


def test_the_kind_of_event_is_found_where_services_put_it() -> None:
    assert event_of({"x-github-event": "push"}, {"type": "x"}) == "push"
    assert event_of({"x-gitlab-event": "Merge Request Hook"}, {}) == "Merge Request Hook"
    assert event_of({}, {"event_type": "a", "type": "b"}) == "a"
    assert event_of({}, {"type": "b"}) == "b"
    assert event_of({}, {"type": {"odd": 1}}) == "unknown"
    assert event_of({}, []) == "unknown"
    assert event_of({}, {"type": "x\x1b[31m\n" + "y" * 500}) == ("x[31m" + "y" * 500)[:100]


def test_the_delivery_id_is_the_senders() -> None:
    named = {"x-github-delivery": "g", "x-request-id": "r"}
    assert identity(SCHEMES["github"], named, b"")[0] == "g"
    assert identity(SCHEMES["gitlab"], {"x-gitlab-event-uuid": "u"}, b"") == ("u", None)
    assert delivery_id_of("a", "g", b"{1}") == "g"


def test_an_id_that_is_signed_comes_before_one_that_is_not() -> None:
    named = {"x-github-delivery": "made-up", "svix-id": "signed", "svix-signature": "v1,x"}
    assert identity(SCHEMES["svix"], named, b"") == ("signed", None)


def test_a_body_without_an_id_is_known_by_itself_on_its_route() -> None:
    first = delivery_id_of("a", None, b"{1}")
    assert first == delivery_id_of("a", None, b"{1}")
    assert first != delivery_id_of("a", None, b"{2}")
    assert first != delivery_id_of("b", None, b"{1}")


@pytest.mark.parametrize("given", ["x" * 201, "a b", "a\x00", "é", "a\n"])
def test_an_odd_delivery_id_is_refused(given: str) -> None:
    with pytest.raises(HookRefused):
        delivery_id_of("a", given, b"{}")


def test_a_route_has_room_again_when_its_minute_has_passed() -> None:
    limit = RateLimit(2)
    assert limit.wait("a", 0.0) is None
    assert limit.wait("a", 10.0) is None
    assert limit.wait("a", 30.5) == 30
    assert limit.wait("b", 30.5) is None
    assert limit.wait("a", 60.0) is None
    assert limit.wait("a", 60.0) == 10
    assert RateLimit(0).wait("a", 0.0) is None


@given(gaps=st.lists(st.floats(0, 30), max_size=80), limit=st.integers(1, 5))
def test_no_minute_has_more_than_the_limit(gaps: list[float], limit: int) -> None:
    rate, now, taken = RateLimit(limit), 0.0, []
    for gap in gaps:
        now += gap
        if rate.wait("a", now) is None:
            taken.append(now)
    for start in taken:
        assert sum(start <= at < start + 60 for at in taken) <= limit
