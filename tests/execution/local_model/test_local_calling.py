"""Requests for a small model: what it may call, and what comes back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.execution.local_model.calling import FORMS, constrain, paths_for, tool_call

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read_file", "search_files")]
LIST, READ = FORMS


def _request(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "You are H."}, {"role": "user", "content": text}]
    return {"messages": messages, "tools": TOOLS, **fields}


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
    body = constrain(_request("show me notes.md")).body
    assert '"<read>" ("notes.md")' in body["grammar"]
    assert "[^<]" in body["grammar"]
    assert "tools" not in body


def test_small_talk_is_not_constrained_but_keeps_the_same_prefix() -> None:
    chat = constrain(_request("Hello!"))
    call = constrain(_request("show me notes.md"))
    assert "grammar" not in chat.body
    assert chat.forms == ()
    assert chat.body["messages"][:-1] == call.body["messages"][:-1]


def test_without_tools_nothing_is_offered() -> None:
    body = constrain({"messages": [{"role": "user", "content": "list the files"}]}).body
    assert "grammar" not in body
    assert body["messages"] == [{"role": "user", "content": "list the files"}]
    assert constrain(_request("list the files", tool_choice="none")).forms == ()


def test_a_written_form_becomes_a_call() -> None:
    call = tool_call("<list>src", FORMS)
    assert call is not None
    assert call["function"]["name"] == "search_files"
    assert json.loads(call["function"]["arguments"]) == {
        "pattern": "*",
        "target": "files",
        "path": "src",
    }
    assert tool_call("The capital is Paris.", FORMS) is None


def test_after_a_result_the_model_sees_it_as_its_own_words_and_cannot_call_again() -> None:
    request = _request("What does notes.txt say?")
    function = {"name": "read_file", "arguments": '{"path": "notes.txt"}'}
    request["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "1|Buy milk\n2|" + "x" * 5000},
    ]
    rewritten = constrain(request)
    assert rewritten.forms == ()
    asked, said, again = rewritten.body["messages"]
    assert asked["content"] == "What does notes.txt say?"
    assert said["content"].startswith("The file says:\nBuy milk\n")
    assert len(said["content"]) < 1500
    assert again == {"role": "user", "content": "So, What does notes.txt say?"}


def test_earlier_calls_are_shown_in_their_short_form() -> None:
    request = _request("list the files")
    function = {"name": "search_files", "arguments": '{"path": "src"}'}
    request["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "a.py"},
        {"role": "assistant", "content": "There is a.py."},
        {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
    ]
    texts = [message["content"] for message in constrain(request).body["messages"]]
    assert texts[-4:] == ["<list>src", "a.py", "There is a.py.", "thanks"]


def test_an_answer_is_bounded_unless_the_request_bounds_it() -> None:
    assert constrain(_request("Hello!")).body["max_tokens"] == 400
    assert constrain(_request("Hello!", max_tokens=7)).body["max_tokens"] == 7
    assert "max_tokens" not in constrain(_request("Hello!", max_completion_tokens=7)).body


@given(st.text(max_size=200))
def test_any_message_gives_a_request_whose_calls_quote_it(text: str) -> None:
    rewritten = constrain(_request(text))
    for form in rewritten.forms:
        for path in paths_for(form, text):
            assert path == "." or path in text
