"""Which session a chat completion continues, and what happens when its client leaves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.core import ScriptedTools, waits
from fakes.http_chat import (
    PATH,
    WEATHER,
    ask,
    body,
    door_with,
    history,
    said,
    streamed,
    text_of,
)
from fakes.http_door import KEY, HttpDoor
from hermes.domain.runs import RunQuery, RunState
from hermes.domain.settings import Settings
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_the_conversation_of_the_client_is_the_history(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Three.")) as (door, model):
        answer = await ask(
            door.client,
            {"role": "system", "content": "Count with me."},
            "One",
            {"role": "assistant", "content": "Two"},
            "Go on",
            max_tokens=50,
            temperature=0.5,
            reasoning_effort="low",
        )
        assert text_of(answer) == "Three."
        assert history(model) == ["One", "Two", "Go on"]
        request = model.requests[0]
        assert "Count with me." in request.system
        assert (request.max_tokens, request.temperature) == (50, 0.5)
        assert request.reasoning_effort == "low"


async def test_two_requests_are_two_conversations(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("a"), say("b")) as (door, model):
        first, second = await ask(door.client, "Hi"), await ask(door.client, "Hi")
        assert first.headers["x-hermes-session-id"] != second.headers["x-hermes-session-id"]
        assert history(model) == ["Hi"]


async def test_nobody_answers_a_call_in_the_session_of_another_key(tmp_path: Path) -> None:
    script = (calls(call("weather")), say("Mine."))
    async with door_with(tmp_path, *script) as (door, _):
        first = await ask(door.client, "Weather?", tools=[WEATHER])
        message = first.json()["choices"][0]["message"]
        call_id = message["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": call_id, "content": "hail"}
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        answer = await ask(other, "Weather?", message, result, tools=[WEATHER])
        assert text_of(answer) == "Mine."
        assert answer.headers["x-hermes-session-id"] != first.headers["x-hermes-session-id"]
        assert await door.ledger.handed_call(call_id) == first.headers["x-hermes-session-id"]


async def test_a_session_is_continued_by_its_id(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hello, Ann."), say("Ann.")) as (door, model):
        first = await ask(door.client, "I am Ann.")
        session = {"X-Hermes-Session-Id": first.headers["x-hermes-session-id"]}
        talk = ("Something else", {"role": "assistant", "content": "Yes"}, "Who am I?")
        second = await ask(door.client, *talk, headers=session)
        assert text_of(second) == "Ann."
        assert history(model) == ["I am Ann.", "Hello, Ann.", "Who am I?"]
        assert second.headers["x-hermes-session-id"] == session["X-Hermes-Session-Id"]


async def test_a_session_key_names_a_conversation_of_one_api_key(tmp_path: Path) -> None:
    script = (say("Hello, Ann."), say("Ann."), say("Who knows?"))
    async with door_with(tmp_path, *script) as (door, model):
        named = {"X-Hermes-Session-Key": "kitchen"}
        first = await ask(door.client, "I am Ann.", headers=named)
        second = await ask(door.client, "Who am I?", headers=named)
        assert text_of(second) == "Ann."
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        _, secret = await door.new_key("other")
        third = await ask(await door.with_key(secret), "Who am I?", headers=named)
        assert text_of(third) == "Who knows?"
        assert history(model) == ["Who am I?"]
        assert third.headers["x-hermes-session-id"] != first.headers["x-hermes-session-id"]


async def test_sessions_of_others_do_not_exist(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Mine.")) as (door, model):
        own = await ask(door.client, "Hi")
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        answers = [
            await ask(other, "Hi", headers={"X-Hermes-Session-Id": session_id})
            for session_id in (own.headers["x-hermes-session-id"], "20260101_000000_00000000")
        ]
        for answer in answers:
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "session_not_found"
        assert len(model.requests) == 1


async def test_two_ways_to_name_a_session_at_once_are_refused(tmp_path: Path) -> None:
    async with door_with(tmp_path) as (door, _):
        both = {"X-Hermes-Session-Id": "a", "X-Hermes-Session-Key": "b"}
        answer = await ask(door.client, "Hi", headers=both)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "conflicting_headers"


async def test_results_that_no_call_waits_for_are_refused_in_a_named_session(
    tmp_path: Path,
) -> None:
    made = {"id": "call_x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_x", "content": "rain"}
    async with door_with(tmp_path) as (door, _):
        talk = ("Weather?", {"role": "assistant", "content": None, "tool_calls": [made]}, result)
        answer = await ask(door.client, *talk, headers={"X-Hermes-Session-Key": "kitchen"})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "tool_call_not_found"


async def ended_run(door: HttpDoor) -> RunState:
    """Return how the only run ended."""
    [run] = await door.ledger.runs(RunQuery())
    return (await door.runs.wait(run)).state


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_interrupts_its_turn(tmp_path: Path, stream: bool) -> None:
    never = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Long",), before_end=never)) as (door, model):
        await leave(door, model, body("Hi", stream=stream))
        assert await ended_run(door) is RunState.INCOMPLETE
        assert model.cancelled == 1


async def leave(
    door: HttpDoor, model: ScriptedModel, request: dict[str, Any], **headers: str
) -> None:
    """Send a request and close the connection as soon as the model is at work."""
    leaving = await door.with_key(KEY)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leaving.post(PATH, json=request, headers=headers))
        await model.called(1)
        task.cancel()
    await leaving.aclose()


async def test_with_an_idempotency_key_the_turn_goes_on_and_the_repeat_gets_it(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Long",), before_end=go)) as (door, model):
        same = body("Hi", stream=True)
        key = {"Idempotency-Key": "abc"}
        await leave(door, model, same, **key)
        go.set()
        assert await ended_run(door) is RunState.COMPLETED
        repeats = [await door.client.post(PATH, json=same, headers=key) for _ in range(2)]
        [run] = await door.ledger.runs(RunQuery())
        for answer in repeats:
            assert said(streamed(answer)) == "Long"
            assert answer.headers["x-hermes-run-id"] == run.id
        assert len(model.requests) == 1
        other = await ask(door.client, "Something else", headers=key)
        assert other.status_code == 409


async def test_a_repeat_joins_the_stream_that_is_still_running(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Lo", "ng"), before_end=go)) as (door, model):
        key = {"Idempotency-Key": "abc"}
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(ask(door.client, "Hi", stream=True, headers=key))
                for _ in range(2)
            ]
            await model.called(1)
            go.set()
        assert [said(streamed(task.result())) for task in both] == ["Long", "Long"]
        assert len(model.requests) == 1


async def test_a_stopped_run_ends_its_stream_as_partial(tmp_path: Path) -> None:
    tools, started, never = ScriptedTools(), asyncio.Event(), asyncio.Event()
    tools.add("wait", waits(started, never))
    script = (calls(call("wait"), text="Waiting."),)
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(door.client, "Hi", stream=True))
            await started.wait()
            [run] = await door.ledger.runs(RunQuery())
            assert await door.runs.stop(run)
        events = streamed(asking.result())
        assert said(events) == "Waiting."
        assert events[-1][1]["hermes"]["error_code"] == "interrupted"


async def test_only_a_conversation_that_can_go_on_gets_a_title(tmp_path: Path) -> None:
    side = ScriptedModel(default=say("A Title"))
    script = (say("Hello"), calls(call("weather")), say("Sunny."), say("Hello again"))
    titles = Settings()
    async with door_with(tmp_path, *script, side=side, agent=titles) as (door, _):
        assert text_of(await ask(door.client, "Hi")) == "Hello"
        first = await ask(door.client, "Weather?", tools=[WEATHER])
        message = first.json()["choices"][0]["message"]
        result = {
            "role": "tool",
            "tool_call_id": message["tool_calls"][0]["id"],
            "content": "25 degrees",
        }
        second = await ask(door.client, "Weather?", message, result, tools=[WEATHER])
        assert text_of(second) == "Sunny."
        named = {"X-Hermes-Session-Key": "kitchen"}
        assert text_of(await ask(door.client, "Hi", headers=named)) == "Hello again"
        await side.called(1)
        [titled] = side.requests
        assert "Hello again" in str(titled.messages[0])
