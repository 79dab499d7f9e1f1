"""The HTTP door with jobs, catalog and health, for two agents, at a time the test owns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
from msgspec.structs import replace

from fakes.http_door import KEY, SECRET, HttpDoor, bearer, http_door, with_agents
from hermes.control.supervision.metrics import TurnMetrics
from hermes.domain.keys import Action
from hermes.entry.http.api import catalog, health, jobs
from hermes.entry.http.endpoint import HttpContext, ServedAgent, Toolset, operations
from hermes.state.jobs import JobFiles
from hermes.testing import FakeClock
from hermes.testing.model import ScriptedModel, say

__all__ = ["KEY", "SECRET", "JobsDoor", "jobs_door"]

BERLIN = ZoneInfo("Europe/Berlin")


class JobsDoor:
    """What a test can do at the door."""

    def __init__(self, folder: Path) -> None:
        self.door: HttpDoor
        self.clock = FakeClock()
        self.folder = folder
        self.checks = {"ledger": True, "gateway": True}
        self.state: dict[str, Any] = {
            "gateway_state": "running",
            "pid": 7,
            "active_agents": 0,
            "updated_at": "2027-01-15T08:00:00+00:00",
            "exit_reason": None,
            "platforms": {"telegram": {"state": "connected"}},
            "argv": ["hermes", "gateway", "run"],
            "warnings": [],
        }

    def files(self, agent_id: str) -> JobFiles:
        """Return the job file of an agent."""
        return JobFiles(self.folder / agent_id / "cron")

    async def key(self, name: str, *actions: Action, agents: tuple[str, ...] = ()) -> str:
        """Make a key and return its secret."""
        _, secret = await self.door.new_key(name, agents=agents, actions=actions)
        return secret

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = KEY
    ) -> httpx2.Response:
        """Make a request."""
        client = self.door.client
        request = client.build_request(method, path, json=body)
        del request.headers["authorization"]
        if key is not None:
            request.headers.update(bearer(key))
        return await client.send(request)

    async def good(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request with the owner's key and return what it is answered."""
        answer = await self.call(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(
        self, status: int, method: str, path: str, body: Any = None, *, key: str | None = KEY
    ) -> str:
        """Make a request that is refused and return the message."""
        answer = await self.call(method, path, body, key=key)
        assert answer.status_code == status, answer.text
        return str(answer.json()["error"]["message"])

    def context(self, context: HttpContext) -> HttpContext:
        """Return the context as these tests want them."""

        async def skills(agent_id: str) -> list[dict[str, Any]]:
            return [{"name": f"{agent_id}-skill", "description": SECRET, "path": "skills/a"}]

        return replace(
            with_agents(context, ServedAgent(agent_id="coder", name="coder")),
            clock=self.clock,
            jobs=self.files,
            toolsets=lambda agent: (Toolset(name=agent, enabled=True, tools=("read_file",)),),
            skills=skills,
            gateway_state=lambda: self.state,
            ready=lambda: self.checks,
            version="1.2.3",
            zone=BERLIN,
        )


@asynccontextmanager
async def jobs_door(folder: Path) -> AsyncIterator[JobsDoor]:
    """Open the door for the body of the `with`."""
    jobs_door = JobsDoor(folder)
    listed = (*operations(jobs), *operations(health), *operations(catalog))
    endpoints = (*listed, catalog.capabilities_endpoint(listed))
    model = ScriptedModel(default=say("hello"))
    async with http_door(folder, model, endpoints=endpoints, more=jobs_door.context) as door:
        jobs_door.door = door
        counting = TurnMetrics(door.context.metrics, door.core.gateway.clock)
        with door.core.gateway.doors.watching(counting.on_turn):
            yield jobs_door
