"""Clients that leave before they have their answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hermes.control.runs import RunDesk
from hermes.domain.runs import Run
from hermes.entry.http.endpoint import Call

__all__ = ["Stop", "attended", "stopper"]

T = TypeVar("T")
Stop = Callable[[], Awaitable[None]]


def stopper(runs: RunDesk, run: Run) -> Stop:
    """Return what stops a run whose client has left."""

    async def stop() -> None:
        await runs.stop(run, left=True)

    return stop


async def attended(call: Call[Any, Any], work: Awaitable[T], stop: Stop | None) -> T:
    """Return what `work` gives; if the client leaves meanwhile, `stop` is called.

    The work goes on to its end, which `stop` brings about.
    """
    if stop is None:
        return await work
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_when_gone(call, stop))
            try:
                return await work
            finally:
                watch.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _when_gone(call: Call[Any, Any], stop: Stop) -> None:
    await call.gone()
    await stop()
