"""What was typed: commands, text, and near misses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.registry import (
    Category,
    Invocation,
    SlashCommand,
    parse,
)
from hermes.control.commands.wording import spelled
from hermes.domain.errors import NotFound


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("/help", Invocation(name="help")),
        ("  /Title  My talk ", Invocation(name="title", rest="My talk")),
        ("/steer line one\nline two", Invocation(name="steer", rest="line one\nline two")),
        ("/status@hermes_bot now", Invocation(name="status", rest="now")),
        ("//etc is a path", "/etc is a path"),
        ("/usr/bin/env is a path", "/usr/bin/env is a path"),
        ("/ is the root", "/ is the root"),
        ("hello /help", "hello /help"),
        ("", ""),
    ],
)
def test_commands_are_told_from_text(typed: str, parsed: Invocation | str) -> None:
    assert parse(typed) == parsed


def test_arguments_are_split_with_quotes() -> None:
    assert Invocation(name="model", rest="'my model' --provider x").words == (
        "my model",
        "--provider",
        "x",
    )


def test_an_apostrophe_is_no_quote() -> None:
    assert Invocation(name="deny", rest="don't").words == ("don't",)


@given(st.text())
def test_text_that_is_no_command_is_kept_as_it_was_typed(text: str) -> None:
    parsed = parse(text)

    if not text.strip().startswith("/"):
        assert parsed == text


@given(st.text())
def test_a_doubled_slash_sends_any_text_that_begins_with_one(text: str) -> None:
    escaped = parse(f"//{text}")

    assert escaped == f"/{text}".rstrip()


def test_an_unknown_command_suggests_what_may_be_meant() -> None:
    with pytest.raises(NotFound) as refused:
        builtin_registry().resolve("modle", terminal=True)

    assert "/model" in refused.value.hint
    assert "//modle" in refused.value.hint


def test_an_unambiguous_beginning_is_enough() -> None:
    registry = builtin_registry()

    assert registry.resolve("comp", terminal=False).name == "compress"
    with pytest.raises(NotFound):
        registry.resolve("re", terminal=True)


def test_commands_exist_only_at_their_doors() -> None:
    registry = builtin_registry()
    chat = {spec.name for spec in registry.commands(terminal=False)}
    terminal = {spec.name for spec in registry.commands(terminal=True)}

    assert {"quit", "clear", "skin", "config"} <= terminal - chat
    assert "commands" in chat - terminal
    assert {"new", "retry", "undo", "model", "stop", "approve", "usage"} <= chat & terminal


def test_every_command_of_the_list_is_there() -> None:
    wanted = """help new reset retry undo title resume sessions branch fork model usage compress
    stop queue steer busy save history tools reasoning verbose yolo clear version quit exit status
    config approve deny statusbar skin whoami copy image"""
    registry = builtin_registry()

    assert [name for name in wanted.split() if registry.find(name, terminal=True) is None] == []


def test_two_commands_of_one_name_are_refused() -> None:
    async def nothing(context: object, invocation: object) -> None:
        return None

    again = SlashCommand(
        name="other", aliases=("help",), category=Category.INFO, help="x", run=nothing
    )

    with pytest.raises(ValueError, match="two commands are called /help"):
        builtin_registry((again,))


def test_commands_are_written_as_a_platform_takes_them() -> None:
    text = "/stop ends it, or `/new`. See /new/x, /newer, a/new and /help."
    assert spelled(text, "/", ["stop", "new", "help"]) == text
    assert spelled(text, "!", ["stop", "new", "help"]) == (
        "!stop ends it, or `!new`. See /new/x, /newer, a/new and !help."
    )
