"""Resident memory: an idle core, and what each further session leaves behind."""

import asyncio

from bench.core import Core, open_core
from bench.harness import Figure, Job, clean_rss_kb
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Step
from hermes.domain.profile import DEFAULT_AGENT

__all__ = ["run"]

AT_ONCE = 20


async def run(job: Job) -> list[Figure]:
    count = job.pick(1_000, 20)
    bare = clean_rss_kb()
    async with (
        model_process(script(Step(text=ANSWER))) as model,
        open_core(job.folder, model.base_url) as core,
    ):
        await core.ask("first")
        await core.app.gateway.settled()
        idle = clean_rss_kb()
        # The first few hundred also fill buffers, caches and pools that are then reused.
        await _use(core, "warm", job.pick(400, 5))
        opened = await _growth(core, count, used=False)
        used = await _growth(core, count, used=True)
    return [
        Figure(
            key="idle_core",
            measured=idle / 1024,
            note=f"of which {bare / 1024:.0f} MB were there before it was opened",
        ),
        Figure(key="idle_session", measured=opened / count),
        Figure(key="used_session", measured=used / count),
    ]


async def _growth(core: Core, count: int, *, used: bool) -> int:
    before = clean_rss_kb()
    if used:
        await _use(core, "used", count)
    else:
        for _ in range(count):
            await core.app.gateway.open_session(DEFAULT_AGENT, "bench", None)
    return max(0, clean_rss_kb() - before)


async def _use(core: Core, name: str, count: int) -> None:
    """Have one turn in each of `count` sessions, a few at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await core.ask(f"{name}-{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())
    await core.app.gateway.settled()
