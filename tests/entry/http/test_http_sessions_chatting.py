"""`/api/sessions/{id}/chat` through the door: answered in one piece or as events."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.core import ScriptedTools, returns
from fakes.http_runs import Door, all_events, door, events
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def new_session(at: Door, **body: str) -> str:
    session_id: str = (await at.owner.post("/api/sessions", json=body)).json()["session"]["id"]
    return session_id


async def test_a_chat_is_answered_in_the_session_with_its_instructions(tmp_path: Path) -> None:
    model = ScriptedModel([say("Salve."), say("Vale.")])
    async with door(tmp_path, model) as at:
        session_id = await new_session(at, system_prompt="Speak Latin.")
        path = f"/api/sessions/{session_id}/chat"
        first = await at.owner.post(path, json={"message": "hello"})
        answer = first.json()
        assert answer["object"] == "hermes.session.chat.completion"
        assert answer["message"] == {"role": "assistant", "content": "Salve."}
        assert (answer["session_id"], answer["model"]) == (session_id, "hermes")
        assert answer["usage"]["total_tokens"] == 15
        assert first.headers["x-hermes-session-id"] == session_id
        run = (await at.owner.get(f"/v1/runs/{answer['run_id']}")).json()
        assert (run["kind"], run["output"]) == ("session", "Salve.")
        body = {"input": "goodbye", "instructions": "Be short."}
        assert (await at.owner.post(path, json=body)).json()["message"]["content"] == "Vale."
        assert len(model.requests[1].messages) == 3
        for request in model.requests:
            assert "Speak Latin." in str(request)
        assert "Be short." in str(model.requests[1])
        assert "Be short." not in str(model.requests[0])


async def test_a_chat_streams_named_events_to_the_end(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look"), text="Looking."), say("Do", "ne.")])
    async with door(tmp_path, model, tools=tools) as at:
        session_id = await new_session(at)
        path = f"/api/sessions/{session_id}/chat/stream"
        shown = await all_events(at.owner, path, "POST", json={"message": "x"})
        assert [event["seq"] for event in shown] == list(range(1, len(shown) + 1))
        assert {event["session_id"] for event in shown} == {session_id}
        names = [event["_name"] for event in shown if event["_name"] != "usage"]
        for name in ("run.started", "message.started", "tool.started", "tool.completed"):
            assert name in names
        assert names[-3:] == ["assistant.completed", "run.completed", "done"]
        final = next(event for event in shown if event["_name"] == "assistant.completed")
        assert final["content"] == "Done."
        deltas = [event["delta"] for event in shown if event["_name"] == "assistant.delta"]
        assert "".join(deltas) == "Looking.Done."


@pytest.mark.parametrize("rest", ["chat", "chat/stream"])
async def test_a_client_that_leaves_interrupts_its_turn(tmp_path: Path, rest: str) -> None:
    said, never = asyncio.Event(), asyncio.Event()

    def reply(request: object) -> Reply:
        said.set()
        return Reply(pieces=("Once upon",), before_end=never)

    async with door(tmp_path, ScriptedModel([reply])) as at:
        session_id = await new_session(at)
        path = f"/api/sessions/{session_id}/{rest}"
        asking = asyncio.create_task(at.owner.post(path, json={"message": "a story"}))
        await asyncio.wait_for(said.wait(), 10)
        asking.cancel()
        await asyncio.wait({asking})
        run = (await at.owner.get("/v1/runs")).json()["data"][0]
        ended = await at.ended(run["run_id"])
        assert ended["status"] == "completed"
        assert ended["incomplete"] is True


async def test_a_client_that_leaves_with_an_idempotency_key_finds_its_answer_later(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Once", " upon"), before_end=go)])
    async with door(tmp_path, model) as at:
        session_id = await new_session(at)
        path = f"/api/sessions/{session_id}/chat/stream"
        more: dict[str, Any] = {"json": {"message": "x"}, "headers": {"Idempotency-Key": "k"}}
        async with at.owner.stream("POST", path, **more) as answer:
            async for event in events(answer.aiter_lines()):
                if event["_name"] == "assistant.delta":
                    break
        go.set()
        shown = await all_events(at.owner, path, "POST", **more)
        assert "".join(e["delta"] for e in shown if e["_name"] == "assistant.delta") == "Once upon"
        assert shown[-1]["_name"] == "done"
        again = await all_events(at.owner, path, "POST", **more)
        assert "".join(e["delta"] for e in again if e["_name"] == "assistant.delta") == "Once upon"
        assert len(model.requests) == 1


async def test_a_turn_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.AUTH, "The key was refused.")
    async with door(tmp_path, ScriptedModel(default=failure)) as at:
        session_id = await new_session(at)
        path = f"/api/sessions/{session_id}/chat"
        answer = await at.owner.post(path, json={"message": "x"})
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "agent_incomplete"
        assert "The key was refused." in answer.json()["error"]["message"]
        shown = await all_events(at.owner, f"{path}/stream", "POST", json={"message": "x"})
        assert [event["_name"] for event in shown[-2:]] == ["error", "done"]


async def test_a_message_has_to_be_there_once_and_for_this_agent(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        path = f"/api/sessions/{await new_session(at)}/chat"
        wrong: list[dict[str, Any]] = [
            {},
            {"message": "a", "input": "b"},
            {"message": ""},
            {"message": []},
        ]
        for body in wrong:
            assert (await at.owner.post(path, json=body)).status_code == 400
        other = await at.owner.post(path, json={"message": "a", "model": "gpt-9"})
        assert other.status_code == 404


async def test_pictures_and_results_of_client_tools_are_taken(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("weather", "c1")), say("Sunny.")])
    tool = {"type": "function", "function": {"name": "weather"}}
    async with door(tmp_path, model) as at:
        path = f"/api/sessions/{await new_session(at)}/chat"
        picture = {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}}
        body = {"message": [{"type": "text", "text": "Weather?"}, picture], "tools": [tool]}
        first = (await at.owner.post(path, json=body)).json()
        made = first["message"]["tool_calls"][0]["id"]
        assert len(at.behind.media.kept) == 1
        items = [
            {"type": "function_call", "call_id": made, "name": "weather"},
            {"type": "function_call_output", "call_id": made, "output": "sun"},
        ]
        second = await at.owner.post(path, json={"message": items, "tools": [tool]})
        assert second.json()["message"]["content"] == "Sunny."
        assert "sun" in str(model.requests[1].messages[-1])
