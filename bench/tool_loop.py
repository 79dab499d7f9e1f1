"""What a tool call costs beside the model calls around it."""

import asyncio
import sys
from itertools import count

from bench.bare import BareClient
from bench.core import Core, TurnFailed, open_core
from bench.harness import Figure, Job, alternate, median, timed
from bench.model_server import ModelProcess, model_process, script
from fakes.model_script import Call, Rule, Step

__all__ = ["run"]

OTHERS = ("sandbox",)
"""Backends that are measured where this machine can run them."""
CALLS = 20
"""Calls in one turn, one after the other."""


async def run(job: Job) -> list[Figure]:
    reading = Step(calls=[Call(name="read_file", arguments={"path": "notes.txt"})])
    echoing = Step(calls=[Call(name="terminal", arguments={"command": "echo hello"})])
    done = Step(text="done")
    rules = [
        Rule(contains="read it", steps=[*[reading] * CALLS, done]),
        Rule(contains="echo it", steps=[*[echoing] * CALLS, done]),
    ]
    figures = []
    async with model_process(script(done, *rules)) as model:
        for backend in ("local", *OTHERS):
            folder = job.folder / backend
            async with open_core(folder, model.base_url, backend=backend) as core:
                (folder / "work" / "notes.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
                if backend == "local":
                    figures.append(await _calls(job, core, model, ("read_file", "read it")))
                try:
                    calls = await _calls(job, core, model, (f"terminal_{backend}", "echo it"))
                except TurnFailed as error:
                    if backend == "local":
                        raise
                    print(f"{backend} is left out: {error}", file=sys.stderr)
                else:
                    figures.append(calls)
    return figures


async def _calls(job: Job, core: Core, model: ModelProcess, which: tuple[str, str]) -> Figure:
    key, text = which
    bare = BareClient(model.base_url)
    await core.ask(key, text)
    await core.app.gateway.settled()
    bodies = (await model.requests())[-CALLS - 1 :]

    chats = count()

    async def subject() -> float:
        # A new chat each time: the bodies that the baseline sends do not grow either.
        times = await core.ask(f"{key}-{next(chats)}", text)
        await core.app.gateway.settled()
        return times.end

    subjects, bares = await alternate(job.pick(12, 2), subject, lambda: bare.ask_all(bodies))
    added = (median(subjects) - median(bares)) / CALLS
    await bare.close()
    return Figure(key=key, measured=added, baseline=await _bare_effect(key, job))


async def _bare_effect(key: str, job: Job) -> float:
    """Return what the effect alone takes: reading a file, or running `echo`."""

    async def spawn() -> None:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "echo hello", stdout=asyncio.subprocess.DEVNULL
        )
        await process.wait()

    async def read() -> None:
        path = job.folder / "local" / "work" / "notes.txt"
        await asyncio.to_thread(path.read_text, encoding="utf-8")

    return median([await timed(read() if key == "read_file" else spawn()) for _ in range(20)])
