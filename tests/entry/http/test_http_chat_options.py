"""What a chat request may want of its turn."""

from typing import Any

import msgspec
import pytest

from hermes.domain.turn import ClientTool, TurnOptions
from hermes.entry.http.api.chat import ChatRequest
from hermes.entry.http.api.options import turn_options
from hermes.entry.http.errors import Problem

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def request(**fields: Any) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return msgspec.json.decode(msgspec.json.encode(body), type=ChatRequest)


def options(**fields: Any) -> TurnOptions:
    return turn_options(request(**fields), "Be brief.")


def refused(**fields: Any) -> str | None:
    with pytest.raises(Problem) as caught:
        options(**fields)
    assert caught.value.status == 400
    return caught.value.param


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_nothing_special_is_wanted_by_default() -> None:
    assert options() == TurnOptions(instructions="Be brief.")
    assert options(n=1, tool_choice="auto", tools=[], response_format={"type": "text"}) == options()


def test_what_asks_for_nothing_is_as_if_it_were_not_there() -> None:
    extras = {"logit_bias": {}, "stop": [], "presence_penalty": 0, "logprobs": False}
    assert options(**extras, num_ctx=5, store=True, parallel_tool_calls=True) == options()


def test_wishes_are_passed_on() -> None:
    wanted = options(
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        max_tokens=100,
        temperature=0.2,
        reasoning_effort="low",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "array"}, "strict": True},
        },
    )
    assert wanted == TurnOptions(
        instructions="Be brief.",
        client_tools=(
            ClientTool(
                name="weather",
                description="Tells it.",
                parameters={"type": "object", "properties": {"city": {"type": "string"}}},
            ),
        ),
        tool_choice="weather",
        max_tokens=100,
        temperature=0.2,
        reasoning_effort="low",
        response_schema={"type": "array"},
        schema_name="x",
        schema_strict=True,
    )
    assert options(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert options(tool_choice="required").tool_choice == "required"
    assert options(response_format={"type": "json_object"}).json_object


def test_more_than_one_answer_is_refused() -> None:
    assert refused(n=2) == "n"
    assert refused(n=0) == "n"


def test_tools_need_good_names_each_of_its_own() -> None:
    assert refused(tools=[function("no spaces")]) == "tools[0].function.name"
    assert refused(tools=[function("x" * 65)]) == "tools[0].function.name"
    assert refused(tools=[function("a\n")]) == "tools[0].function.name"
    assert refused(tools=[function("none")]) == "tools[0].function.name"
    assert refused(tools=[function("a"), function("a")]) == "tools[1].function.name"
    assert refused(tools=[{"type": "web_search"}]) == "tools[0].type"
    assert refused(functions=[{"name": "old"}]) == "functions"


def test_a_choice_has_to_be_there() -> None:
    assert refused(tool_choice="weather") == "tool_choice"
    named = {"type": "function", "function": {"name": "other"}}
    assert refused(tools=[WEATHER], tool_choice=named) == "tool_choice.function.name"


def test_a_schema_has_to_be_there() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x"}}
    assert refused(response_format=wanted) == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.1},
        {"max_tokens": 0},
        {"reasoning_effort": "enormous"},
        {"messages": []},
        {"messages": [{"role": "user", "content": 5}]},
        {"stream": "yes"},
        {"response_format": {"type": "xml"}},
        {"user": "x" * 600},
    ],
)
def test_values_out_of_range_do_not_pass(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        request(**fields)


def test_whether_own_tools_ask_is_not_for_the_client_to_say() -> None:
    own = {"type": "mcp", "server_label": "hermes", "allowed_tools": ["look"]}
    assert options(tools=[own | {"require_approval": "never"}]).own_tools == ("look",)
    assert refused(tools=[own | {"require_approval": "always"}]) == "tools[0].require_approval"
