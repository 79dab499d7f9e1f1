"""A clock that a test turns by hand."""

import asyncio

__all__ = ["HandClock"]


class HandClock:
    """Implements `Clock`; time passes in `advance` only."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.at + seconds, waking))
        await waking

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking everybody in turn."""
        end = self.at + seconds
        await settle()
        while due := [each for each in self._sleeping if each[0] <= end and not each[1].done()]:
            first = min(due, key=lambda each: each[0])
            self._sleeping.remove(first)
            self.at = max(self.at, first[0])
            first[1].set_result(None)
            await settle()
        self.at = end


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
