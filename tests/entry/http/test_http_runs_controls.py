"""Stopping, steering and listing runs through the door; and whose they are."""

import asyncio
from pathlib import Path
from typing import Any

from fakes.asking import Asking, asks
from fakes.core import ScriptedTools, waits
from fakes.http_runs import all_events, door
from hermes.domain.keys import Action
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_a_running_run_is_stopped_and_ends_cancelled(tmp_path: Path) -> None:
    model = ScriptedModel([Reply(pieces=("Once upon",), before_end=asyncio.Event())])
    async with door(tmp_path, model) as at:
        run_id = await at.start(input="a story")
        await at.until(run_id, "message.delta")
        answer = await at.owner.post(f"/v1/runs/{run_id}/stop")
        assert answer.json() == {"run_id": run_id, "status": "stopping"}
        assert (await at.ended(run_id))["status"] == "cancelled"
        told = await all_events(at.owner, f"/v1/runs/{run_id}/events")
        assert told[-1]["event"] == "run.cancelled"
        again = await at.owner.post(f"/v1/runs/{run_id}/stop")
        assert again.json() == {"run_id": run_id, "status": "cancelled"}


async def test_text_is_taken_by_a_running_turn_and_refused_by_one_that_ended(
    tmp_path: Path,
) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools()
    tools.add("look", waits(started, go))
    model = ScriptedModel([calls(call("look")), say("In French: oui.")])
    async with door(tmp_path, model, tools=tools) as at:
        run_id = await at.start(input="x")
        await at.until(run_id, "tool.started")
        path = f"/v1/runs/{run_id}/steer"
        answer = await at.owner.post(path, json={"input": "in French"})
        assert answer.status_code == 202
        go.set()
        await at.ended(run_id)
        taken = await all_events(at.owner, f"/v1/runs/{run_id}/events")
        assert [e["text"] for e in taken if e["event"] == "steer.taken"] == ["in French"]
        late = await at.owner.post(path, json={"input": "too late"})
        assert late.status_code == 409
        assert late.json()["error"]["code"] == "run_not_running"


async def test_runs_and_approvals_of_another_key_do_not_exist(tmp_path: Path) -> None:
    asking = Asking()
    async with door(tmp_path, asks("danger"), tools=asking.tools) as at:
        asking.at = at
        mine, theirs = await at.key("mine"), await at.key("theirs")
        boss = await at.key("boss", Action.ADMIN)
        run_id = await at.start(mine, input="x")
        approval_id = await asking.next()
        run, approval = f"/v1/runs/{run_id}", f"/v1/approvals/{approval_id}"
        requests: list[tuple[str, str, dict[str, Any] | None]] = [
            ("GET", run, None),
            ("GET", f"{run}/events", None),
            ("POST", f"{run}/stop", None),
            ("POST", f"{run}/steer", {"input": "x"}),
            ("POST", f"{run}/approval", {"choice": "once"}),
            ("GET", approval, None),
            ("POST", approval, {"choice": "once"}),
        ]
        for method, path, body in requests:
            foreign = await theirs.request(method, path, json=body)
            unknown = path.replace(run_id, "run_x").replace(approval_id, "appr_x")
            missing = await theirs.request(method, unknown, json=body)
            assert foreign.status_code == missing.status_code == 404
            assert foreign.json() == missing.json()
        body = {"input": "x", "previous_response_id": run_id}
        assert (await theirs.post("/v1/runs", json=body)).status_code == 404
        for path in ("/v1/runs", "/v1/approvals"):
            assert (await theirs.get(path)).json()["data"] == []
            assert len((await mine.get(path)).json()["data"]) == 1
            assert len((await boss.get(path)).json()["data"]) == 1
        assert (await mine.post(approval, json={"choice": "once"})).status_code == 200
        await at.ended(run_id)


async def test_a_key_needs_the_action_for_what_it_does(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        runner = await at.key("runner", Action.RUN)
        reader = await at.key("reader", Action.SESSIONS)
        for client, method, path in (
            (runner, "GET", "/v1/approvals"),
            (runner, "POST", "/v1/runs/run_x/approval"),
            (runner, "GET", "/api/sessions"),
            (reader, "POST", "/v1/runs"),
            (reader, "POST", "/api/sessions/s/chat"),
        ):
            answer = await client.request(method, path, json={})
            assert answer.status_code == 403, path


async def test_runs_are_listed_in_pages_and_by_status(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel(default=say("ok"))) as at:
        ids = [(await at.run(input=str(number)))["run_id"] for number in range(3)]
        page = (await at.owner.get("/v1/runs", params={"limit": 2})).json()
        assert [run["run_id"] for run in page["data"]] == ids[:0:-1]
        assert page["has_more"]
        rest = (await at.owner.get("/v1/runs", params={"limit": 2, "offset": 2})).json()
        assert [run["run_id"] for run in rest["data"]] == ids[:1]
        assert not rest["has_more"]
        for status, count in (("completed", 3), ("failed", 0)):
            found = (await at.owner.get("/v1/runs", params={"status": status})).json()
            assert len(found["data"]) == count
        wrong = await at.owner.get("/v1/runs", params={"status": "asleep"})
        assert wrong.status_code == 400
