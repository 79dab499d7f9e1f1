from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.document import InvalidConfig, parse_document
from hermes.domain.errors import ConfigError


def parse(text: str) -> dict[str, object]:
    return parse_document(text.encode(), "config.yaml").data


def failure(content: bytes | str) -> str:
    data = content.encode() if isinstance(content, str) else content
    with pytest.raises(InvalidConfig) as caught:
        parse_document(data, "config.yaml")
    assert caught.value.exit_code == 78
    return caught.value.message


def test_each_value_knows_its_line_and_literal_text() -> None:
    document = parse_document(b"a: 1\nb:\n  c: off\n  d: [x, 'y']\n", "config.yaml")
    assert document.data == {"a": 1, "b": {"c": False, "d": ["x", "y"]}}
    assert document.origin(("b", "c")) == "config.yaml:3"
    assert document.marks["b", "c"].text == "off"
    assert document.origin(("b", "d", "1")) == "config.yaml:4"
    assert document.origin(("b", "d", "1", "nothing")) == "config.yaml:4"


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "\ufeff", "null\n"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert parse(text) == {}


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert parse("\ufeffmodel: x\n") == {"model": "x"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("-100123: a\non: b\n1.5: c\n") == {"-100123": "a", "on": "b", "1.5": "c"}


def test_dates_and_clock_times_stay_text() -> None:
    assert parse("a: 2024-01-01\nb: 12:30\n") == {"a": "2024-01-01", "b": "12:30"}


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\nz: *x\n"
    assert parse(text) == {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}, "z": {"a": 1, "b": 2}}


def test_a_key_that_is_given_twice_is_a_warning_and_the_later_value_counts() -> None:
    document = parse_document(b"a: {x: 1}\nb: 2\na: 3\n", "config.yaml")
    assert document.data == {"a": 3, "b": 2}
    assert document.warnings == ["config.yaml:3: a is given twice; the later value is used"]
    assert ("a", "x") not in document.marks


def test_broken_yaml_names_line_column_and_the_line_itself() -> None:
    assert failure("a: 1\nb: c: d\n") == (
        "config.yaml:2:5: mapping values are not allowed in this context, at `b: c: d`."
    )
    assert "config.yaml:2" in failure("a: 1\nb: [1, 2\n")


def test_the_line_of_a_syntax_error_does_not_show_a_secret() -> None:
    message = failure("api_key: sk-very-secret: x\n")
    assert "sk-very-secret" not in message
    assert "`api_key: ***`" in message


def test_a_tab_in_the_indentation_is_named_as_such() -> None:
    with pytest.raises(InvalidConfig, match="indented with a tab") as caught:
        parse_document(b"a:\n\tb: 1\n", "config.yaml")
    assert caught.value.hint == "Use spaces."
    assert parse("a: |\n  x\n  \ty\n") == {"a": "x\n\ty\n"}


def test_a_file_in_another_encoding_is_named_as_such() -> None:
    assert "config.yaml:2: byte 0xe9 is not UTF-8" in failure(b"a: 1\nb: caf\xe9\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "should be a mapping of keys to values but is a list"),
        ("just words\n", "but is a single value"),
        ("a: *nowhere\n", "`*nowhere` refers to nothing"),
        ("a: &a [*a]\n", "`*a` refers to nothing"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("? [a, b]\n: c\n", "a key of the file is not text"),
        ("a: !!int words\n", "not valid YAML"),
        ("a: !!bool words\n", "not valid YAML"),
    ],
)
def test_other_shapes_are_refused_with_a_reason(text: str, expected: str) -> None:
    assert expected in failure(text)


def test_deep_nesting_is_refused_and_does_not_crash_the_process() -> None:
    assert "levels deep" in failure("a: " + "[" * 100_000)


def test_aliases_cannot_make_a_small_file_enormous() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "far too many values" in failure("\n".join(lines))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_parse_or_raise_a_config_error(content: bytes) -> None:
    with suppress(ConfigError):
        assert isinstance(parse_document(content, "config.yaml").data, dict)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t<0123.~", max_size=60))
def test_yaml_like_text_parses_or_raises_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(parse(text), dict)
