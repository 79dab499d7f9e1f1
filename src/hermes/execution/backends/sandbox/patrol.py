"""Looks of the guard: before and after what runs inside, and each second while it does.

What has changed while nothing ran inside was the host: it is taken as it is. While
something runs there the two cannot be told apart, and what appears or changes is held, unless
all stood still (`standstill`) for a command that the person let out. Either way the mounts that
the host's changes have taken down are made anew before the next command.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from hermes.execution.backends.sandbox.guard import Guard, settle_left
from hermes.execution.backends.sandbox.held import Copies, Held, listed
from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.backends.sandbox.mounts import SandboxLayout
from hermes.execution.backends.sandbox.standstill import LONGEST, Standstill

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two looks, more or less: when the next one comes is not to be foreseen."""
BETWEEN_NEWS = 30.0
"""Seconds between two times that the session is told without having asked for a command."""
_AT_ONCE = 3
"""Looks that follow each other as long as they find something."""

T = TypeVar("T")
Busy = Callable[[], Awaitable[bool]]
Work = Callable[[], Awaitable[T]]


class Patrol:
    """Keeps the walls of one sandbox up, and tells what was held."""

    def __init__(self, layout: SandboxLayout, tell: Callable[[list[Held], bool], None]) -> None:
        """Look after one sandbox; `tell` of what was held, aloud if nobody waits for a command."""
        self._layout = layout
        self._tell = tell
        self._said: set[Held] = set()
        self._said_at = -math.inf
        self._guard = Guard(layout)
        self._holder: Holder | None = None
        self._mounted: frozenset[str] = frozenset()
        self._looking = asyncio.Lock()
        self._commands = 0
        """Commands that run inside, or are about to."""
        self._quiet = 0
        """Tasks inside while nothing runs."""
        self._clean = True
        """Nothing has run inside since the last look."""
        self._copies = Copies(layout.held)
        self._untold: list[Held] = []
        self._told: list[Held] = []
        """Told with the last command: it may not be shown yet."""

    def settle_left(self) -> None:
        """Hold what an earlier Hermes that was killed has left in the project."""
        self._untold += settle_left(self._layout, self._layout.kept)

    def take_over(self, layout: SandboxLayout) -> None:
        """Go by the layout with what this sandbox has claimed; nobody has left anything there."""
        self._layout, self._guard = layout, Guard(layout)
        self._untold += settle_left(layout, layout.kept.parent)

    def survey(self) -> None:
        self._guard.accept()

    async def start(self, holder: Holder) -> None:
        self._holder, self._clean = holder, not self._commands
        self._quiet = await asyncio.to_thread(holder.tasks)
        await self.survey_mounts()
        if self._commands:  # a look has ended the sandbox before they began
            await asyncio.to_thread(self._guard.begin, self._mounted)

    async def survey_mounts(self) -> None:
        if self._layout.project and self._holder is not None:
            mounted = await asyncio.to_thread(self._holder.mounted)
            guarded = frozenset(self._layout.guarded)
            sound = (point for point, shut in mounted.items() if shut or point not in guarded)
            self._mounted = frozenset(sound) or self._mounted

    @contextlib.asynccontextmanager
    async def inside(self, busy: Busy) -> AsyncIterator[None]:
        """Have something run inside."""
        async with self._looking:
            if self._layout.project:
                await self._ready(busy)
            self._commands += 1
        try:
            yield
        finally:
            self._commands -= 1

    async def outside(self, busy: Busy, work: Work[T], *, briefly: bool) -> tuple[T, bool]:
        """Have something run on the host: what it changes stays, where that can be told.

        It can if nothing runs inside, or stands still, which may only be asked `briefly`.
        Also return whether it has changed what another session's sandbox may put back.
        """
        disputed = await asyncio.to_thread(self._guard.disputed)
        result = await self._outside(busy, work, briefly=briefly and not disputed)
        after = await asyncio.to_thread(self._guard.disputed) if disputed else {}
        return result, bool(after) and after != disputed

    async def _outside(self, busy: Busy, work: Work[T], *, briefly: bool) -> T:
        if not self._layout.project or self._holder is None:
            return await work()
        running: asyncio.Future[T] | None = None
        try:
            async with self._looking:
                if briefly and not await self._is_calm(busy, 0):
                    running = await self._while_all_stands_still(self._holder, busy, work)
                elif not self._clean:
                    await self._look(busy, 0)
            result = await (running or work())
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait([running])
        async with self._looking:
            calm = self._clean and await self._is_calm(busy, 0)
            if not (calm and await self._accept()):
                await self._look(busy, 0)
        return result

    async def _while_all_stands_still(
        self, holder: Holder, busy: Busy, work: Work[T]
    ) -> asyncio.Future[T] | None:
        """Begin something and take what it has soon changed for the host's; None if it is not."""
        still = await Standstill.begin(holder)
        running: asyncio.Future[T] | None = None
        before, covered, taken = self._guard.memory(), list[str](), False
        try:
            if not self._clean:
                await self._look(busy, 0)
            if still is not None:
                before = self._guard.memory()
                running = asyncio.ensure_future(work())
                try:
                    await asyncio.wait([running], timeout=LONGEST)
                except asyncio.CancelledError:
                    running.cancel()
                    await asyncio.wait([running])
                    raise
                finally:
                    covered = await self._take_over(still.since)
                    taken = True
        finally:
            if running is not None and not taken:
                running.cancel()
                await asyncio.wait([running])
            if still is not None and not (await asyncio.shield(still.end()) and taken):
                # In a thread: a look that nobody waits for any more may still go on.
                back = asyncio.to_thread(self._guard.go_back, before, covered)
                await asyncio.shield(back)
        return running

    async def _take_over(self, since: int) -> list[str]:
        """Take what is there for the person's; return what was covered then."""
        await self.survey_mounts()
        await asyncio.to_thread(self._guard.accept, self._mounted, since=since)
        covered = await self._cover()
        self._guard.doubt(covered, since)
        await asyncio.to_thread(self._guard.begin, self._mounted)
        return covered

    async def settle(self, busy: Busy) -> list[Held]:
        """Look at what a command has left; return what was held and not told yet."""
        async with self._looking:
            if self._layout.project:
                await self._look(busy, 1)
                self._tell_now()
            await asyncio.to_thread(self._copies.forget, self._told)
            self._told, self._untold = list(dict.fromkeys(self._untold)), []
            self._said.clear()
        return self._told

    async def watch(self, busy: Busy) -> None:
        """Look each second while something runs inside."""
        while self._layout.project:
            await asyncio.sleep(EVERY * (50 + secrets.randbelow(100)) / 100)
            async with self._looking:
                if not self._clean:
                    await self._look(busy, 0)
                self._tell_now()

    def _tell_now(self) -> None:
        """Have the person told at once: it may be theirs. The next command tells it again."""
        news = [held for held in dict.fromkeys(self._untold) if held not in self._said]
        aloud = not self._commands
        soon = aloud and time.monotonic() <= self._said_at + BETWEEN_NEWS
        if not news or (soon and not any(held.again for held in news)):
            return
        if aloud:
            self._said_at = time.monotonic()
        self._said.update(news)
        self._tell(news, aloud)

    async def finish(self) -> None:
        """Look once more if anything has run since the last look: everything inside has ended."""
        async with self._looking:
            self._holder = None
            if not self._clean:
                await self._hold(self._mounted)
            await asyncio.to_thread(self._guard.end)
            await asyncio.to_thread(self._copies.forget, self._told)
            self._told, self._clean = [], True

    async def _ready(self, busy: Busy) -> None:
        accepted = self._clean and await self._is_calm(busy, 0) and await self._accept()
        if not accepted:
            await self._look(busy, 0)
        self._clean = False
        await asyncio.to_thread(self._guard.begin, self._mounted)

    async def _accept(self) -> bool:
        await self.survey_mounts()
        accepted = await asyncio.to_thread(self._guard.accept, self._mounted)
        await self._cover()
        return accepted

    async def _look(self, busy: Busy, own: int) -> None:
        """Hold what changed inside; `own` is how many commands there are without meaning any."""
        calm = await self._is_calm(busy, own)
        await self.survey_mounts()
        # First nobody inside may change it any more, then it is compared.
        sound = self._mounted.difference(await self._cover())
        if await self._hold(sound):
            await self._cover()
        if calm:
            await asyncio.to_thread(self._guard.end)
            self._clean = True
        else:
            await asyncio.to_thread(self._guard.begin, self._mounted)

    async def _hold(self, sound: frozenset[str]) -> bool:
        """Hold what is there; what comes back takes all that runs inside with it."""
        if not await asyncio.to_thread(self._layout.is_there):
            return False  # what is at its path now is somebody else's
        any_held = False
        for _ in range(_AT_ONCE):
            held = await asyncio.to_thread(self._guard.check, sound)
            if not held:
                break
            log.warning("held in %s: %s", self._layout.start, listed(held, len(held)))
            self._untold += held
            any_held = True
            if self._holder is not None and any(each.again for each in held):
                self._tell_now()
                await self._holder.end()
        return any_held

    async def _cover(self) -> list[str]:
        """Make the mounts anew that are gone; return what they are over."""
        down = await asyncio.to_thread(self._guard.missing, self._mounted)
        if down and self._holder is not None and self._holder.running:
            try:
                await self._holder.cover(down)
            except OSError as error:
                log.warning("a mount of the sandbox could not be made: %s", error)
            await self.survey_mounts()
        return [path for path, _ in down]

    async def _is_calm(self, busy: Busy, own: int) -> bool:
        if self._commands > own or await busy() or self._holder is None:
            return False
        return await asyncio.to_thread(self._holder.tasks) <= self._quiet
