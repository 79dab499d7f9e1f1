"""Damaged tool calls: what is mended, and what is left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.messages import ToolCall
from hermes.models.tool_calls import CallAssembler, repair_calls


def repair_arguments(text: str) -> str:
    (call,) = repair_calls((ToolCall(id="a", name="t", arguments=text),))
    return call.arguments


@pytest.mark.parametrize(
    ("damaged", "meant"),
    [
        ("", {}),
        ("  null ", {}),
        ("None", {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ("{'a': True, 'b': None}", {"a": True, "b": None}),
        ("{'it': 'isn\\'t'}", {"it": "isn't"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure! {"a": 1} there you go', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('{"a": 1}}', {"a": 1}),
    ],
)
def test_mechanical_damage_is_mended(damaged: str, meant: dict[str, Any]) -> None:
    assert json.loads(repair_arguments(damaged)) == meant


@pytest.mark.parametrize("text", ["hello", "[1, 2]", "42", "{a b c}", '{"a" 1}'])
def test_what_is_not_an_object_stays_as_it_is(text: str) -> None:
    assert repair_arguments(text) == text


@pytest.mark.parametrize(
    "deep", ["[" * 3000 + "]" * 3000, "[" * 3000, '{"a":' * 900 + "1" + "}" * 900]
)
def test_what_is_nested_too_deeply_is_kept_as_a_string(deep: str) -> None:
    kept = json.loads(repair_arguments(f'{{"command": {deep}}}'))
    assert isinstance(kept, str)
    assert kept.startswith('{"command": ' + deep[:5])
    assert len(kept) <= 2000
    brackets = json.dumps({"code": "[" * 5000})
    assert repair_arguments(brackets) == brackets


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_sound_arguments_pass_byte_for_byte(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert repair_arguments(text) == text


@given(st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=4), st.integers(0, 10_000))
def test_what_was_cut_off_is_never_closed(value: dict[str, Any], at: int) -> None:
    text = json.dumps(value)
    cut = text[: 1 + at % (len(text) - 1)]
    assert repair_arguments(cut) == cut


@given(st.text(max_size=60))
def test_no_text_breaks_the_repair(text: str) -> None:
    repair_arguments(text)
    repair_arguments("{" + text)


def test_missing_and_repeated_ids_are_replaced() -> None:
    calls = tuple(ToolCall(id=i, name=" t ", arguments="{}") for i in ("a", "a", "", ""))
    fixed = repair_calls(calls)
    assert fixed[0].id == "a"
    assert len({call.id for call in fixed}) == 4
    assert {call.name for call in fixed} == {"t"}


Fragment = tuple[int | None, str, str, str]
SERVERS: dict[str, list[Fragment]] = {
    "the standard": [
        (0, "x", "f", ""),
        (0, "", "", '{"a"'),
        (0, "", "", ":1}"),
        (1, "y", "g", ""),
        (1, "", "", '{"b":2}'),
    ],
    "interleaved": [
        (0, "x", "f", '{"a"'),
        (1, "y", "g", '{"b"'),
        (0, "", "", ":1}"),
        (1, "", "", ":2}"),
    ],
    "no index": [(None, "x", "f", '{"a":1}'), (None, "y", "g", '{"b":2}')],
    "no index, fragments by id": [
        (None, "x", "f", '{"a"'),
        (None, "x", "", ":1}"),
        (None, "y", "g", '{"b":2}'),
    ],
    "always index 0": [(0, "x", "f", '{"a":1}'), (0, "y", "g", '{"b":2}')],
    "name and id repeated": [
        (0, "x", "f", '{"a"'),
        (0, "x", "f", ":1}"),
        (1, "y", "g", '{"b"'),
        (1, "y", "g", ":2}"),
    ],
    "neither index nor id": [
        (None, "", "f", '{"a"'),
        (None, "", "", ":1}"),
        (None, "", "g", '{"b":2}'),
    ],
    "index 0 and no ids": [(0, "", "f", '{"a":1}'), (0, "", "g", '{"b":2}')],
}


@pytest.mark.parametrize("server", SERVERS)
def test_calls_are_put_together_from_any_server(server: str) -> None:
    assembler = CallAssembler()
    for fragment in SERVERS[server]:
        assembler.add(*fragment)
    assert [(call.name, call.arguments) for call in assembler.calls()] == [
        ("f", '{"a":1}'),
        ("g", '{"b":2}'),
    ]


def test_two_calls_of_one_tool_without_ids_stay_two() -> None:
    assembler = CallAssembler()
    for path in ("a", "b"):
        assembler.add(None, "", "read_file", f'{{"path":"{path}"}}')
    assert len(assembler.calls()) == 2
