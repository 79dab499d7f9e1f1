import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.config.dotenv import parse_env, set_env, unset_env
from hermes.domain.errors import UsageError

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).map(lambda name: f"X_{name}")
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("  export A = spaced  ", "spaced"),
        ("A=with # comment", "with"),
        ("A=with#hash", "with#hash"),
        ("A='single $x \\n'", "single $x \\n"),
        ('A="double \\n\\"q\\" \\\\" # comment', 'double \n"q" \\'),
        ('A="two\nlines"', "two\nlines"),
        ("A=", ""),
        ("A=# nothing", ""),
        ("A=a=b==", "a=b=="),
        ('A="unclosed', '"unclosed'),
        ("A='x' trailing", "'x' trailing"),
        ("A=crlf\r", "crlf"),
        ('A="crlf in quotes"\r', "crlf in quotes"),
    ],
)
def test_values_are_read_as_a_shell_user_expects(line: str, value: str) -> None:
    assert parse_env(line + "\nB=next\n").values == {"A": value, "B": "next"}


def test_comments_and_blank_lines_are_skipped_and_nonsense_is_a_warning() -> None:
    found = parse_env("# c\n\nA=1\nnonsense here\n9=x\n")
    assert found.values == {"A": "1"}
    assert found.lines == {"A": 3}
    assert [warning.split(":")[1] for warning in found.warnings] == ["4", "5"]
    assert "nonsense" not in "".join(found.warnings)


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "DYLD_X", "PYTHONPATH", "HERMES_HOME", "EDITOR", "BROWSER", "GIT_DIR"],
)
def test_variables_that_steer_programs_are_refused(name: str) -> None:
    found = parse_env(f"A=1\n{name}=/evil\n")
    assert found.values == {"A": "1"}
    assert found.warnings == (f".env:2: {name} may not be set here and is ignored",)
    with pytest.raises(UsageError, match="may not be set"):
        set_env("", name, "x")


def test_the_last_of_two_lines_counts_and_is_the_one_that_is_changed() -> None:
    text = "A=1\nA=2\n"
    assert parse_env(text).values == {"A": "2"}
    assert set_env(text, "A", "3") == "A=1\nA=3\n"
    assert unset_env(text, "A") == ""


def test_setting_keeps_comments_and_order() -> None:
    text = "# keys\nA=1 # old\n\n# other\nB=2"
    assert set_env(text, "A", "new value") == '# keys\nA="new value"\n\n# other\nB=2'
    assert set_env(text, "C", "3") == text + "\nC=3\n"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="not a variable name"):
        set_env("", "a-b", "x")


def test_the_representation_shows_no_values() -> None:
    assert "hunter2hunter2" not in repr(parse_env("KEY=hunter2hunter2"))


@given(st.dictionaries(names, values, max_size=5))
def test_what_is_set_is_read_back(entries: dict[str, str]) -> None:
    text = "# head\n"
    for name, value in entries.items():
        text = set_env(text, name, value)
    assert parse_env(text).values == entries
    assert text.startswith("# head\n")


@given(values, names, values)
def test_setting_a_name_in_any_text_sets_exactly_that_name(
    text: str, name: str, value: str
) -> None:
    before = parse_env(text).values
    assume(name not in before)
    # An unclosed quote swallows what follows it, as it does in a shell.
    assume('"' not in text and "'" not in text)
    after = set_env(text, name, value)
    assert parse_env(after).values == {**before, name: value}
    assert parse_env(unset_env(after, name)).values == before
