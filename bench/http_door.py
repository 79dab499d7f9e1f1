"""The API server as clients see it: start, weight, first token, CPU, many streams at once.

The gateway, the fake model and the client are processes of their own on the
same machine. The baseline is a proxy on the same HTTP stack that passes the
streams through; what is added is reckoned from the model's own time.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.bare import Times, request_body
from bench.core import clean_environ, make_home
from bench.harness import Figure, Job, alternate, median, p95, peak_kb, rss_kb
from bench.http_client import LightClient, RequestFailed
from bench.model_server import ANSWER, ModelProcess, model_process, script
from bench.pass_through import pass_through
from fakes.model_script import Step

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
KEY = "bench-key-0123456789abcdef"
MODEL_MS = 95.0
LOAD = {1: 20, 8: 15, 32: 10, 100: 5, 1000: 2}
"""Streams at once -> requests that each of them makes, one after the other."""
QUICK = {1: 2, 8: 1}
HEALTH_EVERY = 0.05
LONGEST = 30.0
TICKS = os.sysconf("SC_CLK_TCK")

Ask = Callable[[], Awaitable[Times]]


class Crowd(Struct, frozen=True, kw_only=True):
    """How a number of streams fared."""

    rate: float
    added: list[float]
    failures: list[str]
    health: list[float]


class Door(Struct, frozen=True, kw_only=True):
    """A running gateway."""

    pid: int
    start_s: float
    client: LightClient

    async def ask(self) -> Times:
        return await self.client.ask(request_body(model="hermes"))


async def run(job: Job) -> list[Figure]:
    figures: list[Figure] = []
    starts: list[float] = []
    idle: list[float] = []
    answer = Step(text=ANSWER, delay=0.070, interval=0.001)
    async with model_process(script(answer)) as model:
        for number in range(job.pick(5, 1)):
            async with _door(job.folder / f"start-{number}", model) as door:
                starts.append(door.start_s)
                idle.append(rss_kb(door.pid) / 1024)
        figures += [
            Figure(key="http_start", measured=median(starts)),
            Figure(key="http_idle", measured=median(idle)),
        ]
        for streams, requests in (QUICK if job.quick else LOAD).items():
            async with _door(job.folder / str(streams), model) as door:
                figures += await _crowded(door, model, streams, requests)
    paced = Step(text=ANSWER, delay=0.005, interval=0.002)
    async with model_process(script(paced)) as model, _door(job.folder / "one", model) as door:
        figures += await _alone(job, door, model)
    return figures


async def _alone(job: Job, door: Door, model: ModelProcess) -> list[Figure]:
    bare = LightClient(model.port, "/v1/chat/completions")
    body = request_body()
    bare_first = (await bare.ask(body)).first_token
    first_turn = (await door.ask()).first_token - bare_first

    async def subject() -> float:
        return (await door.ask()).first_token

    async def baseline() -> float:
        return (await bare.ask(body)).first_token

    subjects, bares = await alternate(job.pick(100, 5), subject, baseline)
    await bare.close()
    rounds = job.pick(200, 5)
    cpu = await _cpu(door.pid, rounds, door.ask)
    async with pass_through(model.base_url) as proxy:
        through = LightClient(proxy.port, "/v1/chat/completions")
        await through.ask(body)
        passed = await _cpu(proxy.pid, rounds, lambda: through.ask(body))
        await through.close()
    return [
        Figure(key="http_first_turn", measured=first_turn, baseline=bare_first),
        Figure(
            key="http_first_token",
            measured=median(subjects) - median(bares),
            baseline=median(bares),
        ),
        Figure(key="http_cpu", measured=cpu, baseline=passed),
    ]


async def _cpu(pid: int, rounds: int, ask: Ask) -> float:
    """Return the milliseconds of processor time that a process takes for one request."""
    before = _cpu_seconds(pid)
    for _ in range(rounds):
        await ask()
    return (_cpu_seconds(pid) - before) * 1000 / rounds


async def _crowded(door: Door, model: ModelProcess, streams: int, requests: int) -> list[Figure]:
    body = request_body()
    await door.ask()
    async with pass_through(model.base_url) as proxy:
        through = LightClient(proxy.port, "/v1/chat/completions")
        passed = await _crowd(streams, requests, lambda: through.ask(body), None)
        await through.close()
    served = await _crowd(streams, requests, door.ask, door.client)
    name = f"http_{streams}"
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
        Figure(key=f"{name}_health", measured=p95(served.health)),
        Figure(key=f"{name}_peak", measured=peak_kb(door.pid) / 1024),
        failed,
    ]


async def _crowd(streams: int, requests: int, ask: Ask, health: LightClient | None) -> Crowd:
    """Let `streams` clients make `requests` requests each, all at the same time."""
    added: list[float] = []
    failures: list[str] = []
    waits: list[float] = []

    async def stream() -> None:
        for _ in range(requests):
            try:
                added.append((await ask()).end - MODEL_MS)
            except (RequestFailed, OSError, asyncio.IncompleteReadError) as error:
                failures.append(f"{type(error).__name__}: {error}")

    async def watch(client: LightClient) -> None:
        while True:
            waits.append(await client.get("/health"))
            await asyncio.sleep(HEALTH_EVERY)

    watcher = asyncio.ensure_future(watch(health)) if health else None
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(stream())
    elapsed = time.perf_counter() - start
    if watcher is not None:
        watcher.cancel()
    return Crowd(rate=len(added) / elapsed, added=added, failures=failures, health=waits or [0.0])


@asynccontextmanager
async def _door(folder: Path, model: ModelProcess) -> AsyncIterator[Door]:
    """Run a gateway; yields it once `/health` answers."""
    home = make_home(folder, model.base_url)
    port = _free_port()
    api = {"enabled": True, "extra": {"key": KEY, "port": port}}
    config = home.root / "config.yaml"
    platforms = msgspec.json.encode({"api_server": api}).decode()
    config.write_text(
        f"{config.read_text(encoding='utf-8')}platforms: {platforms}\n", encoding="utf-8"
    )
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("hermes")),
        "gateway",
        "run",
        "-q",
        cwd=folder,
        env=clean_environ(home) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    client = LightClient(port, "/v1/chat/completions", KEY)
    try:
        await _until_healthy(client)
        yield Door(pid=process.pid, start_s=time.perf_counter() - begun, client=client)
    finally:
        await client.close()
        process.terminate()
        await process.wait()


async def _until_healthy(client: LightClient) -> None:
    async with asyncio.timeout(LONGEST):
        while True:
            try:
                await client.get("/health")
            except OSError:
                await asyncio.sleep(0.002)
            else:
                return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
