"""The memory and disk that a sandbox uses, measured where the kernel sets no limit for all of it.

Memory is the kernel's business where there is a control group. Elsewhere, and for
disk space always, a look each second while something runs has to do: a sandbox
that has grown beyond its share is ended, with everything in it. What it has
written stays, and may be cleared away: being over the limit is a note, growing
further is the end.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.backends.sandbox.mounts import SandboxLayout
from hermes.execution.host.process import Launch, run

_EVERY = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STEP = 0.05
"""Share of the limit by which the disk must have filled before it is worth counting."""


class Footprint:
    """What one sandbox uses, and what is said about it."""

    def __init__(self, layout: SandboxLayout) -> None:
        self._memory = layout.terminal.container_memory << 20
        self._disk = layout.terminal.container_disk << 20
        self._places = tuple(str(path) for path in dict.fromkeys((layout.base, layout.kept)))
        self._used = 0
        self._free: int | None = None
        self.note = ""

    async def watch(self, holder: Holder, busy: Callable[[], bool]) -> None:
        """Return when the sandbox has outgrown its share; `note` says how."""
        while True:
            await asyncio.sleep(_EVERY)
            if busy() and await self._outgrown(holder):
                return

    async def _outgrown(self, holder: Holder) -> bool:
        if self._memory and not holder.limits_memory:
            used = await asyncio.to_thread(_memory, holder.root)
            if used > self._memory:
                self.note = _said(used, self._memory, "memory")
                return True
        return bool(self._disk) and await self._filled()

    async def _filled(self) -> bool:
        with contextlib.suppress(OSError):
            status = await asyncio.to_thread(os.statvfs, self._places[0])
            free = status.f_bavail * status.f_frsize
            if self._free is not None and self._free - free < self._disk * _STEP:
                return False
            self._free = free
        before, self._used = self._used, await self._counted()
        self.note = _said(self._used, self._disk, "disk") if self._used > self._disk else ""
        return bool(self.note) and bool(before) and self._used > before

    async def _counted(self) -> int:
        # `du` does not mind how deep a tree is, nor names that lead elsewhere.
        count = Launch(argv=("du", "-sxk", "--", *self._places), env={"PATH": "/usr/bin:/bin"})
        done = await run(count, timeout=60.0, max_output=65_536)
        sizes = (line.split("\t")[0] for line in done.output.splitlines() if "\t" in line)
        return sum(int(size) << 10 for size in sizes if size.isdigit())


def _memory(root: str) -> int:
    """Return the bytes that processes inside have for themselves."""
    total = 0
    with contextlib.suppress(OSError):
        for statm in Path(root, "proc").glob("[0-9]*/statm"):
            with contextlib.suppress(OSError, ValueError):
                _, resident, shared = map(int, statm.read_text(encoding="ascii").split()[:3])
                total += (resident - shared) * _PAGE
    return total


def _said(used: int, limit: int, what: str) -> str:
    return f"The sandbox uses {used >> 20} of {limit >> 20} MB of {what}."
