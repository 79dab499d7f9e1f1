"""A clock that a test turns by hand and on which everybody wakes in turn."""

import asyncio

from hermes.testing import FakeClock

__all__ = ["HandClock", "settle"]


class HandClock(FakeClock):
    """Goes on from one waking to the next, where `advance` jumps."""

    async def pass_by(self, seconds: float) -> None:
        """Let time pass; whoever wakes may go to sleep again and be woken again."""
        end = self.monotonic() + seconds
        await settle()
        while (first := min((due for due, _ in self._sleepers), default=end + 1)) <= end:
            self.advance(max(first - self.monotonic(), 0.0))
            await settle()
        self.advance(end - self.monotonic())
        await settle()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
