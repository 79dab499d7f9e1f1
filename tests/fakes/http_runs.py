"""The run, approval and session endpoints behind the HTTP door, and ways to read their streams."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from fakes.core import ScriptedTools
from fakes.http_door import HttpDoor, http_door
from hermes.control.runs.runs import Runs
from hermes.domain.keys import Action
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import Model
from hermes.entry.http.api import approvals, runs, sessions
from hermes.entry.http.endpoint import operations

__all__ = ["Door", "Event", "all_events", "door", "events"]

ENDPOINTS = (*operations(runs), *operations(approvals), *operations(sessions))
Event = dict[str, Any]


class Door:
    """The door with the endpoints of runs, approvals and sessions."""

    def __init__(self, behind: HttpDoor) -> None:
        self.behind = behind
        self.owner = behind.client

    @property
    def ledger(self) -> Ledger:
        return self.behind.ledger

    @property
    def runs(self) -> Runs:
        return self.behind.runs

    async def key(
        self, name: str, *actions: Action, agents: tuple[str, ...] = ()
    ) -> httpx2.AsyncClient:
        """Make a key and return a client that presents it."""
        wanted = actions or (Action.RUN, Action.SESSIONS, Action.APPROVE)
        _, secret = await self.behind.new_key(name, actions=wanted, agents=agents)
        return await self.behind.with_key(secret)

    async def start(self, client: httpx2.AsyncClient | None = None, **body: Any) -> str:
        """Start a run and return its id."""
        answer = await (client or self.owner).post("/v1/runs", json=body)
        assert answer.status_code == 202, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    async def run(self, client: httpx2.AsyncClient | None = None, **body: Any) -> dict[str, Any]:
        """Start a run and return how it stands when it has ended."""
        return await self.ended(await self.start(client, **body))

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run and return how it stands."""
        run = await self.runs.get(run_id)
        assert run is not None
        async with asyncio.timeout(10):
            await self.runs.wait(run)
        value: dict[str, Any] = (await self.owner.get(f"/v1/runs/{run_id}")).json()
        return value

    async def until(self, run_id: str, name: str) -> Event:
        """Follow a run until an event of this name and return it."""
        path = f"/v1/runs/{run_id}/events"
        async with asyncio.timeout(10), self.owner.stream("GET", path) as answer:
            async for event in events(answer.aiter_lines()):
                if event["event"] == name:
                    return event
        raise AssertionError(f"there was no {name}")


async def events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    """Read server-sent events; `_id` and `_name` are the fields around the data."""
    found: dict[str, str] = {}
    async for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value
        elif not line and found:
            yield json.loads(found["data"]) | {"_id": found.get("id"), "_name": found.get("event")}
            found = {}


async def all_events(
    client: httpx2.AsyncClient, path: str, method: str = "GET", **more: Any
) -> list[Event]:
    """Read a stream to its end."""
    async with asyncio.timeout(20), client.stream(method, path, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for event in events(answer.aiter_lines())]


@asynccontextmanager
async def door(
    folder: Path, model: Model, *, tools: ScriptedTools | None = None
) -> AsyncIterator[Door]:
    """Serve the endpoints for the body of the `with`."""
    async with http_door(folder, model, endpoints=ENDPOINTS, tools=tools) as behind:
        yield Door(behind)
