"""The memory and disk that a sandbox uses, measured where the kernel sets no limit for all of it.

Memory is the kernel's business where there is a control group. Elsewhere, and for
disk space always, a look each second while something runs has to do: a sandbox
that has grown beyond its share is ended, with everything in it. What it has
written stays, and may be cleared away: being over the limit is a note, growing
further is the end. Memory that processes share counts once, and so do files without a name that
are open or mapped: in memory, or on the disk. Files that are empty count for the room that a disk
has for names. What lies in sockets nobody tells; very many count for what they can hold.
"""

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.backends.sandbox.mounts import SandboxLayout
from hermes.execution.host.process import Launch, run

_EVERY = 1.0
_FIELDS = re.compile(r"^(RssAnon|VmSwap|RssShmem|Pss_Shmem):\s+(\d+) kB", re.MULTILINE)
_IN_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage")  # noqa: S108 - names
_MAPPED = re.compile(
    r"^([\da-f]+)-([\da-f]+) \S+ \S+ ([\da-f]+):([\da-f]+) ([1-9]\d*) +(/.*) \(deleted\)$",
    re.MULTILINE,
)
_FILES_COUNTED = 20_000
_SOCKETS_FREE, _SOCKET_HOLDS = 500, 208 << 10
_STEP = 0.05
"""Share of the limit by which the disk must have filled before it is worth counting."""
_NAME_TAKES = 16 << 10
"""Bytes for which a file counts at least: disks have room for so many, however small."""


class Footprint:
    """What one sandbox uses, and what is said about it."""

    def __init__(self, layout: SandboxLayout) -> None:
        self._memory = layout.terminal.container_memory << 20
        self._disk = layout.terminal.container_disk << 20
        places = dict.fromkeys((layout.base, layout.kept, layout.held))
        self._places = tuple(map(str, places))
        self._used = 0
        self._free: tuple[int, int] | None = None
        self.note = ""

    async def watch(self, holder: Holder, busy: Callable[[], bool]) -> None:
        """Return when the sandbox has outgrown its share; `note` says how."""
        while True:
            await asyncio.sleep(_EVERY)
            if busy() and await self._outgrown(holder):
                return

    async def _outgrown(self, holder: Holder) -> bool:
        if self._memory and not holder.limits_memory:
            used = await asyncio.to_thread(_memory, holder.root, self._memory)
            if used > self._memory:
                self.note = _said(used, self._memory, "memory")
                return True
        return bool(self._disk) and await self._filled(holder)

    async def _filled(self, holder: Holder) -> bool:
        with contextlib.suppress(OSError):
            status = await asyncio.to_thread(os.statvfs, self._places[0])
            free = (status.f_bavail * status.f_frsize, status.f_favail * _NAME_TAKES)
            taken = [b - now for b, now in zip(self._free or (), free, strict=False)]
            if taken and max(taken) < self._disk * _STEP:
                return False
            self._free = free
        nameless = await asyncio.to_thread(_nameless, holder.root, self._places)
        before, self._used = self._used, await self._counted() + nameless
        self.note = _said(self._used, self._disk, "disk") if self._used > self._disk else ""
        return bool(self.note) and bool(before) and self._used > before

    async def _counted(self) -> int:
        sizes, names = await self._sum("-k"), await self._sum("--inodes")
        return max(sizes << 10, names * _NAME_TAKES)

    async def _sum(self, unit: str) -> int:
        # `du` does not mind how deep a tree is, nor names that lead elsewhere.
        count = Launch(argv=("du", "-sx", unit, "--", *self._places), env={"PATH": "/usr/bin:/bin"})
        done = await run(count, timeout=60.0, max_output=65_536)
        sums = (line.split("\t")[0] for line in done.output.splitlines() if "\t" in line)
        return sum(int(number) for number in sums if number.isdigit())


def _memory(root: str, limit: int) -> int:
    """Return the bytes that processes inside have, alone or together."""
    each = [_fields(root, pid, "status") for pid in _processes(root)]
    private = sum(found.get("RssAnon", 0) + found.get("VmSwap", 0) for found in each)
    shared = sum(found.get("RssShmem", 0) for found in each)
    if private + shared > limit:  # several may have the same part: that takes longer to tell
        parts = (_fields(root, pid, "smaps_rollup") for pid in _processes(root))
        shared = sum(found.get("Pss_Shmem", 0) for found in parts)
    files = {key: size for name, key, size in _opened(root) if name.startswith(_IN_MEMORY)}
    return private + max(shared, sum(files.values())) + _in_sockets(root)


def _in_sockets(root: str) -> int:
    """Return what the sockets inside can hold, if they are more than a server has."""
    sockets = {status.st_ino for _, status in _descriptors(root) if stat.S_ISSOCK(status.st_mode)}
    return max(0, len(sockets) - _SOCKETS_FREE) * _SOCKET_HOLDS


def _nameless(root: str, places: tuple[str, ...]) -> int:
    """Return the bytes on disk of files that have lost their name and are still there."""
    devices = {Path(place).stat().st_dev for place in places if Path(place).exists()}
    found: dict[tuple[int, int], int] = {}
    for name, key, size in (*_opened(root), *_mapped(root)):
        if key[0] in devices and not name.startswith(_IN_MEMORY):
            found[key] = max(size, found.get(key, 0))
    return sum(found.values())


def _processes(root: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (name for name in os.listdir(f"{root}/proc") if name.isdigit())  # noqa: PTH208


def _fields(root: str, pid: str, file: str) -> dict[str, int]:
    try:
        text = Path(root, "proc", pid, file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(size) << 10 for name, size in _FIELDS.findall(text)}


def _opened(root: str) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Find open files without a name: what it was, which file, and its bytes."""
    for path, status in _descriptors(root):
        if not status.st_nlink and stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                key = (status.st_dev, status.st_ino)
                yield str(Path(path).readlink()), key, status.st_blocks * 512


def _descriptors(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Find what processes have open: where it is shown, and its status."""
    left = _FILES_COUNTED
    for pid in _processes(root):
        with contextlib.suppress(OSError), os.scandir(f"{root}/proc/{pid}/fd") as entries:
            for entry in entries:
                if (left := left - 1) < 0:
                    return
                with contextlib.suppress(OSError):
                    yield entry.path, entry.stat()


def _mapped(root: str) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Find the same among mapped files, as far as they are mapped."""
    for pid in _processes(root):
        with contextlib.suppress(OSError):
            text = Path(root, "proc", pid, "maps").read_text(encoding="utf-8", errors="replace")
            for begin, end, major, minor, number, name in _MAPPED.findall(text):
                device = os.makedev(int(major, 16), int(minor, 16))
                yield name, (device, int(number)), int(end, 16) - int(begin, 16)


def _said(used: int, limit: int, what: str) -> str:
    return f"The sandbox uses {used >> 20} of {limit >> 20} MB of {what}."
