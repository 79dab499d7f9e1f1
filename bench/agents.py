"""One process with 1, 10, 100 and 500 agents: start, memory and latency.

Each agent has a home, a `SOUL.md`, a secret, a model and settings of its own.
"""

import asyncio
import time
from pathlib import Path

import yaml

from bench.core import Core, open_core
from bench.harness import Figure, Job, clean_rss_kb, median
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Step

__all__ = ["run"]

AT_ONCE = 20
ROUNDS = 200
"""Turns by which the latency is measured."""


async def run(job: Job) -> list[Figure]:
    figures: list[Figure] = []
    idle: dict[int, int] = {}
    last, used = job.pick(500, 100), 0.0
    async with model_process(script(Step(text=ANSWER))) as model:
        for count in sorted({1, 10, 100, last}):
            folder = job.folder / str(count)
            _agents(folder, model.base_url, count)
            began = time.perf_counter()
            async with open_core(folder, model.base_url, fresh=False) as core:
                took = (time.perf_counter() - began) * 1000
                await core.ask("first", agent_id=_name(0))
                await core.app.gateway.settled()
                idle[count] = clean_rss_kb()
                turn = await _turn(core, count, job.pick(ROUNDS, 10))
                figures.append(Figure(key=f"agents_{count}_start", measured=took))
                figures.append(Figure(key=f"agents_{count}_turn", measured=turn))
                if count == last:
                    used = await _used(core, count)
    grown = max(0, idle[last] - idle[1]) / (last - 1)
    figures.append(Figure(key="idle_agent", measured=grown, note=f"of {last} agents"))
    figures.append(Figure(key="used_agent", measured=used, note=f"of {last} agents, a turn each"))
    return figures


def _name(number: int) -> str:
    return f"agent-{number}"


def _agents(folder: Path, base_url: str, count: int) -> None:
    home = folder / "home"
    model = {"provider": "custom", "base_url": base_url, "api_key": "${AGENT_KEY}"}
    agents = {}
    for number in range(count):
        own = home / "agents" / _name(number)
        own.mkdir(parents=True)
        (own / "SOUL.md").write_text(f"You are agent number {number}.")
        (own / ".env").write_text(f"AGENT_KEY=key-of-agent-{number:04}\n")
        agents[_name(number)] = {
            "description": f"Agent number {number}.",
            "model": {**model, "default": f"fake-{number}"},
            "settings": {"agent": {"max_turns": 20 + number % 5}},
        }
    routes = [{"match": {"chat_id": str(n)}, "agent": _name(n)} for n in range(count)]
    config = {
        "model": {"default": "fake-1", **model, "api_key": "bench"},
        "agents": agents,
        "routes": routes,
        "terminal": {"backend": "local"},
    }
    (folder / "work").mkdir()
    (home / "config.yaml").write_text(yaml.safe_dump(config))


async def _turn(core: Core, count: int, rounds: int) -> float:
    """Return the median milliseconds of a turn, one agent after another."""
    samples = []
    for number in range(rounds):
        began = time.perf_counter()
        await core.ask(f"turn-{number}", agent_id=_name(number % min(count, 50)))
        samples.append((time.perf_counter() - began) * 1000)
    return median(samples)


async def _used(core: Core, count: int) -> float:
    """Return the KB that an agent takes more once it has had a turn."""
    before, numbers = clean_rss_kb(), iter(range(50, count))

    async def worker() -> None:
        for number in numbers:
            await core.ask(f"used-{number}", agent_id=_name(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())
    await core.app.gateway.settled()
    return max(0, clean_rss_kb() - before) / max(1, count - 50)
