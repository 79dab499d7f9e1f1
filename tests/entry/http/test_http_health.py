"""Health, readiness and metrics through the door."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.jobs_door import SECRET, JobsDoor, jobs_door
from fakes.ledgers import outgoing
from hermes.domain.keys import Action
from hermes.domain.outbound import OutboxState


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[JobsDoor]:
    async with jobs_door(tmp_path) as door:
        yield door


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health_needs_no_key(door: JobsDoor, path: str) -> None:
    answer = await door.call("GET", path, key=None)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "platform": "hermes-agent", "version": "1.2.3"}


async def test_health_answers_even_without_a_ledger(door: JobsDoor) -> None:
    await door.door.ledger.close()
    assert (await door.call("GET", "/health", key=None)).status_code == 200


async def test_ready_says_yes_or_no_and_nothing_else(door: JobsDoor) -> None:
    answer = await door.call("GET", "/ready", key=None)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "checks": {"ledger": True, "gateway": True}}
    door.checks["gateway"] = False
    answer = await door.call("GET", "/ready", key=None)
    assert answer.status_code == 503
    assert answer.json() == {"status": "not_ready", "checks": {"ledger": True, "gateway": False}}


async def test_detailed_health_tells_how_things_are(door: JobsDoor) -> None:
    door.state["platforms"]["slack"] = {"state": "fatal", "error_message": f"{SECRET} is wrong"}
    door.state["active_agents"] = 2
    told = await door.good("GET", "/health/detailed")
    assert told["readiness"]["status"] == "ready"
    assert (told["gateway_state"], told["active_agents"], told["pid"]) == ("running", 2, 7)
    assert (told["gateway_busy"], told["gateway_drainable"]) == (True, True)
    assert (told["exit_reason"], told["updated_at"]) == (None, "2027-01-15T08:00:00+00:00")
    assert told["platforms"] == {
        "telegram": {"state": "connected"},
        "slack": {"state": "fatal", "error_message": "*** is wrong"},
    }
    assert "argv" not in told
    assert told["outbox"] == {}
    door.state |= {"gateway_state": "draining", "active_agents": 0}
    told = await door.good("GET", "/health/detailed")
    assert (told["gateway_busy"], told["gateway_drainable"]) == (False, False)


async def test_answers_of_unknown_fate_are_counted(door: JobsDoor) -> None:
    ledger, at = door.door.ledger, time.time()
    await ledger.enqueue(outgoing("o1", at=at))
    await ledger.enqueue(outgoing("o2", at=at))
    await ledger.claim_send("o2", at)
    await ledger.update_outbox("o2", state=OutboxState.UNKNOWN, at=at)
    told = (await door.good("GET", "/health/detailed"))["outbox"]["telegram"]
    assert (told["unsent"], told["unknown"]) == (1, 1)


@pytest.mark.parametrize("path", ["/health/detailed", "/metrics"])
async def test_details_are_for_keys_that_may_observe(door: JobsDoor, path: str) -> None:
    await door.refused(401, "GET", path, key=None)
    runner = await door.key("runner", Action.RUN, Action.JOBS)
    await door.refused(403, "GET", path, key=runner)
    watcher = await door.key("watcher", Action.OBSERVE)
    assert (await door.call("GET", path, key=watcher)).status_code == 200


async def test_metrics_show_turns_requests_and_how_things_stand(door: JobsDoor) -> None:
    await door.door.core.ask("hello")
    await door.door.core.idle()
    await door.call("GET", "/v1/models/unknown")
    answer = await door.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'hermes_turns_total{agent="main",outcome="done",platform="cli"} 1' in lines
    assert 'hermes_adapter_up{platform="telegram"} 1' in lines
    assert "hermes_live_sessions 0" in lines
    assert "hermes_inbox_waiting 0" in lines
    counted = 'hermes_http_requests_total{method="GET",route="/v1/models/{model}",status="404"} 1'
    assert counted in lines
    assert any(line.startswith("hermes_turn_seconds_bucket") for line in lines)
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


async def test_a_key_of_one_agent_observes_that_one_only(door: JobsDoor) -> None:
    await door.door.core.ask("hello")
    await door.door.core.idle()
    up = {"state": "connected"}
    door.state |= {"platforms": {"telegram": up, "telegram:coder": up, "telegram:other": up}}
    door.state["warnings"] = ["Agent other: /a/path is missing"]
    bound = await door.key("bound", Action.OBSERVE, agents=("coder",))
    told = (await door.call("GET", "/health/detailed", key=bound)).json()
    assert (told["platforms"], told["warnings"]) == ({"telegram:coder": up}, [])
    lines = (await door.call("GET", "/metrics", key=bound)).text.splitlines()
    assert 'hermes_adapter_up{platform="telegram:coder"} 1' in lines
    assert "hermes_live_sessions 0" in lines
    assert not [each for each in lines if "main" in each or "other" in each]


async def test_many_ask_for_metrics_at_once(door: JobsDoor) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(door.call("GET", "/metrics")) for _ in range(20)]
    assert {task.result().status_code for task in tasks} == {200}
