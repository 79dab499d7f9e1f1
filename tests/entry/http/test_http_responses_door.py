"""`/v1/responses` over a real socket: answers, streams, continuity, background."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fakes.core import ScriptedTools, returns, waits
from fakes.http_door import HttpDoor
from fakes.http_responses import (
    create,
    output_text,
    read_events,
    responses_door,
    streamed,
    user,
)
from fakes.responses_schema import resource_errors
from fakes.runs_on import restarted
from hermes.domain.errors import HermesError
from hermes.domain.events import TextDelta, ToolStarted, TurnEvent
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.ports.model import ModelRequest
from hermes.domain.runs import RunQuery
from hermes.entry.http.api.responses import forget_unstored
from hermes.testing.model import Reply, ScriptedModel, call, calls, say, thinks

HEART = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def said(request: ModelRequest) -> list[str]:
    """Return what a model call was shown, as words."""
    words = []
    for message in request.messages:
        match message:
            case UserMessage(content=content):
                words.append(f"user: {content_text(content)}")
            case AssistantMessage(text=text, tool_calls=made):
                words.append(f"agent: {text}{''.join(f'<{c.name}>' for c in made)}")
            case ToolMessage(content=content):
                words.append(f"tool: {content_text(content)}")
    return words


async def get(door: HttpDoor, response_id: str) -> dict[str, Any]:
    answer = await door.client.get(f"/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    assert resource_errors(value) == []
    return value


async def ended(door: HttpDoor, response_id: str) -> dict[str, Any]:
    run = await door.runs.get(response_id)
    assert run is not None
    async with asyncio.timeout(10):
        await door.runs.wait(run)
    return await get(door, response_id)


async def logged(door: HttpDoor, response_id: str, kind: type[TurnEvent]) -> None:
    """Wait until such an event is in the log of a response."""
    run = await door.runs.get(response_id)
    assert run is not None
    async with asyncio.timeout(10):
        async for entry in door.runs.log(run):
            if isinstance(entry.event, kind):
                return


def problem(answer: httpx2.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


# -- the cases of the published suite ----------------------------------------------


async def test_a_message_is_answered(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel([say("Hello ", "there!")])) as door:
        answer = await door.client.post("/v1/responses", json={"input": [user("Say hello.")]})
        resource = answer.json()
        assert resource_errors(resource) == []
        assert (resource["status"], resource["model"]) == ("completed", "hermes")
        assert output_text(resource) == "Hello there!"
        assert resource["usage"]["total_tokens"] == 15
        assert answer.headers["x-hermes-run-id"] == resource["id"]
        assert await door.ledger.session(answer.headers["x-hermes-session-id"]) is not None


@pytest.mark.parametrize(
    "given",
    [
        [{"role": "user", "content": "x"}] * 4001,
        [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 2001}],
    ],
)
async def test_items_and_parts_are_of_bounded_number(tmp_path: Path, given: Any) -> None:
    async with responses_door(tmp_path, ScriptedModel()) as door:
        refused = await door.client.post("/v1/responses", json={"input": given})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("input")


async def test_a_stream_and_the_stored_response_say_the_same(tmp_path: Path) -> None:
    model = ScriptedModel([thinks("Let me count.", "1, ", "2, ", "3")])
    async with responses_door(tmp_path, model) as door:
        events = await streamed(door.client, input="Count.")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        assert "".join(deltas) == "1, 2, 3"
        final = events[-1]
        assert final["type"] == "response.completed"
        assert [item["type"] for item in final["response"]["output"]] == ["reasoning", "message"]
        assert await get(door, final["response"]["id"]) == final["response"]


async def test_a_stored_response_is_the_same_every_time(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a file"))
    model = ScriptedModel([calls(call("look"), call("look"), text="Looking."), say("Found.")])
    async with responses_door(tmp_path, model, tools=tools) as door:
        events = await streamed(door.client, input="Look twice.")
        url = f"/v1/responses/{events[-1]['response']['id']}"
        first, second = await door.client.get(url), await door.client.get(url)
        assert first.content == second.content
        assert first.json() == events[-1]["response"]
        kinds = [item["type"] for item in first.json()["output"]]
        assert kinds == [
            "message",
            "mcp_call",
            "mcp_call",
            "message",
        ]


async def test_system_messages_and_instructions_reach_the_model_for_this_turn(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("Arr."), say("Hello.")])
    async with responses_door(tmp_path, model) as door:
        system = {"type": "message", "role": "system", "content": "You are a pirate."}
        first = await create(
            door.client, input=[system, user("Say hello.")], instructions="Be brief."
        )
        assert first["instructions"] == "Be brief."
        assert "Be brief.\n\nYou are a pirate." in model.requests[0].system
        assert said(model.requests[0]) == ["user: Say hello."]
        await create(door.client, input="Again.", previous_response_id=first["id"])
        assert "pirate" not in model.requests[1].system
        assert "Be brief" not in model.requests[1].system


async def test_a_client_tool_is_handed_over_and_its_output_continues_the_response(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([calls(call("get_weather", "c1", city="Bern")), say("Sunny in Bern.")])
    async with responses_door(tmp_path, model) as door:
        events = await streamed(door.client, input="Weather in Bern?", tools=[WEATHER])
        names = [event["type"] for event in events]
        assert "response.function_call_arguments.delta" in names
        assert "response.function_call_arguments.done" in names
        first = events[-1]["response"]
        assert first["status"] == "completed"
        assert first["tools"][0]["name"] == "get_weather"
        (item,) = first["output"]
        assert (item["type"], item["name"]) == ("function_call", "get_weather")
        assert item["arguments"] == '{"city":"Bern"}'
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
        second = await create(
            door.client, input=[result], previous_response_id=first["id"], tools=[WEATHER]
        )
        assert output_text(second) == "Sunny in Bern."
        assert said(model.requests[1]) == [
            "user: Weather in Bern?",
            "agent: <get_weather>",
            "tool: sunny",
        ]


async def test_outputs_find_the_session_their_calls_wait_in(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen on the server"))
    model = ScriptedModel(
        [
            calls(call("look", "s1")),
            calls(call("get_weather", "c1", city="Bern")),
            say("Sunny."),
        ]
    )
    async with responses_door(tmp_path, model, tools=tools) as door:
        first = await create(door.client, input="Weather?", tools=[WEATHER])
        resent = [user("Weather?"), *first["output"]]
        waiting = first["output"][-1]["call_id"]
        resent.append({"type": "function_call_output", "call_id": waiting, "output": "sunny"})
        second = await create(door.client, input=resent, tools=[WEATHER])
        assert output_text(second) == "Sunny."
        assert said(model.requests[2]) == [
            "user: Weather?",
            "agent: <look>",
            "tool: seen on the server",
            "agent: <get_weather>",
            "tool: sunny",
        ]


async def test_outputs_of_calls_that_nobody_knows_are_history(tmp_path: Path) -> None:
    model = ScriptedModel([say("Sunny.")])
    async with responses_door(tmp_path, model) as door:
        items = [
            user("Weather?"),
            {"type": "function_call", "call_id": "x", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "x", "output": "sunny"},
        ]
        assert output_text(await create(door.client, input=items)) == "Sunny."
        assert said(model.requests[0]) == [
            "user: Weather?",
            "agent: <get_weather>",
            "tool: sunny",
        ]


async def test_calls_of_the_agent_come_back_as_history(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen on the server"))
    model = ScriptedModel(
        [calls(call("get_weather", "c1"), call("look", "c2")), say("Sunny."), say("Again.")]
    )
    async with responses_door(tmp_path, model, tools=tools) as door:
        first = await create(door.client, input="Weather?", tools=[WEATHER])
        items = first["output"]
        assert {item["type"] for item in items} == {"function_call", "mcp_call"}
        waiting = next(item["call_id"] for item in items if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": waiting, "output": "sunny"}
        second = await create(
            door.client, input=[user("Weather?"), *items, result], tools=[WEATHER]
        )
        assert output_text(second) == "Sunny."
        assert len(model.requests[1].messages) == 4, "in the session where the call waits"
        await create(door.client, input=[user("Weather?"), *items[1:], user("And now?")])
        assert said(model.requests[2]) == [
            "user: Weather?",
            "agent: <look>",
            "tool: seen on the server",
            "user: And now?",
        ]


@pytest.mark.parametrize(
    ("more", "headers", "names"),
    [
        ({}, {}, ["look", "peek"]),
        ({"tools": [{"type": "mcp", "server_label": "hermes"}]}, {}, ["look", "peek"]),
        ({"tools": [{"type": "mcp", "server_label": "hermes", "allowed_tools": []}]}, {}, []),
        (
            {"tools": [{"type": "mcp", "server_label": "hermes", "allowed_tools": ["peek"]}]},
            {},
            ["peek"],
        ),
        ({}, {"X-Hermes-Tools": "none"}, []),
        ({}, {"X-Hermes-Tools": "look, peek"}, ["look", "peek"]),
        ({}, {"X-Hermes-Tools": "test"}, ["look", "peek"]),
    ],
)
async def test_a_request_chooses_the_tools_of_the_agent(
    tmp_path: Path, more: dict[str, Any], headers: dict[str, str], names: list[str]
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a"))
    tools.add("peek", returns("b"))
    model = ScriptedModel([say("Hello.")])
    async with responses_door(tmp_path, model, tools=tools) as door:
        body = {"input": "Hi", **more}
        answer = await door.client.post("/v1/responses", json=body, headers=headers)
        assert resource_errors(answer.json()) == []
        assert [spec.name for spec in model.requests[0].tools] == names


@pytest.mark.parametrize(
    ("more", "headers", "param"),
    [
        ({}, {"X-Hermes-Tools": "look, lokk, none, other"}, "X-Hermes-Tools"),
        (
            {
                "tools": [
                    {
                        "type": "mcp",
                        "server_label": "hermes",
                        "allowed_tools": ["look", "lokk", "other"],
                    }
                ]
            },
            {},
            "tools",
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "tools": [
                        {"type": "mcp", "server_label": "hermes", "name": "lokk"},
                        {"type": "mcp", "server_label": "hermes", "name": "other"},
                    ],
                }
            },
            {},
            "tools",
        ),
    ],
)
async def test_tools_that_do_not_exist_are_named(
    tmp_path: Path, more: dict[str, Any], headers: dict[str, str], param: str
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a"))
    async with responses_door(tmp_path, ScriptedModel([]), tools=tools) as door:
        body = {"input": "Hi", **more}
        for path in ("/v1/responses", "/v1/responses/input_tokens"):
            answer = await door.client.post(path, json=body, headers=headers)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error["param"] == param
            assert "`lokk`, `other`" in error["message"]
            assert "test (look)" in error["message"]


async def test_another_mcp_server_is_refused(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel([])) as door:
        tool = {"type": "mcp", "server_label": "deepwiki", "server_url": "https://example.org"}
        answer = await door.client.post("/v1/responses", json={"input": "Hi", "tools": [tool]})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "tools[0].server_label"


async def test_another_key_does_not_reach_a_waiting_call(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather", "c1")), say("Sunny.")])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="My secret question", tools=[WEATHER])
        waiting = first["output"][0]["call_id"]
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        result = {"type": "function_call_output", "call_id": waiting, "output": "sunny"}
        await create(other, input=[result, user("And?")])
        assert "secret question" not in str(model.requests[1].messages)


async def test_a_picture_reaches_the_agent(tmp_path: Path) -> None:
    model = ScriptedModel([say("A red heart.")])
    async with responses_door(tmp_path, model) as door:
        parts = [
            {"type": "input_text", "text": "What is it?"},
            {"type": "input_image", "image_url": HEART},
        ]
        resource = await create(door.client, input=[user(parts)])
        assert output_text(resource) == "A red heart."
        assert [kind for _, kind in door.media.kept] == ["image/png"]
        (message,) = model.requests[0].messages
        assert isinstance(message, UserMessage)
        assert any(isinstance(part, ImagePart) for part in message.content)


async def test_earlier_turns_in_the_input_are_the_history(tmp_path: Path) -> None:
    model = ScriptedModel([say("Alice.")])
    async with responses_door(tmp_path, model) as door:
        items = [
            user("My name is Alice."),
            {"type": "message", "role": "assistant", "content": "Hello Alice!"},
            user("What is my name?"),
        ]
        resource = await create(door.client, input=items)
        assert output_text(resource) == "Alice."
        assert said(model.requests[0]) == [
            "user: My name is Alice.",
            "agent: Hello Alice!",
            "user: What is my name?",
        ]


# -- continuity ----------------------------------------------------------------------


async def test_a_response_goes_on_from_an_earlier_one_and_branches_if_that_was_done(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("One."), say("Two."), say("Other.")])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="first")
        second = await create(door.client, input="second", previous_response_id=first["id"])
        assert second["previous_response_id"] == first["id"]
        await create(door.client, input="instead", previous_response_id=first["id"])
        assert said(model.requests[1]) == ["user: first", "agent: One.", "user: second"]
        assert said(model.requests[2]) == ["user: first", "agent: One.", "user: instead"]


async def test_a_conversation_is_continued_by_its_name_and_belongs_to_its_key(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("One."), say("Two."), say("Mine.")])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="first", conversation="talk")
        assert first["conversation"] == {"id": "talk"}
        await create(door.client, input="second", conversation={"id": "talk"})
        _, secret = await door.new_key("other")
        await create(await door.with_key(secret), input="hello", conversation="talk")
        assert said(model.requests[1]) == ["user: first", "agent: One.", "user: second"]
        assert said(model.requests[2]) == ["user: hello"]


async def test_session_headers_work_here_too(tmp_path: Path) -> None:
    model = ScriptedModel([say("One."), say("Two."), say("Three.")])
    async with responses_door(tmp_path, model) as door:
        key = {"X-Hermes-Session-Key": "me"}
        answer = await door.client.post("/v1/responses", json={"input": "first"}, headers=key)
        session = {"X-Hermes-Session-Id": answer.headers["x-hermes-session-id"]}
        await create(door.client, session, input="second")
        await create(door.client, key, input="third")
        assert said(model.requests[2])[::2] == ["user: first", "user: second", "user: third"]


async def test_conversation_history_is_for_clients_that_keep_it_themselves(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("Four.")])
    async with responses_door(tmp_path, model) as door:
        history = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "Two."}]
        await create(door.client, input="2+2?", conversation_history=history)
        assert said(model.requests[0]) == ["user: 1+1?", "agent: Two.", "user: 2+2?"]


async def test_truncation_keeps_the_last_hundred_messages(tmp_path: Path) -> None:
    model = ScriptedModel([say("Ok.")])
    async with responses_door(tmp_path, model) as door:
        history = [
            {"role": role, "content": f"{number}"}
            for number in range(80)
            for role in ("user", "assistant")
        ]
        await create(door.client, input="now", conversation_history=history, truncation="auto")
        assert len(said(model.requests[0])) == 101
        assert said(model.requests[0])[0] == "user: 30"


async def test_what_cannot_be_continued_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with responses_door(tmp_path, model) as door:
        first = (await create(door.client, input="first"))["id"]
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)

        async def refused(
            client: httpx2.AsyncClient = door.client, headers: Any = None, **body: Any
        ) -> tuple[int, str, str | None]:
            return problem(
                await client.post("/v1/responses", json={"input": "x", **body}, headers=headers)
            )

        missing = (404, "previous_response_not_found", "previous_response_id")
        assert await refused(previous_response_id="resp_nothing") == missing
        assert await refused(other, previous_response_id=first) == missing
        both = await refused(previous_response_id=first, conversation="talk")
        assert both == (400, "conflicting_parameters", "conversation")
        header = await refused(headers={"X-Hermes-Session-Key": "me"}, previous_response_id=first)
        assert header == (400, "conflicting_parameters", "X-Hermes-Session-Key")
        output = [{"type": "function_call_output", "call_id": "c9", "output": "x"}]
        wrong = await refused(previous_response_id=first, input=output)
        assert wrong == (400, "tool_call_not_found", "input")
        quoted = [{"role": "assistant", "content": "I said so."}, user("And?")]
        assert (await refused(previous_response_id=first, input=quoted))[0] == 400
        assert (await refused(conversation="a\nb"))[2] == "conversation"
        assert (await refused(model="gpt-5"))[:2] == (404, "model_not_found")
        assert await refused(tools=[{"type": "web_search"}]) == (
            400,
            "invalid_value",
            "tools[0].type",
        )
        assert (await refused(background=True, store=False))[2] == "background"
        assert (await refused(input=""))[2] == "input"
        assert (await refused(input=[]))[2] == "input"
        assert len(model.requests) == 1


# -- limits, failures, leaving ---------------------------------------------------------


async def test_an_answer_cut_off_by_its_limit_is_incomplete(tmp_path: Path) -> None:
    model = ScriptedModel([Reply(pieces=("Once upon",), finish=FinishReason.LENGTH)])
    async with responses_door(tmp_path, model) as door:
        resource = await create(door.client, input="A story", max_output_tokens=16)
        assert resource["status"] == "incomplete"
        assert resource["incomplete_details"] == {"reason": "max_output_tokens"}
        assert model.requests[0].max_tokens == 16


async def test_a_failure_is_a_response_that_says_so(tmp_path: Path) -> None:
    def broken(request: ModelRequest) -> Any:
        raise HermesError("The model is down.", hint="Try again later.")

    async with responses_door(tmp_path, ScriptedModel([broken, broken])) as door:
        events = await streamed(door.client, input="Hi")
        assert events[-1]["type"] == "response.failed"
        resource = await create(door.client, input="Hi")
        assert resource["status"] == "failed"
        assert "The model is down." in resource["error"]["message"]
        assert await get(door, resource["id"]) == resource


async def test_leaving_a_stream_leaves_an_incomplete_response_that_can_be_continued(
    tmp_path: Path,
) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Half an",), before_end=hold), say("Going on.")])
    async with responses_door(tmp_path, model) as door:
        asked = {"input": "Tell me", "stream": True}
        async with door.client.stream("POST", "/v1/responses", json=asked) as answer:
            response_id = answer.headers["x-hermes-run-id"]
            async for line in answer.aiter_lines():
                if "output_text.delta" in line:
                    break
        resource = await ended(door, response_id)
        assert resource["status"] == "incomplete"
        assert resource["incomplete_details"] == {"reason": "interrupted"}
        assert output_text(resource) == "Half an"
        assert resource["output"][0]["status"] == "incomplete"
        second = await create(door.client, input="Go on", previous_response_id=response_id)
        assert output_text(second) == "Going on."
        assert said(model.requests[1])[:2] == ["user: Tell me", "agent: Half an"]


async def test_leaving_a_plain_request_stops_it_too(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Half",), before_end=hold)])
    async with responses_door(tmp_path, model) as door:
        with pytest.raises(httpx2.ReadTimeout):
            await door.client.post("/v1/responses", json={"input": "Hi"}, timeout=0.3)
        (run,) = await door.ledger.runs(RunQuery())
        assert (await ended(door, run.id))["status"] == "incomplete"


# -- storing ---------------------------------------------------------------------------


async def test_what_is_not_to_be_stored_is_gone_with_its_session(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        for stream in (False, True):
            body = {"input": "Hi", "store": False, "stream": stream}
            answer = await door.client.post("/v1/responses", json=body)
            run_id = answer.headers["x-hermes-run-id"]
            missing = await door.client.get(f"/v1/responses/{run_id}")
            assert problem(missing)[:2] == (404, "response_not_found")
            assert await door.ledger.run(run_id) is None
            assert await door.ledger.session(answer.headers["x-hermes-session-id"]) is None


async def test_not_storing_a_response_leaves_the_conversation_it_is_part_of(
    tmp_path: Path,
) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        body = {"input": "Hi", "store": False, "conversation": "talk"}
        answer = await door.client.post("/v1/responses", json=body)
        assert await door.ledger.run(answer.headers["x-hermes-run-id"]) is None
        assert await door.ledger.session(answer.headers["x-hermes-session-id"]) is not None


async def test_what_a_crash_left_unforgotten_is_forgotten_later(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        kept = await create(door.client, input="keep")
        headers = {"Idempotency-Key": "once"}
        left = await create(door.client, headers, input="forget", store=False)
        assert problem(await door.client.get(f"/v1/responses/{left['id']}"))[0] == 404
        run = await door.ledger.run(left["id"])
        assert run is not None
        assert await forget_unstored(door.ledger, run.updated_at + 60) == 0
        assert await forget_unstored(door.ledger, run.updated_at + 2 * 86400) == 1
        assert await door.ledger.run(left["id"]) is None
        assert await door.ledger.session(run.session_id) is None
        assert await get(door, kept["id"]) == kept


async def test_a_response_can_be_deleted_and_others_live_on(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="first")
        second = await create(door.client, input="second", previous_response_id=first["id"])
        answer = await door.client.delete(f"/v1/responses/{first['id']}")
        assert answer.json() == {"id": first["id"], "object": "response", "deleted": True}
        assert problem(await door.client.get(f"/v1/responses/{first['id']}"))[0] == 404
        assert problem(await door.client.delete(f"/v1/responses/{first['id']}"))[0] == 404
        assert await get(door, second["id"]) == second
        third = await create(door.client, input="third", previous_response_id=second["id"])
        assert said(model.requests[2])[0] == "user: first"
        run = await door.ledger.run(third["id"])
        assert run is not None
        for response in (second, third):
            await door.client.delete(f"/v1/responses/{response['id']}")
        assert await door.ledger.session(run.session_id) is None


async def test_other_keys_do_not_see_a_response(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        url = f"/v1/responses/{(await create(door.client, input='Hi'))['id']}"
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        for answer in (
            await other.get(url),
            await other.get(f"{url}/input_items"),
            await other.post(f"{url}/cancel"),
            await other.delete(url),
        ):
            assert problem(answer)[:2] == (404, "response_not_found")


async def test_input_items_are_listed(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel(default=say("Ok."))) as door:
        response = await create(door.client, input=[user("One"), user("Two"), user("Three")])
        url = f"/v1/responses/{response['id']}/input_items"
        page = (await door.client.get(url, params={"limit": 2, "order": "asc"})).json()
        assert [item["content"][0]["text"] for item in page["data"]] == ["One", "Two"]
        assert (page["object"], page["has_more"]) == ("list", True)
        rest = await door.client.get(url, params={"order": "asc", "after": page["last_id"]})
        assert [item["content"][0]["text"] for item in rest.json()["data"]] == ["Three"]


# -- repeats ---------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_same_response(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather", "c1")), say("Sunny.")])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="Weather?", tools=[WEATHER])
        waiting = first["output"][0]["call_id"]
        body = {
            "input": [{"type": "function_call_output", "call_id": waiting, "output": "sunny"}],
            "previous_response_id": first["id"],
        }
        key = {"Idempotency-Key": "k1"}
        once = await create(door.client, key, **body)
        await door.client.delete(f"/v1/responses/{first['id']}")
        assert await create(door.client, key, **body) == once
        clash = await door.client.post("/v1/responses", json={"input": "else"}, headers=key)
        assert clash.status_code == 409
        assert len(model.requests) == 2


async def test_a_repeated_stream_says_the_same_and_leaving_does_not_stop_it(
    tmp_path: Path,
) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Hel", "lo."), before_end=hold)])
    async with responses_door(tmp_path, model) as door:
        key, asked = {"Idempotency-Key": "k1"}, {"input": "Hi", "stream": True}
        async with door.client.stream("POST", "/v1/responses", json=asked, headers=key) as answer:
            async for line in answer.aiter_lines():
                if "output_text.delta" in line:
                    break
        hold.set()
        events = await streamed(door.client, key, input="Hi")
        assert events[-1]["type"] == "response.completed"
        assert output_text(events[-1]["response"]) == "Hello."
        again = await streamed(door.client, key, input="Hi")
        assert again[-1]["response"] == events[-1]["response"]
        assert len(model.requests) == 1


# -- background ------------------------------------------------------------------------


async def test_a_response_in_the_background_is_asked_for_until_it_is_done(
    tmp_path: Path,
) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("look", waits(started, go, "seen"))
    model = ScriptedModel([calls(call("look", "c1"), text="Looking."), say("Done.")])
    async with responses_door(tmp_path, model, tools=tools) as door:
        first = await create(door.client, input="Look", background=True)
        assert first["status"] in ("queued", "in_progress")
        assert first["background"]
        await logged(door, first["id"], ToolStarted)
        so_far = await get(door, first["id"])
        assert so_far["status"] == "in_progress"
        assert output_text(so_far) == "Looking."
        refused = await door.client.post(
            "/v1/responses", json={"input": "x", "previous_response_id": first["id"]}
        )
        assert problem(refused)[:2] == (409, "response_in_progress")
        go.set()
        done = await ended(door, first["id"])
        assert (done["status"], output_text(done)) == ("completed", "Looking.Done.")


async def test_a_stream_in_the_background_is_resumed_after_any_event(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look", "c1"), text="Looking."), say("Do", "ne.")])
    async with responses_door(tmp_path, model, tools=tools) as door:
        events = await streamed(door.client, input="Look", background=True)
        names = [event["type"] for event in events[:3]]
        assert names == ["response.created", "response.queued", "response.in_progress"]
        url = f"/v1/responses/{events[-1]['response']['id']}"
        for after in (None, 0, len(events) // 2, len(events) - 1):
            query = {"stream": "true"} | ({} if after is None else {"starting_after": after})
            async with door.client.stream("GET", url, params=query) as answer:
                rest = [event async for event in read_events(answer.aiter_lines())]
            assert rest == events[0 if after is None else after + 1 :]
        assert await get(door, events[-1]["response"]["id"]) == events[-1]["response"]


async def test_a_stream_that_was_left_goes_on_in_the_background(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Hel", "lo."), before_end=hold)])
    async with responses_door(tmp_path, model) as door:
        asked = {"input": "Hi", "stream": True, "background": True}
        seen = []
        async with door.client.stream("POST", "/v1/responses", json=asked) as answer:
            response_id = answer.headers["x-hermes-run-id"]
            async for event in read_events(answer.aiter_lines()):
                seen.append(event)
                if event["type"] == "response.output_text.delta":
                    break
        hold.set()
        query = {"stream": "true", "starting_after": seen[-1]["sequence_number"]}
        async with door.client.stream(
            "GET", f"/v1/responses/{response_id}", params=query
        ) as answer:
            rest = [event async for event in read_events(answer.aiter_lines())]
        every = [*seen, *rest]
        assert [event["sequence_number"] for event in every] == list(range(len(every)))
        assert output_text(rest[-1]["response"]) == "Hello."


async def test_a_response_in_the_background_can_be_cancelled(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Half",), before_end=hold), say("Next.")])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="Hi", background=True)
        url = f"/v1/responses/{first['id']}"
        await logged(door, first["id"], TextDelta)
        cancelled = (await door.client.post(f"{url}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert output_text(cancelled) == "Half"
        assert (await door.client.post(f"{url}/cancel")).json() == cancelled
        async with door.client.stream("GET", url, params={"stream": "true"}) as answer:
            events = [event async for event in read_events(answer.aiter_lines())]
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["status"] == "cancelled"
        second = await create(door.client, input="And?", previous_response_id=first["id"])
        assert output_text(second) == "Next."


async def test_deleting_a_response_in_progress_stops_it(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Half",), before_end=hold)])
    async with responses_door(tmp_path, model) as door:
        first = await create(door.client, input="Hi", background=True)
        async with asyncio.timeout(10):
            answer = await door.client.delete(f"/v1/responses/{first['id']}")
        assert answer.json()["deleted"]
        assert door.runs.open_runs == 0


async def test_only_responses_in_the_background_can_be_streamed_again(tmp_path: Path) -> None:
    async with responses_door(tmp_path, ScriptedModel([say("Ok.")])) as door:
        response = await create(door.client, input="Hi")
        url = f"/v1/responses/{response['id']}"
        refused = await door.client.get(url, params={"stream": "true", "starting_after": 3})
        assert problem(refused)[:2] == (400, "not_in_background")
        async with door.client.stream("GET", url, params={"stream": "true"}) as answer:
            events = [event async for event in read_events(answer.aiter_lines())]
        assert events[-1]["response"] == response


class _PowerCut(Exception):
    """Ends Hermes the way a dying process would."""


async def test_a_response_in_the_background_survives_a_restart_of_hermes(tmp_path: Path) -> None:
    model = ScriptedModel([Reply(pieces=("Hel",), before_end=asyncio.Event())])
    seen, response_id = [], ""
    with suppress(_PowerCut, BaseExceptionGroup):
        async with responses_door(tmp_path, model) as door:
            asked = {"input": "Hi", "stream": True, "background": True}
            async with door.client.stream("POST", "/v1/responses", json=asked) as answer:
                response_id = answer.headers["x-hermes-run-id"]
                async for event in read_events(answer.aiter_lines()):
                    seen.append(event)
                    if event["type"] == "response.output_text.delta":
                        raise _PowerCut
    async with responses_door(tmp_path, ScriptedModel([say("Hel", "lo.")])) as door:
        await restarted(door.core, door.runs)
        query = {"stream": "true", "starting_after": seen[-1]["sequence_number"]}
        url = f"/v1/responses/{response_id}"
        async with asyncio.timeout(20), door.client.stream("GET", url, params=query) as answer:
            rest = [event async for event in read_events(answer.aiter_lines())]
        every = [*seen, *rest]
        assert [event["sequence_number"] for event in every] == list(range(len(every)))
        deltas = [e["delta"] for e in every if e["type"] == "response.output_text.delta"]
        assert "".join(deltas) == "Hello."
        assert await get(door, response_id) == rest[-1]["response"]


async def test_a_client_that_sends_everything_stays_in_one_session(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a secret file"))
    script = (calls(call("look"), text="Looking."), *map(say, ("Found.", "Bye.", "Yes.", "So.")))
    model = ScriptedModel(script)
    async with responses_door(tmp_path, model, tools=tools) as door:

        async def session_of(*items: Any) -> tuple[str, list[Any]]:
            answer = await door.client.post("/v1/responses", json={"input": items})
            return answer.headers["x-hermes-session-id"], answer.json()["output"]

        first, output = await session_of(user("Look"))
        assert "mcp_call" in [item["type"] for item in output]
        talk = [user("Look"), *output, user("Thanks")]
        assert (await session_of(*talk))[0] == first
        assert "a secret file" in str(model.requests[-1].messages), "the tools' findings are kept"
        assert said(model.requests[-1])[-1] == "user: Thanks"
        bye = {"role": "assistant", "content": "Bye."}
        assert (await session_of(*talk, bye, user("Really?")))[0] == first
        assert (await session_of(user("Look"), bye, user("Why?")))[0] != first
