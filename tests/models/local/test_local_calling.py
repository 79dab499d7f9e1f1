"""Requests for a small model: what it may call, and what comes back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.local.embedded import FORMS, HiddenForms, called, constrain, paths_for

TOOLS = tuple(
    ToolSpec(name=name, description="", parameters={"type": "object"}, toolset="file")
    for name in ("read_file", "search_files")
)
LIST, READ = FORMS


def _request(text: str, *more: Message, **fields: Any) -> ModelRequest:
    messages = (UserMessage(content=text), *more)
    return ModelRequest(**{"system": "You are H.", "messages": messages, "tools": TOOLS, **fields})


def _texts(request: ModelRequest) -> list[str]:
    return [m.text if isinstance(m, AssistantMessage) else str(m.content) for m in request.messages]


def _called(name: str, arguments: str) -> AssistantMessage:
    return AssistantMessage(tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("show me notes.md", ["notes.md"]),
        ("What does docs/index.md say?", ["docs/index.md"]),
        ("read README", ["README"]),
        ("compare a.py with b.py.", ["a.py", "b.py"]),
        ("view .gitignore", [".gitignore"]),
        ("What is the capital of France?", []),
    ],
)
def test_only_files_that_were_named_can_be_read(text: str, paths: list[str]) -> None:
    assert paths_for(READ, text) == paths


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("list the files here", ["."]),
        ("What is in the folder lib?", ["lib"]),
        ("what's inside the tests directory?", ["tests"]),
        ("List all files in /tmp", ["/tmp"]),
        ("show directory contents", ["."]),
        ("Which files are in this directory?", ["."]),
        ("Write a haiku about the sea", []),
        ("Hello!", []),
    ],
)
def test_only_folders_that_were_named_or_this_one_can_be_listed(
    text: str, paths: list[str]
) -> None:
    assert paths_for(LIST, text) == paths


def test_the_grammar_allows_words_or_one_of_the_named_paths() -> None:
    rewritten = constrain(_request("show me notes.md", response_schema={}))
    assert '"<read>" ("notes.md")' in rewritten.options["grammar"]
    assert "[^<]" in rewritten.options["grammar"]
    assert rewritten.request.tools == ()
    assert rewritten.request.response_schema is None


def test_small_talk_is_not_constrained_but_keeps_the_same_prefix() -> None:
    chat = constrain(_request("Hello!"))
    call = constrain(_request("show me notes.md"))
    assert "grammar" not in chat.options
    assert chat.forms == ()
    assert chat.request.system == call.request.system
    assert chat.request.messages[:-1] == call.request.messages[:-1]


def test_without_tools_nothing_is_offered() -> None:
    bare = constrain(_request("list the files", tools=()))
    assert "grammar" not in bare.options
    assert (bare.request.system, _texts(bare.request)) == ("You are H.", ["list the files"])
    assert constrain(_request("list the files", tool_choice="none")).forms == ()


def test_a_written_form_becomes_a_call() -> None:
    message = called(AssistantMessage(text="<list>src"), FORMS)
    (call,) = message.tool_calls
    assert call.name == "search_files"
    assert json.loads(call.arguments) == {"pattern": "*", "target": "files", "path": "src"}
    assert message.text == ""
    words = AssistantMessage(text="The capital is Paris.")
    assert called(words, FORMS) == words


def test_a_listener_hears_words_at_once_and_a_form_never() -> None:
    for pieces, heard in ((["Hel", "lo <3"], "Hello <3"), (["<", "read>", "notes.md"], "")):
        seen: list[str] = []

        class Listener:
            on_text = staticmethod(seen.append)
            on_reasoning = on_notice = on_restart = staticmethod(lambda *_: None)
            on_call = staticmethod(lambda *_: False)

        hidden = HiddenForms(Listener())
        for piece in pieces:
            hidden.on_text(piece)
        assert "".join(seen) == heard


def test_after_a_result_the_model_sees_it_as_its_own_words_and_cannot_call_again() -> None:
    result = ToolMessage(call_id="1", name="read_file", content="1|Buy milk\n2|" + "x" * 5000)
    called = _called("read_file", '{"path": "notes.txt"}')
    rewritten = constrain(_request("What does notes.txt say?", called, result))
    assert rewritten.forms == ()
    asked, said, again = _texts(rewritten.request)
    assert asked == "What does notes.txt say?"
    assert said.startswith("The file says:\nBuy milk\n")
    assert len(said) < 1500
    assert again == "So, What does notes.txt say?"


def test_earlier_calls_are_shown_in_their_short_form() -> None:
    request = _request(
        "list the files",
        _called("search_files", '{"path": "src"}'),
        ToolMessage(call_id="1", name="search_files", content="a.py"),
        AssistantMessage(text="There is a.py."),
        UserMessage(content=(TextPart("thanks"),)),
    )
    texts = _texts(constrain(request).request)
    assert texts[-4:] == ["<list>src", "a.py", "There is a.py.", "thanks"]


@given(st.text(max_size=200))
def test_any_message_gives_a_request_whose_calls_quote_it(text: str) -> None:
    rewritten = constrain(_request(text))
    for form in rewritten.forms:
        for path in paths_for(form, text):
            assert path == "." or path in text
