"""A run desk on a running core."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fakes.core import Core
from hermes.control.runs.runs import RunDesk, RunRequest, RunSettings
from hermes.domain.ids import new_id
from hermes.domain.runs import Run, RunKind
from hermes.execution.clock import SystemClock

__all__ = ["asked", "desk_on", "restarted"]


@asynccontextmanager
async def desk_on(
    core: Core,
    *,
    settings: RunSettings | None = None,
    redact: Callable[[str], str] = str,
) -> AsyncIterator[RunDesk]:
    """Run a desk for the body of the `with`."""
    async with asyncio.TaskGroup() as group:
        desk = RunDesk(
            core.ledger, core.gateway, SystemClock(), group, redact=redact, settings=settings
        )
        with core.gateway.doors.watching(desk.on_turn):
            yield desk


async def restarted(core: Core, desk: RunDesk) -> None:
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


async def finished(desk: RunDesk, run: Run) -> Run:
    """Return the run once it has ended, within a bounded time."""
    async with asyncio.timeout(10):
        return await desk.ended(run)
