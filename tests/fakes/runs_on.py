"""A run runs on a running core."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fakes.core import Core
from hermes.control.door import Door
from hermes.control.runs.runs import PLATFORM, RunRequest, Runs
from hermes.domain.events import TurnJob
from hermes.domain.ids import new_id
from hermes.domain.runs import Run, RunKind

__all__ = ["asked", "restarted", "runs_on"]


class RunsDoor(Door):
    """A door that only has runs."""

    platforms = (PLATFORM,)

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def on_turn(self, job: TurnJob) -> None:
        self._runs.begin(job)


@asynccontextmanager
async def runs_on(
    core: Core, *, max_open: int = 2000, redact: Callable[[str], str] = str
) -> AsyncIterator[Runs]:
    """Follow runs for the body of the `with`."""
    async with asyncio.TaskGroup() as group:
        runs = Runs(core.gateway, group, redact=redact, max_open=max_open)
        with core.gateway.doors.attached(RunsDoor(runs)):
            yield runs
        runs.drop_put_off()


async def restarted(core: Core, runs: Runs) -> None:
    """Do what a gateway does when it starts."""
    await runs.recover()
    await core.gateway.recover(platforms=["api_server"])
    await runs.recover()


def asked(text: str = "", **more: Any) -> RunRequest:
    """Return a request of the owner's key."""
    given: dict[str, Any] = {
        "id": new_id("run"),
        "kind": RunKind.RUN,
        "key_id": "owner",
        "agent_id": "main",
        "text": text,
        **more,
    }
    return RunRequest(**given)


async def finished(runs: Runs, run: Run) -> Run:
    """Return the run once it has ended, within a bounded time."""
    async with asyncio.timeout(10):
        return await runs.wait(run)
