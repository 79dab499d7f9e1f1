"""What a request to `/v1/responses` says, in our words."""

import base64
from typing import Any

import msgspec
import pytest

from hermes.domain.inbound import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    FinishReason,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.runs import Run, RunKind
from hermes.domain.turn import ClientResult, ClientTool
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItem,
    StoredInput,
    read_items,
    stored,
)
from hermes.entry.http.api.options import turn_options
from hermes.entry.http.api.responses import InputItemsQuery, input_page
from hermes.entry.http.api.responses_request import (
    CreateResponse,
    base_resource,
    listed_input,
)
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.response_resource import FunctionTool

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


class Shelf:
    """Keeps pictures in a list."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    async def keep(self, data: bytes, media_type: str, name: str = "") -> Attachment:
        self.kept.append(data)
        name = name or f"{len(self.kept)}.png"
        return Attachment(kind="image", path=f"/shelf/{name}", name=name, media_type=media_type)

    async def fetch(self, url: str, name: str = "") -> Attachment:
        return await self.keep(url.encode(), "image/png", name)


def body(**fields: Any) -> CreateResponse:
    return msgspec.json.decode(msgspec.json.encode(fields), type=CreateResponse)


def user(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id: str, name: str = "look") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def output(call_id: str, said: Any = "result") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def talk(*items: dict[str, Any]) -> Conversation:
    return read_items(("input", msgspec.convert(items, tuple[InputItem, ...])))


async def read(*items: dict[str, Any], shelf: Shelf | None = None) -> StoredInput:
    return await stored(talk(*items), shelf or Shelf())


async def refused(*items: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        await read(*items)
    assert caught.value.status == 400
    return caught.value


async def test_the_last_words_of_the_user_are_the_input_and_the_rest_is_history() -> None:
    said = await read(user("My name is Ann."), assistant("Hello Ann."), user("My name?"))
    assert said.history == (
        UserMessage(content="My name is Ann."),
        AssistantMessage(text="Hello Ann."),
    )
    assert said.text == "My name?"


async def test_system_and_developer_messages_are_instructions() -> None:
    said = talk(
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        user("Hi"),
    )
    assert said.instructions == "Be brief.\n\nBe kind."
    assert said.earlier == ()


async def test_several_last_messages_of_the_user_are_one_input() -> None:
    said = await read(user("One."), user([{"type": "input_text", "text": "Two."}]))
    assert said.text == "One.\n\nTwo."


async def test_a_picture_is_kept_on_the_shelf_and_attached() -> None:
    shelf = Shelf()
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": DATA_URL},
    ]
    said = await read(user(parts), shelf=shelf)
    assert shelf.kept == [PNG]
    assert said.text == "What is it?"
    assert [one.path for one in said.attachments] == ["/shelf/1.png"]


async def test_a_picture_in_the_history_stays_in_its_place() -> None:
    parts = [{"type": "input_image", "image_url": "https://example.org/a.png"}]
    said = await read(user(parts), assistant("A cat."), user("Sure?"))
    assert said.history[0] == UserMessage(
        content=(FilePart(path="/shelf/1.png", name="1.png", media_type="image/png"),)
    )
    assert said.attachments == ()


async def test_pictures_of_chat_completions_are_understood_too() -> None:
    parts = [{"type": "image_url", "image_url": {"url": DATA_URL}}]
    assert len((await read(user(parts))).attachments) == 1


async def test_calls_side_by_side_are_one_message_of_the_agent() -> None:
    said = await read(
        user("Go"), assistant("Looking."), called("a"), called("b"), output("b"), output("a")
    )
    assert said.history == (
        UserMessage(content="Go"),
        AssistantMessage(
            text="Looking.",
            tool_calls=(
                ToolCall(id="a", name="look", arguments="{}"),
                ToolCall(id="b", name="look", arguments="{}"),
            ),
            finish=FinishReason.TOOL_CALLS,
        ),
        ToolMessage(call_id="a", name="look", content="result"),
        ToolMessage(call_id="b", name="look", content="result"),
    )
    assert said.results == (
        ClientResult(call_id="b", content="result"),
        ClientResult(call_id="a", content="result"),
    )
    assert said.text == ""


async def test_a_call_without_output_gets_one_that_says_so() -> None:
    said = await read(user("Go"), called("a"), user("Never mind."))
    last = said.history[-1]
    assert isinstance(last, ToolMessage)
    assert last.outcome is ToolOutcome.UNKNOWN
    assert said.text == "Never mind."


async def test_in_a_session_that_goes_on_nothing_the_user_says_is_lost() -> None:
    said = talk(user("First."), output("a"), user("Second.")).continuing()
    assert said.text == "First.\n\nSecond."
    assert said.earlier == ()
    assert [one.call_id for one in said.results] == ["a"]


async def test_an_output_may_have_parts() -> None:
    said = await read(
        output(
            "a",
            [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": DATA_URL},
            ],
        )
    )
    content = said.results[0].content
    assert isinstance(content, tuple)
    assert content[0] == TextPart("see")
    assert isinstance(content[1], FilePart)


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "input[0].type"),
        ({"type": "computer_call"}, "input[0].type"),
        ({}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "input[0].content[0].type"),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            "input[0].content[0].image_url",
        ),
        ({"type": "function_call", "name": "look"}, "input[0].call_id"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "a"}, "input[0].output"),
    ],
)
async def test_what_is_not_understood_is_refused_by_its_place(
    item: dict[str, Any], param: str
) -> None:
    assert (await refused(item)).param == param


async def test_too_many_pictures_are_refused() -> None:
    parts = [{"type": "input_image", "image_url": DATA_URL}] * 51
    assert (await refused(user(parts))).problem_code == "too_many_images"


WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def test_wishes_become_turn_options() -> None:
    options = turn_options(
        body(
            tools=[{**WEATHER, "description": "The weather"}],
            tool_choice={"type": "function", "name": "get_weather"},
            max_output_tokens=100,
            temperature=0,
            reasoning={"effort": "high"},
            text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        )
    )
    assert options.client_tools == (
        ClientTool(name="get_weather", description="The weather", parameters={"type": "object"}),
    )
    assert options.tool_choice == "get_weather"
    assert (options.max_tokens, options.temperature) == (100, 0)
    assert options.reasoning_effort == "high"
    assert options.response_schema == {"type": "object"}


def test_only_allowed_tools_are_offered() -> None:
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "a"}],
    }
    tools = [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]
    options = turn_options(body(tools=tools, tool_choice=allowed))
    assert [tool.name for tool in options.client_tools] == ["a"]
    assert options.tool_choice == "required"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "no spaces"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "auto"}]}, "tools[0].name"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "never"}}, "tool_choice.mode"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"name": "x"}]}},
            "tool_choice.tools",
        ),
        ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"prompt": {"id": "p"}}, "prompt"),
    ],
)
def test_wishes_that_cannot_be_granted_are_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(Problem) as caught:
        turn_options(body(**fields))
    assert caught.value.param == param


def test_the_response_repeats_what_was_asked_for() -> None:
    asked = body(
        input="Hi",
        instructions="Be brief.",
        tools=[WEATHER],
        tool_choice="required",
        truncation="auto",
        parallel_tool_calls=False,
        max_output_tokens=50,
        max_tool_calls=3,
        temperature=0.5,
        top_p=0.9,
        top_logprobs=2,
        metadata={"a": "b"},
        user="ann",
        reasoning={"effort": "low"},
        text={"format": {"type": "json_object"}, "verbosity": "low"},
        safety_identifier="s",
        prompt_cache_key="p",
        conversation={"id": "talk"},
        store=False,
    )
    base = base_resource(asked, "resp_1", "hermes", 12.9)
    assert (base.id, base.created_at, base.status) == ("resp_1", 12, "in_progress")
    assert (base.instructions, base.tool_choice, base.truncation) == (
        "Be brief.",
        "required",
        "auto",
    )
    assert (base.parallel_tool_calls, base.store, base.background) == (False, False, False)
    assert (base.temperature, base.top_p, base.top_logprobs) == (0.5, 0.9, 2)
    assert (base.max_output_tokens, base.max_tool_calls) == (50, 3)
    assert (base.safety_identifier, base.prompt_cache_key, base.user) == ("s", "p", "ann")
    assert base.metadata == {"a": "b"}
    assert base.text.format == {"type": "json_object"}
    assert base.reasoning is not None
    assert base.reasoning.effort == "low"
    assert base.conversation is not None
    assert base.conversation.id == "talk"
    [tool] = base.tools
    assert isinstance(tool, FunctionTool)
    assert tool.parameters == {"type": "object"}


def run_with(asked: CreateResponse) -> Run:
    return Run(
        id="resp_1",
        kind=RunKind.RESPONSE,
        key_id="owner",
        agent_id="main",
        session_id="s",
        inbox_id=1,
        created_at=0.0,
        updated_at=0.0,
        request={"input": msgspec.to_builtins(listed_input(asked, "resp_1"))},
    )


def test_input_is_listed_page_by_page_in_either_order() -> None:
    run = run_with(body(input=[user(f"message {n}") for n in range(5)]))
    first = input_page(run, InputItemsQuery(limit=2))
    assert [item.id for item in first.data] == ["msg_1_in4", "msg_1_in3"]
    assert (first.first_id, first.last_id, first.has_more) == ("msg_1_in4", "msg_1_in3", True)
    second = input_page(run, InputItemsQuery(limit=10, after=first.last_id))
    assert [item.id for item in second.data] == ["msg_1_in2", "msg_1_in1", "msg_1_in0"]
    assert not second.has_more
    rising = input_page(run, InputItemsQuery(order="asc", limit=1))
    assert [item.id for item in rising.data] == ["msg_1_in0"]


def test_pictures_that_came_with_the_request_are_not_kept_twice() -> None:
    parts = [
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    ]
    listed = msgspec.to_builtins(listed_input(body(input=[user(parts)]), "resp_1"))
    content = listed[0]["content"]
    assert [part["image_url"] for part in content] == [None, "https://example.org/a.png"]
    assert [part["detail"] for part in content] == ["auto", "low"]


def test_calls_and_outputs_are_listed_and_thoughts_are_not() -> None:
    thought = {"type": "reasoning", "summary": []}
    items = [called("a"), output("a"), thought, assistant("So.")]
    listed = msgspec.to_builtins(listed_input(body(input=items), "resp_1"))
    assert [item["type"] for item in listed] == [
        "function_call",
        "function_call_output",
        "message",
    ]
