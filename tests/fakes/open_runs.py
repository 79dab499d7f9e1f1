"""Waiting until the gateway has nothing left to do."""

import asyncio

import httpx2

__all__ = ["no_open_run", "open_runs"]


async def open_runs(client: httpx2.AsyncClient) -> list[str]:
    """Return the ids of runs that have not ended."""
    found: list[str] = []
    for status in ("queued", "running", "waiting_for_approval"):
        answer = await client.get("/v1/runs", params={"status": status, "limit": 200})
        assert answer.status_code == 200, answer.text
        found += [run["run_id"] for run in answer.json()["data"]]
    return found


async def no_open_run(client: httpx2.AsyncClient, seconds: float) -> None:
    """Wait until every run has ended."""
    async with asyncio.timeout(seconds):
        while await open_runs(client):  # noqa: ASYNC110 - the gateway is another process
            await asyncio.sleep(0.05)
