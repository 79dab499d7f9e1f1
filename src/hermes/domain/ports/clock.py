"""Time, so that tests can own it."""

import asyncio
from typing import Any, Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable."""


async def wait_at_most(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait for an event, but no longer than this."""
    async with asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[Any]] = {
            group.create_task(clock.sleep(seconds)),
            group.create_task(event.wait()),
        }
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
