"""How deep JSON is nested, and what it costs to tell."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from hermes.domain.nesting import MAX_NESTING, nested_too_deeply


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


def wrapped(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value, level] if level % 2 else {"[{": value}
    return value


JSON = st.recursive(
    st.integers() | st.text('[]{}\\"x', max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("[{", max_size=3), inner),
    max_leaves=20,
)


@given(st.lists(st.tuples(JSON, st.integers(MAX_NESTING - 8, MAX_NESTING + 2)), max_size=3))
def test_levels_are_those_of_the_deepest_value(found: list[tuple[Any, int]]) -> None:
    value = [wrapped(inner, levels) for inner, levels in found]
    assert nested_too_deeply(json.dumps(value).encode()) == (depth(value) > MAX_NESTING)


@pytest.mark.parametrize(
    "text", ["[" * 101, "]" * 500 + "[" * 101, "[[]" * 101, "[]" * 9 + "[" * 101]
)
def test_what_is_no_json_is_too_deep_if_very_much_is_open(text: str) -> None:
    assert nested_too_deeply(text.encode())


@pytest.mark.parametrize(
    "group", ["[" * 90 + "]" * 90, "[[][][[]]]", "[" * 40 + "[]" * 20 + "]" * 40]
)
def test_it_costs_the_same_however_deep_it_is(group: str) -> None:
    size = 2_000_000
    flat = b"[" + b"[]," * (size // 3)
    deep = b"[" + f"{group},".encode() * (size // len(group))
    assert least_cpu(lambda: nested_too_deeply(deep)) < 20 * least_cpu(
        lambda: nested_too_deeply(flat)
    )
