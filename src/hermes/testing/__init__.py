"""Public test doubles: they keep the contracts of the real things.

`ScriptedModel` says what the test wrote down, `FakeClock` is time that tests
own, `FakeBackend` hands out environments without processes, and
`temporary_ledger` is the real ledger on a file of the test's own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.domain.ports.ledger import Ledger
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.testing.environment import FakeEnvironment
from hermes.testing.environment import FakeEnvironments as FakeBackend
from hermes.testing.model import ScriptedModel

__all__ = ["FakeBackend", "FakeClock", "FakeEnvironment", "ScriptedModel", "temporary_ledger"]


class FakeClock:
    """A clock whose hands the test holds."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def now(self) -> float:
        return self._now + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved time far enough; yields even for zero."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleeper = (self._elapsed + seconds, wake)
        self._sleepers.append(sleeper)
        self._slept.set()
        try:
            await wake
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    @property
    def sleeping(self) -> int:
        return len(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move time on and wake everybody whose time has come, in order."""
        self._elapsed += seconds
        due = sorted((s for s in self._sleepers if s[0] <= self._elapsed), key=lambda s: s[0])
        for sleeper in due:
            self._sleepers.remove(sleeper)
            if not sleeper[1].done():
                sleeper[1].set_result(None)

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait until at least `count` tasks sleep, so that `advance` reaches them."""
        while self.sleeping < count:
            self._slept.clear()
            await self._slept.wait()


@asynccontextmanager
async def temporary_ledger(folder: Path) -> AsyncIterator[Ledger]:
    """Open a SQLite ledger in `folder` for the body of the `with`; about ten milliseconds."""
    ledger = await SqliteLedger.open(folder / "state.db", backups=folder / "backups")
    try:
        yield ledger
    finally:
        await ledger.close()
