"""Models, capabilities, toolsets and skills through the door."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.jobs_door import JobsDoor, jobs_door
from hermes.domain.keys import Action


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[JobsDoor]:
    async with jobs_door(tmp_path) as door:
        yield door


async def test_models_are_the_agents_this_key_may_run(door: JobsDoor) -> None:
    listed = await door.good("GET", "/v1/models")
    assert [each["id"] for each in listed["data"]] == ["hermes", "coder"]
    assert listed["object"] == "list"
    assert await door.good("GET", "/v1/models") == listed
    coder = await door.key("coder-only", Action.RUN, agents=("coder",))
    answer = await door.call("GET", "/v1/models", key=coder)
    assert [each["id"] for each in answer.json()["data"]] == ["coder"]
    assert listed["data"][0] == {
        "id": "hermes",
        "object": "model",
        "created": 1767225600,
        "owned_by": "hermes",
        "permission": [],
        "root": "hermes",
        "parent": None,
    }


@pytest.mark.parametrize("name", ["hermes", "main", "hermes-agent"])
async def test_a_model_is_found_under_all_its_names(door: JobsDoor, name: str) -> None:
    assert (await door.good("GET", f"/v1/models/{name}"))["id"] == "hermes"


async def test_a_model_out_of_reach_is_like_one_that_is_not_there(door: JobsDoor) -> None:
    coder = await door.key("coder-only", Action.RUN, agents=("coder",))
    foreign = await door.call("GET", "/v1/models/hermes", key=coder)
    unknown = await door.call("GET", "/v1/models/gpt-4", key=coder)
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    told = [answer.json()["error"] for answer in (foreign, unknown)]
    assert [each["code"] for each in told] == ["model_not_found", "model_not_found"]
    assert told[0]["message"].replace("hermes", "gpt-4") == told[1]["message"]


async def test_capabilities_name_the_endpoints_that_are_there(door: JobsDoor) -> None:
    told = await door.good("GET", "/v1/capabilities")
    assert told["object"] == "hermes.api_server.capabilities"
    assert (told["platform"], told["model"]) == ("hermes-agent", "hermes")
    assert told["auth"] == {"type": "bearer", "required": True}
    assert told["endpoints"]["listJobs"] == {"method": "GET", "path": "/api/jobs"}
    assert told["endpoints"]["capabilities"] == {"method": "GET", "path": "/v1/capabilities"}
    assert told["features"]["jobs"] is True
    assert told["features"]["chat_completions"] is False
    for endpoint in told["endpoints"].values():
        path = endpoint["path"].replace("{job_id}", "0" * 12).replace("{model}", "hermes")
        allowed = await door.door.client.request("OPTIONS", path)
        assert endpoint["method"] in allowed.headers.get("allow", ""), endpoint


async def test_capabilities_do_not_promise_an_agent_that_the_key_may_not_run(
    door: JobsDoor,
) -> None:
    coder = await door.key("coder-only", Action.RUN, agents=("coder",))
    answer = await door.call("GET", "/v1/capabilities", key=coder)
    assert answer.json()["model"] is None


async def test_toolsets_and_skills_are_those_of_the_agent(door: JobsDoor) -> None:
    assert await door.good("GET", "/v1/toolsets") == {
        "object": "list",
        "data": [{"name": "main", "enabled": True, "tools": ["read_file"]}],
    }
    skills = await door.good("GET", "/v1/skills?agent=coder")
    assert skills["data"] == [{"name": "coder-skill", "description": "***", "path": "skills/a"}]
    coder = await door.key("coder-only", Action.RUN, agents=("coder",))
    for path in ("/v1/toolsets", "/v1/skills", "/v1/skills?agent=hermes"):
        await door.refused(404, "GET", path, key=coder)


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/hermes", "/v1/capabilities", "/v1/toolsets", "/v1/skills"]
)
async def test_nothing_is_told_without_a_key(door: JobsDoor, path: str) -> None:
    await door.refused(401, "GET", path, key=None)
    await door.refused(401, "GET", path, key="wrong-key-wrong-key")
