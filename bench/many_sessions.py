"""Many sessions at once in one process, every turn streamed, none refused."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from bench.bare import BareClient, Times
from bench.core import open_core
from bench.harness import Figure, Job, median, p95
from bench.model_server import ANSWER, ModelProcess, model_process, script
from fakes.model_script import Step

__all__ = ["run"]

MODEL_MS = 95.0
LOAD = {1: 20, 10: 10, 100: 5, 1000: 2}
"""Sessions -> turns that each of them asks, one after the other."""
QUICK = {1: 2, 10: 1}
TICK = 0.01

Ask = Callable[[str], Awaitable[Times]]


class Crowd(Struct, frozen=True, kw_only=True):
    """How a number of sessions fared."""

    rate: float
    added: list[float]
    failures: list[str]
    lag: list[float]


async def run(job: Job) -> list[Figure]:
    # 20 tokens, one each millisecond; a sleep lasts a little longer than asked.
    answer = Step(text=ANSWER, delay=0.070, interval=0.001)
    figures: list[Figure] = []
    async with model_process(script(answer)) as model:
        for sessions, turns in (QUICK if job.quick else LOAD).items():
            figures += await _compare(job.folder / str(sessions), model, sessions, turns)
    return figures


async def _compare(folder: Path, model: ModelProcess, sessions: int, turns: int) -> list[Figure]:
    bare = BareClient(model.base_url)
    async with open_core(folder, model.base_url) as core:
        await core.ask("warm")
        body = (await model.requests())[-1]
        await core.app.gateway.settled()

        async def pass_through(_chat: str) -> Times:
            return await bare.ask(body)

        passed = await crowd(sessions, turns, pass_through)
        served = await crowd(sessions, turns, core.ask)
    await bare.close()
    return _figures(sessions, served, passed)


async def crowd(sessions: int, turns: int, ask: Ask) -> Crowd:
    """Let `sessions` ask `turns` questions each, all at the same time."""
    added: list[float] = []
    failures: list[str] = []
    lag: list[float] = []

    async def session(name: str) -> None:
        for _ in range(turns):
            try:
                added.append((await ask(name)).end - MODEL_MS)
            except Exception as error:  # noqa: BLE001 - counted, not hidden
                failures.append(f"{type(error).__name__}: {error}")

    async def watch() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(TICK)
            lag.append((time.perf_counter() - start - TICK) * 1000)

    watcher = asyncio.ensure_future(watch())
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(sessions):
            group.create_task(session(f"chat-{number}"))
    elapsed = time.perf_counter() - start
    watcher.cancel()
    return Crowd(rate=len(added) / elapsed, added=added, failures=failures, lag=lag)


def _figures(sessions: int, served: Crowd, passed: Crowd) -> list[Figure]:
    name = f"sessions_{sessions}"
    failed = Figure(
        key=f"{name}_failed",
        measured=len(served.failures),
        baseline=len(passed.failures),
        note=served.failures[0] if served.failures else "",
    )
    if not served.added or not passed.added:
        return [failed]
    return [
        Figure(key=f"{name}_rate", measured=served.rate, baseline=passed.rate),
        Figure(key=f"{name}_median", measured=median(served.added), baseline=median(passed.added)),
        Figure(key=f"{name}_p95", measured=p95(served.added), baseline=p95(passed.added)),
        Figure(key=f"{name}_lag", measured=p95(served.lag), baseline=p95(passed.lag)),
        failed,
    ]
