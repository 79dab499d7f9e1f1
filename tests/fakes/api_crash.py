"""Clients of the API that outlive its crashes, and a gateway whose power fails.

A client repeats what got no answer under the same `Idempotency-Key` and goes
on reading after the last event it saw. It remembers everything it was told,
so that a test can compare it with what is told in the end.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from fakes.api_gateway import KEY, ApiGateway

__all__ = ["Asked", "Line", "Power", "data_lines", "sse"]

ENDS = ("run.completed", "run.failed", "run.cancelled")
Json = dict[str, Any]


class Power:
    """The power of a gateway: clients wait until it is back."""

    def __init__(self, gateway: ApiGateway, seed: int) -> None:
        self.gateway = gateway
        self.chance = random.Random(seed)
        self.up = asyncio.Event()
        self.up.set()
        self.kills = 0

    async def cut(self) -> None:
        """Kill the gateway and start it again."""
        self.up.clear()
        await self.gateway.kill()
        self.kills += 1
        await self.gateway.start()
        self.up.set()

    async def cuts(self, times: int, shortest: float, longest: float) -> None:
        """Kill it at random moments."""
        for _ in range(times):
            await asyncio.sleep(self.chance.uniform(shortest, longest))
            await self.cut()


class Asked:
    """One request, and everything its client was told."""

    def __init__(self, number: int, kind: str) -> None:
        self.number = number
        self.kind = kind
        self.mark = f"mark-{number}-"
        self.runs: set[str] = set()
        """Ids of the runs that answers to this request have named."""
        self.seen: list[Json] = []
        """Events of its run as they were read, across connections."""
        self.status = ""
        self.output = ""
        self.cut_off = 0
        """Connections that were lost."""
        self.again: Callable[[], Any] | None = None
        """Makes the request once more, as a client that knows nothing of its success."""

    @property
    def run_id(self) -> str:
        (only,) = self.runs
        return only


class Line:
    """A client's connection to a gateway that comes and goes."""

    def __init__(self, power: Power) -> None:
        self.power = power
        limits = httpx2.Limits(max_connections=200)
        self.client = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {KEY}"}, timeout=30.0, limits=limits
        )

    def url(self, path: str) -> str:
        return f"{self.power.gateway.url}{path}"

    async def insist(
        self, asked: Asked, method: str, path: str, *, key: str = "", **more: Any
    ) -> httpx2.Response:
        """Send a request until it is answered."""
        headers = {**more.pop("headers", {}), **({"Idempotency-Key": key} if key else {})}
        while True:
            await self.power.up.wait()
            try:
                answer = await self.client.request(method, self.url(path), headers=headers, **more)
            except httpx2.TransportError:
                asked.cut_off += 1
                continue
            if answer.status_code != 503:
                return answer

    async def stream(
        self, asked: Asked, method: str, path: str, *, key: str = "", **more: Any
    ) -> AsyncIterator[Json]:
        """Yield the events of one connection; the last one is `cut` if it was lost."""
        headers = {**more.pop("headers", {}), **({"Idempotency-Key": key} if key else {})}
        await self.power.up.wait()
        url = self.url(path)
        try:
            async with self.client.stream(method, url, headers=headers, **more) as answer:
                if answer.status_code == 503:
                    yield {"event": "cut"}
                    return
                assert answer.status_code == 200, (asked.kind, await answer.aread())
                if run_id := answer.headers.get("x-hermes-run-id"):
                    asked.runs.add(run_id)
                async for event in sse(answer.aiter_lines()):
                    yield event
        except httpx2.TransportError:
            asked.cut_off += 1
            yield {"event": "cut"}

    # -- runs ------------------------------------------------------------------------

    async def start(self, asked: Asked, key: str, body: Json, **headers: str) -> None:
        """Start a run for certain."""

        async def post() -> str:
            answer = await self.insist(
                asked, "POST", "/v1/runs", key=key, json=body, headers=headers
            )
            assert answer.status_code == 202, answer.text
            run_id: str = answer.json()["run_id"]
            asked.runs.add(run_id)
            return run_id

        asked.again = post
        await post()

    async def read(self, asked: Asked) -> None:
        """Read the events of a run to their end, however often the connection is lost."""
        while not asked.seen or asked.seen[-1]["event"] not in ENDS:
            path, after = f"/v1/runs/{asked.run_id}/events", len(asked.seen)
            headers = {"Last-Event-ID": str(after)} if after else {}
            async for event in self.stream(asked, "GET", path, headers=headers):
                if event["event"] != "cut":
                    assert event["_id"] == str(len(asked.seen) + 1), "a gap or a repetition"
                    asked.seen.append(event)

    async def ended(self, asked: Asked) -> Json:
        """Wait for the end of a run and return how it stands."""
        while True:
            view: Json = (await self.insist(asked, "GET", f"/v1/runs/{asked.run_id}")).json()
            if view["status"] in {"completed", "failed", "cancelled"}:
                asked.status, asked.output = view["status"], view.get("output", "")
                return view
            await asyncio.sleep(0.05)

    async def answer_approval(self, asked: Asked) -> None:
        """Allow what a run asks for, once."""
        path = f"/v1/runs/{asked.run_id}"
        while True:
            view = (await self.insist(asked, "GET", path)).json()
            if view.get("pending_approvals"):
                break
            if view["status"] in {"completed", "failed", "cancelled"}:
                return
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.power.chance.uniform(0.0, 1.0))
        answer = await self.insist(asked, "POST", f"{path}/approval", json={"choice": "once"})
        assert answer.status_code in {200, 404, 409}, answer.text

    # -- foreground ------------------------------------------------------------------

    async def converse(self, asked: Asked, path: str, key: str, body: Json) -> None:
        """Read a stream to its end: repeated under its key, or given up without one."""
        while True:
            seen = [event async for event in self.stream(asked, "POST", path, key=key, json=body)]
            if seen and seen[-1]["event"] == "done":
                asked.seen = seen
                return
            if not key:
                asked.seen = seen
                return

    async def close(self) -> None:
        await self.client.aclose()


async def sse(lines: AsyncIterator[str]) -> AsyncIterator[Json]:
    """Read server-sent events; `event` is their name, `_id` their id."""
    found: dict[str, str] = {}
    async for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value
        elif not line and found:
            if found["data"] == "[DONE]":
                yield {"event": "done"}
            else:
                data = json.loads(found["data"])
                named = data.get("event") or data.get("type") or found.get("event", "")
                yield data | {"event": named, "_id": found.get("id")}
            found = {}


def data_lines(events: list[Json]) -> list[Json]:
    """Return events without the mark of their connection's end."""
    return [event for event in events if event["event"] not in {"cut", "done"}]
