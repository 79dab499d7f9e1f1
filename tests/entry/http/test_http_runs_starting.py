"""`/v1/runs` through the door: accepted, followed, replayed, repeated."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.core import ScriptedTools, returns, waits
from fakes.http_runs import all_events, door, events
from fakes.runs_on import restarted
from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_a_run_is_accepted_and_then_read_with_its_output(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([say("Hel", "lo.")])) as at:
        answer = await at.owner.post("/v1/runs", json={"input": "hi", "metadata": {"a": "b"}})
        assert answer.status_code == 202
        started = answer.json()
        assert started["status"] == "started"
        assert started["run_id"].startswith("run_")
        assert answer.headers["x-hermes-session-id"] == started["session_id"]
        run = await at.ended(started["run_id"])
        assert run["object"] == "hermes.run"
        assert (run["status"], run["output"], run["model"]) == ("completed", "Hello.", "hermes")
        assert run["last_event"] == "run.completed"
        assert run["usage"]["total_tokens"] == 15
        assert run["metadata"] == {"a": "b"}
        listed = (await at.owner.get("/v1/runs")).json()
        assert [each["run_id"] for each in listed["data"]] == [run["run_id"]]
        assert not listed["has_more"]


async def test_events_come_while_the_run_goes_on_with_ids_that_count_from_one(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel(
        [calls(call("look"), text="Looking."), Reply(pieces=("Done",), before=go)]
    )
    async with door(tmp_path, model, tools=tools) as at:
        run_id = await at.start(input="x")
        names = []
        async with asyncio.timeout(20):
            async with at.owner.stream("GET", f"/v1/runs/{run_id}/events") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                async for event in events(answer.aiter_lines()):
                    names.append((int(event["_id"]), event["event"]))
                    if event["event"] == "tool.completed":
                        go.set()
        assert [seq for seq, _ in names] == list(range(1, len(names) + 1))
        kinds = [name for _, name in names]
        assert kinds[0] == "run.started"
        assert kinds[-1] == "run.completed"
        assert kinds.index("tool.started") < kinds.index("tool.completed")


async def test_a_reader_goes_on_after_any_event_it_has_seen(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look"), text="Looking."), say("a", "b", "c")])
    async with door(tmp_path, model, tools=tools) as at:
        run = await at.run(input="x")
        path = f"/v1/runs/{run['run_id']}/events"
        whole = await all_events(at.owner, path)
        for seen in range(1, len(whole)):
            by_header = await all_events(at.owner, path, headers={"Last-Event-ID": str(seen)})
            by_query = await all_events(at.owner, path, params={"after": seen})
            assert by_header == by_query == whole[seen:]
        both: dict[str, Any] = {"headers": {"Last-Event-ID": "2"}, "params": {"after": 1}}
        assert await all_events(at.owner, path, **both) == whole[2:]
        last = await at.owner.get(path, headers={"Last-Event-ID": str(len(whole))})
        assert last.status_code == 204


async def test_many_readers_get_the_same_events(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("one", "two"), before=go)])
    async with door(tmp_path, model) as at:
        run_id = await at.start(input="x")
        path = f"/v1/runs/{run_id}/events"
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(all_events(at.owner, path)) for _ in range(5)]
            async with at.owner.stream("GET", path) as first:
                await anext(events(first.aiter_lines()))
                go.set()
        assert all(reader.result() == readers[0].result() for reader in readers)
        assert readers[0].result()[-1]["output"] == "onetwo"


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "٣", "9" * 19, "77"])
async def test_a_last_event_id_that_the_run_does_not_have_is_refused(
    tmp_path: Path, wrong: str
) -> None:
    async with door(tmp_path, ScriptedModel([say("a")])) as at:
        run = await at.run(input="x")
        path = f"/v1/runs/{run['run_id']}/events"
        answer = await at.owner.get(path, headers={b"Last-Event-ID": wrong.encode()})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "Last-Event-ID"


async def test_a_log_that_was_deleted_is_gone_and_the_run_is_still_there(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([say("a")])) as at:
        run = await at.run(input="x")
        await at.ledger.prune_runs(logs_before=run["updated_at"] + 1, runs_before=0)
        path = f"/v1/runs/{run['run_id']}"
        for headers in ({}, {"Last-Event-ID": "1"}):
            answer = await at.owner.get(f"{path}/events", headers=headers)
            assert answer.status_code == 410
            assert answer.json()["error"]["code"] == "log_expired"
        assert (await at.owner.get(path)).json()["output"] == "a"


async def test_events_go_on_without_a_gap_after_a_restart(tmp_path: Path) -> None:
    started, never = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("look", waits(started, never), replay_safe=True)
    model = ScriptedModel([calls(call("look"), text="Let me look.")])
    async with door(tmp_path, model, tools=tools) as at:
        run_id = await at.start(input="x")
        seen = []
        async with at.owner.stream("GET", f"/v1/runs/{run_id}/events") as answer:
            async for event in events(answer.aiter_lines()):
                seen.append(event)
                if event["event"] == "tool.started":
                    break
        at.behind.core.gateway.drain()
        await at.behind.core.gateway.suspend()
    tools.add("look", returns("seen"), replay_safe=True)
    async with door(tmp_path, ScriptedModel([say("There it is.")]), tools=tools) as at:
        await restarted(at.behind.core, at.runs)
        path = f"/v1/runs/{run_id}/events"
        rest = await all_events(at.owner, path, headers={"Last-Event-ID": seen[-1]["_id"]})
        whole = await all_events(at.owner, path)
        assert seen + rest == whole
        assert [int(event["_id"]) for event in whole] == list(range(1, len(whole) + 1))
        assert whole[-1]["event"] == "run.completed"
        assert whole[-1]["output"] == "There it is."
        assert any(event.get("reason") == "resume" for event in rest)


async def test_the_same_idempotency_key_gives_the_same_run_and_another_body_a_conflict(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("once")])
    async with door(tmp_path, model) as at:
        headers = {"Idempotency-Key": "k1"}
        answers = [
            await at.owner.post("/v1/runs", json={"input": "x"}, headers=headers) for _ in range(3)
        ]
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["run_id"] for answer in answers}) == 1
        await at.ended(answers[0].json()["run_id"])
        other = await at.owner.post("/v1/runs", json={"input": "y"}, headers=headers)
        assert other.status_code == 409
        assert len(model.requests) == 1


async def test_messages_before_the_question_are_history_and_system_text_is_instructions(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("Four.")])
    async with door(tmp_path, model) as at:
        await at.run(
            input=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "1+1?"},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {"type": "message", "role": "assistant", "content": "Two."},
                {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
            ],
            conversation_history=[
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi."},
            ],
            instructions="In English.",
        )
        shown = model.requests[0].messages
        kinds = [type(message) for message in shown]
        assert kinds == [
            *(UserMessage, AssistantMessage) * 2,
            ToolMessage,
            AssistantMessage,
            UserMessage,
        ]
        assert "Be brief." in str(model.requests[0])
        assert "In English." in str(model.requests[0])


async def test_a_run_goes_on_from_an_earlier_one_and_in_a_session(tmp_path: Path) -> None:
    model = ScriptedModel([say("Two."), say("Four."), say("Six.")])
    async with door(tmp_path, model) as at:
        first = await at.run(input="1+1?")
        second = await at.run(input="2+2?", previous_response_id=first["run_id"])
        assert second["session_id"] == first["session_id"]
        assert second["previous_run_id"] == first["run_id"]
        third = await at.run(input="3+3?", session_id=first["session_id"])
        assert third["session_id"] == first["session_id"]
        assert len(model.requests[2].messages) == 5
        both = {"input": "x", "session_id": first["session_id"]}
        clash = await at.owner.post("/v1/runs", json=both | {"previous_response_id": "run_1"})
        assert clash.status_code == 400


async def test_client_tools_are_handed_back_and_their_results_continue_the_run(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([calls(call("weather", "c1", city="Bonn")), say("Sunny.")])
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    async with door(tmp_path, model) as at:
        first = await at.run(input="Weather?", tools=[tool])
        assert first["status"] == "completed"
        assert first["tool_calls"][0]["function"]["name"] == "weather"
        made = first["tool_calls"][0]["id"]
        result = [{"type": "function_call", "call_id": made, "name": "weather", "arguments": "{}"}]
        result.append({"type": "function_call_output", "call_id": made, "output": "sun"})
        second = await at.run(input=result, tools=[tool])
        assert second["output"] == "Sunny."
        assert second["session_id"] == first["session_id"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": ""},
        {"input": []},
        {"input": [{"role": "assistant", "content": " "}]},
        {"input": [{"type": "hologram"}]},
        {"input": [{"role": "nobody", "content": "x"}]},
        {"input": 3},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": [{"type": "function_call", "name": "x"}]},
        {"input": "x", "metadata": [1]},
        {"input": "x", "metadata": "y"},
    ],
)
async def test_an_input_that_makes_no_sense_is_refused(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        answer = await at.owner.post("/v1/runs", json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_an_unknown_model_session_or_earlier_run_is_not_found(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        for more, code in (
            ({"model": "gpt-9"}, "model_not_found"),
            ({"session_id": "nope"}, "session_not_found"),
            ({"previous_response_id": "run_nope"}, "run_not_found"),
        ):
            answer = await at.owner.post("/v1/runs", json={"input": "x"} | more)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == code
