"""A run desk on a running core."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fakes.core import Core
from hermes.control.door import Door
from hermes.control.runs.runs import PLATFORM, RunRequest, Runs, RunSettings
from hermes.domain.events import TurnJob
from hermes.domain.ids import new_id
from hermes.domain.runs import Run, RunKind
from hermes.execution.clock import SystemClock

__all__ = ["asked", "desk_on", "restarted"]


class RunsDoor(Door):
    """A door that only has runs."""

    platforms = (PLATFORM,)

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def on_turn(self, job: TurnJob) -> None:
        self._runs.begin(job)


@asynccontextmanager
async def desk_on(
    core: Core,
    *,
    settings: RunSettings | None = None,
    redact: Callable[[str], str] = str,
) -> AsyncIterator[Runs]:
    """Run a desk for the body of the `with`."""
    async with asyncio.TaskGroup() as group:
        desk = Runs(
            core.ledger, core.gateway, SystemClock(), group, redact=redact, settings=settings
        )
        with core.gateway.doors.attached(RunsDoor(desk)):
            yield desk


async def restarted(core: Core, desk: Runs) -> None:
    """Do what a gateway does when it starts."""
    await desk.recover()
    await core.gateway.recover(platforms=["api_server"])
    await desk.recover()


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


async def finished(desk: Runs, run: Run) -> Run:
    """Return the run once it has ended, within a bounded time."""
    async with asyncio.timeout(10):
        return await desk.wait(run)
