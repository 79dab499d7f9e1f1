"""Filters: what holds, what is refused when it is loaded, and how long it may take."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.webhooks.payload import Facts, Filter
from hermes.domain.errors import ConfigError, HermesError

PAYLOAD: dict[str, Any] = {
    "action": "opened",
    "number": 7,
    "draft": False,
    "note": None,
    "labels": [{"name": "bug"}, {"name": "ui"}],
    "tags": ["a", "b"],
}
FACTS = Facts(payload=PAYLOAD, event="pull_request", headers={"x-kind": "Nightly"})


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"field": "payload.action", "equals": "opened"}, True),
        ({"field": "payload.action", "equals": "closed"}, False),
        ({"field": "payload.number", "equals": 7.0}, True),
        ({"field": "payload.draft", "equals": 0}, False),
        ({"field": "payload.missing", "equals": None}, False),
        ({"field": "payload.note", "equals": None}, True),
        ({"field": "payload.action", "not_equals": "closed"}, True),
        ({"field": "payload.missing", "not_equals": "closed"}, True),
        ({"field": "payload.action", "contains": "pen"}, True),
        ({"field": "payload.tags", "contains": "b"}, True),
        ({"field": "payload.tags", "contains": "c"}, False),
        ({"field": "payload.number", "contains": "7"}, False),
        ({"field": "event", "in": ["push", "pull_request"]}, True),
        ({"field": "event", "in": []}, False),
        ({"field": "headers.X-Kind", "equals": "Nightly"}, True),
        ({"field": "payload.labels.1.name", "equals": "ui"}, True),
        ({"field": "payload.action", "regex": "^open"}, True),
        ({"field": "payload.missing", "regex": ".*"}, False),
        ({"field": "payload.note", "exists": True}, True),
        ({"field": "payload.note", "missing": True}, False),
        ({"field": "headers.x-none", "missing": True}, True),
        ({"field": "payload.action", "exists": False}, False),
        ({"field": "payload.action", "equals": "opened", "regex": "closed"}, False),
        ([{"field": "event", "equals": "pull_request"}, {"field": "event", "equals": "x"}], False),
        ({"all": [{"field": "event", "exists": True}]}, True),
        ({"any": [{"field": "event", "equals": "x"}, {"field": "event", "exists": True}]}, True),
        ({"not": {"field": "event", "equals": "pull_request"}}, False),
        ({"not": {"any": [{"field": "event", "equals": "x"}]}}, True),
    ],
)
def test_conditions_hold(tmp_path: Path, condition: Any, holds: bool) -> None:
    assert Filter(condition, tmp_path).holds(FACTS) is holds


@pytest.mark.parametrize(
    "condition",
    [
        {},
        "payload.action",
        5,
        {"field": "payload.action"},
        {"field": "action", "equals": "x"},
        {"field": "payload.", "equals": "x"},
        {"field": "headers", "exists": True},
        {"field": 3, "equals": "x"},
        {"field": "event", "equal": "x"},
        {"field": "event", "in": "push"},
        {"field": "event", "exists": "yes"},
        {"field": "event", "regex": "("},
        {"field": "event", "regex": "(a+)+$"},
        {"field": "event", "regex": "(a*)*$"},
        {"field": "event", "regex": "a" * 600},
        {"field": "event", "in_file": "../outside.txt"},
        {"field": "event", "in_file": "/etc/passwd"},
        {"any": []},
        {"any": {"field": "event", "equals": "x"}},
        {"any": [{"field": "event", "exists": True}], "all": [{"field": "event", "exists": True}]},
        {"xor": [{"field": "event", "exists": True}]},
    ],
)
def test_a_filter_that_cannot_work_is_refused_when_it_is_loaded(
    tmp_path: Path, condition: Any
) -> None:
    with pytest.raises(ConfigError):
        Filter(condition, tmp_path)


def test_filters_nested_without_end_are_refused(tmp_path: Path) -> None:
    condition: Any = {"field": "event", "exists": True}
    for _ in range(50):
        condition = {"not": condition}
    with pytest.raises(ConfigError, match="nested"):
        Filter(condition, tmp_path)


@pytest.mark.parametrize("text", ["# people\nann\nbob\n", '["ann", "bob"]'])
def test_a_value_can_be_looked_for_in_a_file_of_the_home(tmp_path: Path, text: str) -> None:
    (tmp_path / "people.txt").write_text(text, encoding="utf-8")
    condition = Filter({"field": "payload.who", "in_file": "people.txt"}, tmp_path)
    for who, listed in (("ann", True), ("eve", False), ("# people", False)):
        facts = Facts(payload={"who": who}, event="e", headers={})
        assert condition.holds(facts) is listed


def test_a_link_out_of_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.txt").write_text("x", encoding="utf-8")
    (home / "list.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ConfigError, match="home"):
        Filter({"field": "event", "in_file": "list.txt"}, home)


def test_a_list_that_cannot_be_read_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    condition = Filter({"field": "event", "in_file": "none.txt"}, tmp_path)
    with pytest.raises(HermesError, match=r"none\.txt"):
        condition.holds(FACTS)


conditions = st.recursive(
    st.builds(
        lambda field, word, value: {"field": field, word: value},
        st.sampled_from(["payload.action", "payload.labels.0.name", "event", "headers.a", "x"]),
        st.sampled_from(["equals", "not_equals", "contains", "in", "exists", "regex", "odd"]),
        st.sampled_from(["opened", "bug", True, 7, ["opened"], None]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(lambda w, i: {w: i}, st.sampled_from(["all", "any"]), st.lists(inner))
        | st.builds(lambda i: {"not": i}, inner)
    ),
    max_leaves=8,
)


@given(condition=conditions)
def test_a_filter_and_its_opposite_never_agree(condition: Any) -> None:
    home = Path("/nowhere")
    try:
        plain = Filter(condition, home)
        opposite = Filter({"not": condition}, home)
    except ConfigError:
        return
    assert plain.holds(FACTS) is not opposite.holds(FACTS)
