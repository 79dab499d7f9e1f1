"""`/v1/chat/completions` through the door."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.core import ScriptedTools, returns
from fakes.http_chat import (
    PATH,
    PNG,
    TITLE,
    WEATHER,
    ask,
    body,
    door_with,
    history,
    said,
    streamed,
    text_of,
)
from fakes.http_door import SECRET
from hermes.domain.keys import Action
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    Message,
    ToolMessage,
    UserMessage,
)
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelReply
from hermes.domain.runs import RunQuery
from hermes.entry.http.endpoint import HttpContext
from hermes.testing.model import Reply, call, calls, say, thinks


async def test_an_answer_names_the_agent_the_session_and_the_run(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hel", "lo")) as (door, _):
        answer = await ask(door.client, "Hi", model="main", user="ann")
        assert text_of(answer) == "Hello"
        value = answer.json()
        assert value["object"] == "chat.completion"
        assert value["model"] == "hermes"
        assert value["choices"][0]["finish_reason"] == "stop"
        assert value["choices"][0]["message"]["refusal"] is None
        assert "tool_calls" not in value["choices"][0]["message"]
        assert value["usage"]["total_tokens"] == 15
        assert "hermes" not in value
        assert value["id"] == answer.headers["x-hermes-run-id"]
        session = await door.ledger.session(answer.headers["x-hermes-session-id"])
        assert session is not None
        assert (session.source, session.user_id) == ("api_server", "key:owner/ann")


async def test_a_stream_stays_open_through_tools(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("nothing"))
    script = (calls(call("look"), text="Let me look."), thinks("hm", "Not", "hing."))
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        answer = await ask(door.client, "What is there?", stream=True)
        events = streamed(answer)
        assert said(events) == "Let me look.\n\nNothing."
        assert [(name, data["status"]) for name, data in events if name] == [
            ("hermes.tool.progress", "running"),
            ("hermes.tool.progress", "completed"),
        ]
        assert events[0][1]["choices"][0]["delta"]["role"] == "assistant"
        assert events[-1][1]["choices"][0]["finish_reason"] == "stop"
        assert events[-1][1]["usage"]["total_tokens"] == 30
        assert events[0][1]["id"] == answer.headers["x-hermes-run-id"]
        assert {data["model"] for _, data in events} == {"hermes"}


async def test_the_first_chunk_comes_before_the_model_has_said_anything(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Late.",), before=go)) as (door, _):
        async with door.client.stream("POST", PATH, json=body("Hi", stream=True)) as answer:
            lines = answer.aiter_lines()
            assert '"role":"assistant"' in await anext(lines)
            go.set()
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""]


async def test_include_usage_gives_a_chunk_of_its_own(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hi")) as (door, _):
        options = {"include_usage": True}
        events = streamed(await ask(door.client, "Hi", stream=True, stream_options=options))
        assert events[-1][1]["choices"] == []
        assert events[-1][1]["usage"]["prompt_tokens"] == 10
        assert "usage" not in events[-2][1]


async def test_calls_of_client_tools_go_to_the_client_and_their_results_come_back(
    tmp_path: Path,
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a note: Rome"))
    script = (
        calls(call("look")),
        calls(call("weather", city="Rome"), text="One moment."),
        say("Sunny."),
    )
    async with door_with(tmp_path, *script, tools=tools) as (door, model):
        first = await ask(door.client, "Weather?", tools=[WEATHER])
        assert first.status_code == 200, first.text
        [choice] = first.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == "One moment."
        [made] = choice["message"]["tool_calls"]
        assert made["type"] == "function"
        assert made["function"] == {"name": "weather", "arguments": '{"city":"Rome"}'}
        result = {"role": "tool", "tool_call_id": made["id"], "content": "25 degrees"}
        second = await ask(door.client, "Weather?", choice["message"], result, tools=[WEATHER])
        assert text_of(second) == "Sunny."
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        assert "a note: Rome" in history(model)
        assert history(model)[-1] == "25 degrees"


async def test_calls_of_client_tools_are_streamed_as_tool_calls(tmp_path: Path) -> None:
    async with door_with(tmp_path, calls(call("weather"))) as (door, _):
        events = streamed(await ask(door.client, "Weather?", tools=[WEATHER], stream=True))
        deltas = [told["choices"][0]["delta"].get("tool_calls") or [] for _, told in events]
        [delta, more] = [part for parts in deltas for part in parts]
        assert delta["index"] == more["index"] == 0
        assert delta["function"] == {"name": "weather", "arguments": "{"}
        assert more["function"] == {"arguments": "}"}
        assert await door.ledger.handed_call(delta["id"]) is not None
        assert events[-1][1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_results_of_calls_made_elsewhere_are_part_of_the_history(tmp_path: Path) -> None:
    made = {"id": "call_x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_x", "content": "rain"}
    async with door_with(tmp_path, say("Take an umbrella.")) as (door, model):
        talk = ("Weather?", {"role": "assistant", "content": None, "tool_calls": [made]}, result)
        assert text_of(await ask(door.client, *talk, tools=[WEATHER])) == "Take an umbrella."
        question, asked, given = model.requests[0].messages
        assert question == UserMessage(content="Weather?")
        assert isinstance(asked, AssistantMessage)
        assert isinstance(given, ToolMessage)
        assert (given.call_id, given.content) == ("call_x", "rain")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "type"),
        ({"messages": []}, "messages"),
        ({"n": 3}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
        ({"metadata": dict.fromkeys(map(str, range(65)), "x")}, "metadata"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_runs(
    tmp_path: Path, wrong: dict[str, Any], param: str
) -> None:
    async with door_with(tmp_path) as (door, _):
        for stream in (True, False):
            answer = await door.client.post(PATH, json=body("Hi", stream=stream) | wrong)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["param"].endswith(param)
        assert await door.ledger.runs(RunQuery()) == []


async def test_unknown_agents_and_missing_actions_are_refused(tmp_path: Path) -> None:
    async with door_with(tmp_path) as (door, _):
        answer = await ask(door.client, "Hi", model="gpt-4o")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        _, secret = await door.new_key("watcher", actions=[Action.OBSERVE])
        assert (await ask(await door.with_key(secret), "Hi")).status_code == 403
        assert (await ask(await door.with_key(None), "Hi")).status_code == 401


async def test_too_many_runs_and_a_gateway_that_stops_are_errors_before_the_stream(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Late.",), before=go), max_runs=1) as (
        door,
        model,
    ):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ask(door.client, "Hi"))
            await model.called(1)
            busy = await ask(door.client, "Hi", stream=True)
            assert busy.status_code == 429
            assert busy.json()["error"]["code"] == "too_many_runs"
            assert busy.headers["retry-after"] == "1"
            go.set()
        assert text_of(first.result()) == "Late."
        door.core.gateway.drain()
        stopping = await ask(door.client, "Hi", stream=True)
        assert stopping.status_code == 503
        assert stopping.json()["error"]["code"] == "draining"


async def test_a_failure_without_a_word_is_a_bad_gateway(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.AUTH, f"The key {SECRET} is wrong.", hint="Set another.")
    async with door_with(tmp_path, failure) as (door, _):
        answer = await ask(door.client, "Hi")
        assert answer.status_code == 502
        error = answer.json()["error"]
        assert error["code"] == "agent_incomplete"
        assert error["type"] == "server_error"
        assert error["message"] == "The key *** is wrong. Set another."
        assert error["hermes"]["failed"] is True
        assert "x-hermes-session-id" in answer.headers


async def test_a_failure_after_some_words_keeps_them(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("nothing"))
    failure = ModelFailure(FailureKind.SERVER, "The model is gone.")
    script = (calls(call("look"), text="Let me look."), failure)
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        answer = await ask(door.client, "Hi")
        assert text_of(answer) == "Let me look."
        assert answer.json()["choices"][0]["finish_reason"] == "error"
        assert answer.json()["hermes"]["error_code"] == "agent_error"


async def test_an_answer_cut_off_by_its_limit_says_so(tmp_path: Path) -> None:
    cut = Reply(pieces=("The que",), finish=FinishReason.LENGTH)
    async with door_with(tmp_path, cut) as (door, _):
        answer = await ask(door.client, "Who?", max_tokens=3)
        assert text_of(answer) == "The que"
        assert answer.json()["choices"][0]["finish_reason"] == "length"
        assert answer.json()["hermes"]["error_code"] == "output_truncated"


async def test_pictures_reach_the_model(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    shown = {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url}},
        ],
    }
    async with door_with(tmp_path, say("A dot.")) as (door, model):
        assert text_of(await ask(door.client, shown)) == "A dot."
        content = model.requests[0].messages[-1]
        assert isinstance(content, UserMessage)
        assert ImagePart(url=url, media_type="image/png") in content.content
        missing = {"type": "image_url", "image_url": {"url": "https://example.org/none.png"}}
        answer = await ask(door.client, {"role": "user", "content": [missing]})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "messages[0].content[0].image_url"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_helper_call_runs_no_agent_and_leaves_no_session(
    tmp_path: Path, stream: bool
) -> None:
    async with door_with(tmp_path) as (door, model):
        before = await door.ledger.sessions(SessionQuery())
        answer = await ask(door.client, TITLE, stream=stream, max_tokens=20)
        if stream:
            events = streamed(answer)
            assert said(events) == "A Short Title"
            assert events[-1][1]["usage"]["total_tokens"] == 10
        else:
            assert text_of(answer) == "A Short Title"
            assert answer.json()["model"] == "hermes"
        assert answer.headers["x-hermes-task"] == "title"
        assert "x-hermes-session-id" not in answer.headers
        [(agent_id, task, messages, limit)] = door.side_calls.asked
        assert (agent_id, task, limit) == ("main", "title", 20)
        assert messages == (UserMessage(content=TITLE),)
        assert model.requests == []
        assert await door.ledger.runs(RunQuery()) == []
        assert await door.ledger.sessions(SessionQuery()) == before


async def test_a_client_can_name_its_helper_call_and_the_owner_can_teach_more(
    tmp_path: Path,
) -> None:
    def taught(context: HttpContext) -> HttpContext:
        return replace(context, helper_patterns=(SafePattern("^Name this"),))

    async with door_with(tmp_path, more=taught) as (door, _):
        await ask(door.client, "What?", headers={"X-Hermes-Task": "labels"})
        await ask(door.client, "Name this chat")
        assert [task for _, task, _, _ in door.side_calls.asked] == ["labels", "helper"]


class BrokenSideCalls:
    async def answer(
        self, agent_id: str, task: str, messages: tuple[Message, ...], max_tokens: int | None
    ) -> ModelReply:
        raise ModelFailure(FailureKind.SERVER, "The small model is gone.")


async def test_a_helper_call_that_fails_is_a_bad_gateway_and_no_stream(tmp_path: Path) -> None:
    def broken(context: HttpContext) -> HttpContext:
        return replace(context, side_calls=BrokenSideCalls())

    async with door_with(tmp_path, more=broken) as (door, _):
        answer = await ask(door.client, TITLE, stream=True)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "agent_incomplete"
        assert answer.json()["error"]["message"] == "The small model is gone."
