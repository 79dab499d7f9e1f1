"""What the core adds to a streamed answer: first token, each token, CPU."""

import time
from collections.abc import Awaitable, Callable
from itertools import count

from bench.bare import BareClient, Times
from bench.core import Core, open_core
from bench.harness import Figure, Job, alternate, median
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Rule, Step

__all__ = ["run"]

LONG = 2_000
"""Tokens of the answer that tells the cost of one token."""
BATCH = 5


async def run(job: Job) -> list[Figure]:
    paced = Step(text=ANSWER, delay=0.005, interval=0.002)
    rules = [
        Rule(contains="at length", steps=[Step(text="word" * LONG)]),
        Rule(contains="in short", steps=[Step(text="word")]),
    ]
    async with model_process(script(paced, *rules)) as model:
        bare = BareClient(model.base_url)
        opened = time.perf_counter()
        async with open_core(job.folder, model.base_url) as core:
            started = (time.perf_counter() - opened) * 1000
            first_turn = (await core.ask("first")).first_token
            body = (await model.requests())[-1]
            bare_first = (await bare.ask(body)).first_token
            await core.app.gateway.settled()
            figures = [
                Figure(key="core_start", measured=started),
                Figure(key="first_turn", measured=first_turn - bare_first, baseline=bare_first),
                await _first_token(job, core, bare, body),
                await _per_token(job, core, bare, body),
                await _cpu(job, core, bare, body),
            ]
        await bare.close()
    return figures


async def _first_token(job: Job, core: Core, bare: BareClient, body: bytes) -> Figure:
    async def subject() -> float:
        return (await core.ask("main")).first_token

    async def baseline() -> float:
        return (await bare.ask(body)).first_token

    subjects, bares = await alternate(job.pick(100, 5), subject, baseline)
    added = median(subjects) - median(bares)
    return Figure(key="first_token", measured=added, baseline=median(bares))


async def _per_token(job: Job, core: Core, bare: BareClient, body: bytes) -> Figure:
    """Compare a long answer with a short one; what both have in common drops out."""
    chats = count()

    async def ask_core(text: str) -> Times:
        times = await core.ask(f"tokens-{next(chats)}", text)
        await core.app.gateway.settled()
        return times

    async def ask_bare(text: str) -> Times:
        return await bare.ask(body.replace(b'"hello"', f'"{text}"'.encode()))

    async def slope(ask: Callable[[str], Awaitable[Times]]) -> float:
        short, long = await ask("in short"), await ask("at length")
        assert long.tokens - short.tokens == LONG - 1
        return (long.end - short.end) * 1000 / (LONG - 1)

    subjects, bares = await alternate(
        job.pick(15, 2), lambda: slope(ask_core), lambda: slope(ask_bare)
    )
    added = median(subjects) - median(bares)
    return Figure(key="per_token", measured=added, baseline=median(bares))


async def _cpu(job: Job, core: Core, bare: BareClient, body: bytes) -> Figure:
    async def cpu_ms(ask: Callable[[], Awaitable[Times]]) -> float:
        start = time.process_time()
        for _ in range(BATCH):
            await ask()
        return (time.process_time() - start) * 1000 / BATCH

    subjects, bares = await alternate(
        job.pick(20, 2),
        lambda: cpu_ms(lambda: core.ask("cpu")),
        lambda: cpu_ms(lambda: bare.ask(body)),
    )
    return Figure(key="turn_cpu", measured=median(subjects), baseline=median(bares))
