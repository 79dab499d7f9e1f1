"""`/api/jobs` through the door."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.jobs_door import SECRET, JobsDoor, jobs_door
from fakes.ledgers import record_instant
from hermes.domain.jobs import DeliveryStatus, Instant, InstantStatus
from hermes.domain.keys import Action

NEWS = {"name": "News", "schedule": "every 2h", "prompt": "Read the news."}
ROUTES = [
    ("GET", "/api/jobs"),
    ("POST", "/api/jobs"),
    ("GET", "/api/jobs/{id}"),
    ("PATCH", "/api/jobs/{id}"),
    ("DELETE", "/api/jobs/{id}"),
    ("POST", "/api/jobs/{id}/pause"),
    ("POST", "/api/jobs/{id}/resume"),
    ("POST", "/api/jobs/{id}/run"),
    ("GET", "/api/jobs/{id}/history"),
]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[JobsDoor]:
    async with jobs_door(tmp_path) as door:
        yield door


async def make(door: JobsDoor, **more: Any) -> dict[str, Any]:
    job: dict[str, Any] = (await door.good("POST", "/api/jobs", {**NEWS, **more}))["job"]
    return job


async def test_a_job_is_made_read_listed_and_removed(door: JobsDoor) -> None:
    made = await make(door, skills=["web"], repeat={"times": 2})
    assert made["schedule"] == {"kind": "interval", "minutes": 120, "display": "every 2h"}
    assert made["next_run_at"] == "2027-01-15T11:00:00+01:00"
    assert (made["state"], made["enabled"], made["deliver"]) == ("scheduled", True, "local")
    assert (made["skills"], made["skill"]) == (["web"], "web")
    assert made["repeat"] == {"times": 2, "completed": 0}
    path = f"/api/jobs/{made['id']}"
    assert await door.good("GET", path) == {"job": made}
    assert await door.good("GET", "/api/jobs") == {"jobs": [made]}
    assert await door.good("DELETE", path) == {"ok": True}
    await door.refused(404, "GET", path)
    await door.refused(404, "DELETE", path)
    assert await door.good("GET", "/api/jobs") == {"jobs": []}


async def test_a_job_needs_only_a_schedule_and_a_prompt(door: JobsDoor) -> None:
    body = {"schedule": "30m", "prompt": "Water the plants"}
    job = (await door.good("POST", "/api/jobs", body))["job"]
    assert (job["name"], job["schedule_display"]) == ("Water the plants", "once in 30m")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"prompt": "x"}, "schedule"),
        ({"schedule": "1h"}, "needs a prompt"),
        ({"schedule": "1h", "prompt": "x" * 5001}, "prompt"),
        ({**NEWS, "name": "x" * 201}, "name"),
        ({**NEWS, "schedule": "sometime"}, "not a schedule"),
        ({**NEWS, "schedule": "2020-01-01"}, "in the past"),
        ({**NEWS, "schedule": 5}, "schedule"),
        ({**NEWS, "deliver": "origin"}, "origin"),
        ({**NEWS, "deliver": "some where"}, "deliver"),
        ({**NEWS, "repeat": 0}, "repeat"),
        ({**NEWS, "repeat": "often"}, "repeat"),
        ({**NEWS, "skills": [""]}, "skills"),
        ({**NEWS, "skills": [str(n) for n in range(51)]}, "skills"),
    ],
)
async def test_what_cannot_be_a_job_is_a_400_that_says_why(
    door: JobsDoor, body: Any, complaint: str
) -> None:
    assert complaint in await door.refused(400, "POST", "/api/jobs", body)
    assert await door.good("GET", "/api/jobs") == {"jobs": []}


async def test_a_job_is_changed_field_by_field(door: JobsDoor) -> None:
    made = await make(door)
    path = f"/api/jobs/{made['id']}"
    body = {"name": "Late news", "schedule": "0 22 * * *", "skill": "web", "repeat": 5}
    changed = (await door.good("PATCH", path, body))["job"]
    assert (changed["name"], changed["skills"], changed["prompt"]) == (
        "Late news",
        ["web"],
        "Read the news.",
    )
    assert changed["next_run_at"] == "2027-01-15T22:00:00+01:00"
    assert changed["repeat"]["times"] == 5
    cleared = (await door.good("PATCH", path, {"skill": None, "repeat": None}))["job"]
    assert (cleared["skills"], cleared["repeat"]["times"]) == ([], None)
    assert (await door.good("PATCH", path, {}))["job"] == cleared


@pytest.mark.parametrize(
    "body",
    [
        {"id": "ffffffffffff"},
        {"script": "evil.sh"},
        {"next_run_at": "2030-01-01"},
        {"name": "ok", "workdir": "/"},
        {"name": None},
        {"enabled": "yes"},
    ],
)
async def test_only_some_fields_can_be_changed(door: JobsDoor, body: Any) -> None:
    made = await make(door)
    await door.refused(400, "PATCH", f"/api/jobs/{made['id']}", body)
    assert await door.good("GET", f"/api/jobs/{made['id']}") == {"job": made}


async def test_a_job_is_paused_resumed_and_made_due(door: JobsDoor) -> None:
    made = await make(door)
    path = f"/api/jobs/{made['id']}"
    paused = (await door.good("POST", f"{path}/pause", {"reason": "holidays"}))["job"]
    assert (paused["state"], paused["enabled"], paused["next_run_at"]) == ("paused", False, None)
    assert paused["paused_reason"] == "holidays"
    assert "paused" in await door.refused(409, "POST", f"{path}/run")
    door.clock.advance(600)
    resumed = (await door.good("POST", f"{path}/resume"))["job"]
    assert (resumed["state"], resumed["next_run_at"]) == (
        "scheduled",
        "2027-01-15T11:10:00+01:00",
    )
    due = (await door.good("POST", f"{path}/run"))["job"]
    assert (due["state"], due["next_run_at"]) == ("scheduled", "2027-01-15T09:10:00+01:00")
    assert (await door.good("POST", f"{path}/pause"))["job"]["paused_reason"] is None


async def test_history_shows_run_and_delivery_apart(door: JobsDoor) -> None:
    made = await make(door)
    for number in range(3):
        record_instant(
            door.folder / "state.db",
            Instant(
                job_id=made["id"],
                due_at=door.clock.now() + number,
                status=InstantStatus.RAN,
                delivery=DeliveryStatus.FAILED,
                delivery_error=f"{SECRET} was refused",
                claimed_by="host-1",
                session_id="cron_1",
            ),
        )
    path = f"/api/jobs/{made['id']}/history"
    page = await door.good("GET", f"{path}?limit=2")
    assert (page["object"], page["limit"], page["has_more"]) == ("list", 2, True)
    newest = page["data"][0]
    assert newest["due_at"] == "2027-01-15T09:00:02+01:00"
    assert (newest["status"], newest["delivery"]) == ("ran", "failed")
    assert newest["delivery_error"] == "*** was refused"
    assert "claimed_by" not in newest
    assert (await door.good("GET", path))["has_more"] is False
    for limit in ("0", "201", "x"):
        await door.refused(400, "GET", f"{path}?limit={limit}")


async def test_each_agent_has_its_own_jobs(door: JobsDoor) -> None:
    mine = await make(door)
    theirs = await make(door, agent="coder")
    assert await door.good("GET", "/api/jobs?agent=coder") == {"jobs": [theirs]}
    assert await door.good("GET", "/api/jobs?model=hermes-agent") == {"jobs": [mine]}
    await door.refused(404, "GET", f"/api/jobs/{theirs['id']}")
    assert await door.good("GET", f"/api/jobs/{theirs['id']}?agent=coder") == {"job": theirs}
    await door.refused(404, "GET", "/api/jobs?agent=nobody")


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_keys_reach_what_they_may(door: JobsDoor, method: str, path: str) -> None:
    made = await make(door)
    path = path.replace("{id}", made["id"])
    body = NEWS if (method, path) == ("POST", "/api/jobs") else {}
    await door.refused(401, method, path, body, key=None)
    await door.refused(401, method, path, body, key="wrong-key-wrong-key")
    runner = await door.key("runner", Action.RUN, Action.SESSIONS, Action.OBSERVE)
    await door.refused(403, method, path, body, key=runner)
    coder = await door.key("coder-only", Action.JOBS, agents=("coder",))
    foreign = await door.refused(404, method, path, body, key=coder)
    unknown = await door.refused(404, method, f"{path}?agent=hermes", body, key=coder)
    assert made["id"] not in foreign + unknown
    assert await door.good("GET", "/api/jobs") == {"jobs": [made]}


async def test_a_key_for_jobs_manages_the_jobs_of_its_agent(door: JobsDoor) -> None:
    key = await door.key("cron", Action.JOBS, agents=("coder",))
    made = await door.call("POST", "/api/jobs", {**NEWS, "agent": "coder"}, key=key)
    assert made.status_code == 200
    listed = await door.call("GET", "/api/jobs?agent=coder", key=key)
    assert [each["id"] for each in listed.json()["jobs"]] == [made.json()["job"]["id"]]


async def test_an_entry_that_makes_no_sense_is_listed_in_error(door: JobsDoor) -> None:
    made = await make(door)
    path = door.files("main").path
    content = json.loads(path.read_text(encoding="utf-8"))
    content["jobs"].insert(0, {"id": "abc", "name": "Odd", "schedule": "full moon"})
    path.write_text(json.dumps(content), encoding="utf-8")
    odd, fine = (await door.good("GET", "/api/jobs"))["jobs"]
    assert (odd["state"], fine) == ("error", made)
    assert "schedule" in odd["last_error"]
    await door.refused(409, "POST", "/api/jobs/abc/run")
    await door.refused(400, "POST", "/api/jobs/abc/resume")
    mended = await door.good("PATCH", "/api/jobs/abc", {"schedule": "1h"})
    assert mended["job"]["state"] == "scheduled"


async def test_a_broken_file_is_a_503_and_stays_as_it_is(door: JobsDoor) -> None:
    path = door.files("main").path
    path.parent.mkdir(parents=True)
    path.write_text('{"jobs": [', encoding="utf-8")
    for method, body in (("GET", None), ("POST", NEWS)):
        assert "jobs.json" in await door.refused(503, method, "/api/jobs", body)
    assert path.read_text(encoding="utf-8") == '{"jobs": ['


async def test_secrets_do_not_leave_with_a_job(door: JobsDoor) -> None:
    made = await make(door, prompt=f"Log in with {SECRET}")
    assert made["prompt"] == "Log in with ***"
    assert SECRET in door.files("main").path.read_text(encoding="utf-8")
