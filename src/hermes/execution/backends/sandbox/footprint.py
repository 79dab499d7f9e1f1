"""The memory and disk that a sandbox uses, measured where the kernel sets no limit for all of it.

Memory is the kernel's business where there is a control group. Elsewhere, and for
disk space always, a look each second while something runs has to do: a sandbox
that has grown beyond its share is ended, with everything in it. What it has
written stays, and may be cleared away: being over the limit is a note, which is measured
anew before it is told, and growing further is the end. What a shell keeps from command to
command is no growth. Memory that processes share counts once, and so do files without a name that
are open or mapped: in memory, or on the disk. Files that are empty count for the room that a disk
has for names. What lies in sockets nobody tells; very many count for what they can hold.

Some of it cannot be counted: files on their way through a socket, mapped without being open, or
open in very many places. While there are such, what the disk loses beyond the rest counts instead,
whoever wrote it.
"""

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.backends.sandbox.mounts import SandboxLayout
from hermes.execution.host.process import Launch, run

_EVERY = 1.0
_HOLDING = 1
"""Tasks inside while nothing runs."""
_FIELDS = re.compile(r"^(RssAnon|VmSwap|RssShmem|Pss_Shmem):\s+(\d+) kB", re.MULTILINE)
_IN_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage")  # noqa: S108 - names
_MAPPED = re.compile(
    r"([\da-f]+)-([\da-f]+) \S+ \S+ ([\da-f]+):([\da-f]+) ([1-9]\d*)"
    r" +/(?!(?:usr|bin|sbin|lib\w*)/).* \(deleted\)\n"
)
"""Not files of the system, which nothing inside has written."""
_PASSED = re.compile(rb"^scm_fds:\s*[1-9]", re.MULTILINE)
_FILES_COUNTED = 20_000
_MAPPINGS_COUNTED = 200_000
_SOCKETS_FREE, _SOCKET_HOLDS = 500, 208 << 10
_STEP = 0.05
"""Share of the limit by which the disk must have filled before it is worth counting."""
_GROWTH = 1 << 20
"""Bytes, or a hundredth of the limit: a sandbox that writes less has not grown."""
_NAME_TAKES = 16 << 10
"""Bytes for which a file counts at least: disks have room for so many, however small."""
_AS_OWNER = """
if [ "$(id -u)" != 0 ] && unshare --map-root-user true 2>/dev/null
then set -- unshare --map-root-user "$@"; fi
exec "$@"
"""
"""Runs a program that no mode of our own files keeps out."""

File = tuple[int, int]
Descriptors = list[tuple[str, os.stat_result]]


class Footprint:
    """What one sandbox uses, and what is said about it."""

    def __init__(self, layout: SandboxLayout) -> None:
        self._memory = layout.terminal.container_memory << 20
        self._disk = layout.terminal.container_disk << 20
        places = dict.fromkeys((layout.base, layout.kept, layout.held))
        self._places = tuple(map(str, places))
        self._used = 0
        self._free: list[int] = []
        """The most that was free since it was counted: bytes, and names for what they take."""
        self._before: list[int] = []
        """What was free a look ago, if something ran then."""
        self._lost = [0, 0]
        """What has gone since all could be counted, while something ran."""
        self._known = 0
        """What was used when all could be counted."""
        self._least: int | None = None
        """The least that was used at any count: what is more has been written since."""
        self._counting = asyncio.Lock()
        self.note = ""

    async def watch(self, holder: Holder) -> None:
        """Return when the sandbox has outgrown its share; `note` says how."""
        while True:
            await asyncio.sleep(_EVERY)
            if await asyncio.to_thread(holder.tasks) <= _HOLDING:
                self._before = []
            elif await self._outgrown(holder):
                return

    async def _outgrown(self, holder: Holder) -> bool:
        if self._memory and not holder.limits_memory:
            used = await asyncio.to_thread(_memory, holder.root, self._memory)
            if used > self._memory:
                self.note = _said(used, self._memory, "memory")
                return True
        return bool(self._disk) and await self._filled(holder)

    async def settle(self, holder: Holder) -> None:
        """Count anew before a command is told of too much: it may have deleted that."""
        if self.note:
            await self._measure(holder)

    async def _filled(self, holder: Holder) -> bool:
        with contextlib.suppress(OSError):
            status = await asyncio.to_thread(os.statvfs, self._places[0])
            free = [status.f_bavail * status.f_frsize, status.f_favail * _NAME_TAKES]
            # Others may free a lot meanwhile; of its own there is no more to free than was counted.
            lost = zip(self._lost, _less(self._before or free, free), strict=True)
            self._lost = [max(sum(each), -self._known) for each in lost]
            self._before = free
            if self._free and max(_less(self._free, free)) < self._disk * _STEP:
                self._free = [max(each) for each in zip(self._free, free, strict=True)]
                return False
            self._free = free
        return await self._measure(holder)

    async def _measure(self, holder: Holder) -> bool:
        """Count what is used and say if it is too much; tell whether it goes on growing."""
        async with self._counting:
            hidden = await self._count(holder)
            least = self._least = min(
                self._used if self._least is None else self._least, self._used
            )
            self.note = _said(self._used, self._disk, "disk") if self._used > self._disk else ""
            if self.note and hidden:
                self.note += " Some of it is where it cannot be counted."
            return bool(self.note) and self._used - least > max(_GROWTH, self._disk // 100)

    async def _count(self, holder: Holder) -> bool:
        """Count what is used; tell whether some of it is hidden."""
        nameless, all_found = await asyncio.to_thread(_nameless, holder.root, self._places)
        sizes, all_read = await self._sum("-k")
        names, _ = await self._sum("--inodes")
        counted = max(sizes << 10, names * _NAME_TAKES) + nameless
        if not self._used or (all_found and all_read):
            self._known, self._lost = counted, [0, 0]
        hidden = max(0, max(self._lost) - (counted - self._known))
        self._used = counted + hidden
        return hidden > 0

    async def _sum(self, unit: str) -> tuple[int, bool]:
        """Return what is in our places, and whether all of it could be read."""
        # `du` does not mind how deep a tree is, nor names that lead elsewhere.
        count = ("du", "-sx", unit, "--", *self._places)
        launch = Launch(argv=("sh", "-c", _AS_OWNER, "sh", *count), env={"PATH": "/usr/bin:/bin"})
        done = await run(launch, timeout=60.0, max_output=65_536)
        sums = (line.split("\t")[0] for line in done.output.splitlines() if "\t" in line)
        cut = done.timed_out or done.truncated_bytes or "Permission denied" in done.output
        return sum(int(number) for number in sums if number.isdigit()), not cut


def _less(before: list[int], now: list[int]) -> list[int]:
    return [then - left for then, left in zip(before, now, strict=True)]


def _memory(root: str, limit: int) -> int:
    """Return the bytes that processes inside have, alone or together."""
    processes = list(_processes(root))
    each = [_fields(root, process, "status") for process in processes]
    private = sum(found.get("RssAnon", 0) + found.get("VmSwap", 0) for found in each)
    shared = sum(found.get("RssShmem", 0) for found in each)
    if private + shared > limit:  # several may have the same part: that takes longer to tell
        parts = (_fields(root, process, "smaps_rollup") for process in processes)
        shared = sum(found.get("Pss_Shmem", 0) for found in parts)
    descriptors, _ = _descriptors(root)
    files = {k: size for name, k, size in _opened(descriptors) if name.startswith(_IN_MEMORY)}
    return private + max(shared, sum(files.values())) + _in_sockets(descriptors)


def _in_sockets(descriptors: Descriptors) -> int:
    """Return what the sockets inside can hold, if they are more than a server has."""
    sockets = {status.st_ino for _, status in descriptors if stat.S_ISSOCK(status.st_mode)}
    return max(0, len(sockets) - _SOCKETS_FREE) * _SOCKET_HOLDS


def _nameless(root: str, places: tuple[str, ...]) -> tuple[int, bool]:
    """Return the bytes on disk of files that have lost their name, and whether that is all."""
    devices = {Path(place).stat().st_dev for place in places if Path(place).exists()}
    descriptors, all_listed = _descriptors(root)
    mapped, all_mapped = _mapped(root)
    opened = {key: size for _, key, size in _opened(descriptors) if key[0] in devices}
    mapped = {key: size for key, size in mapped.items() if key[0] in devices}
    total = sum(max(opened.get(key, 0), mapped.get(key, 0)) for key in {*opened, *mapped})
    whole = all_listed and all_mapped and mapped.keys() <= opened.keys()
    return total, whole and not any(map(_passes_files, descriptors))


def _processes(root: str) -> Iterator[str]:
    """Find what runs: processes, or a thread of those whose first thread has ended."""
    for pid in _listed(f"{root}/proc"):
        if not pid.isdigit():
            continue
        with contextlib.suppress(OSError):
            state = Path(root, "proc", pid, "stat").read_bytes().rpartition(b") ")[2][:1]
            threads = (t for t in _listed(f"{root}/proc/{pid}/task") if t != pid)
            further = (f"{pid}/task/{thread}" for thread in threads)
            yield from islice(further, 1) if state in {b"Z", b"X"} else (pid,)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names
    except OSError:
        return []


def _fields(root: str, process: str, file: str) -> dict[str, int]:
    try:
        text = Path(root, "proc", process, file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(size) << 10 for name, size in _FIELDS.findall(text)}


def _opened(descriptors: Descriptors) -> Iterator[tuple[str, File, int]]:
    """Find open files without a name: what it was, which file, and its bytes."""
    for path, status in descriptors:
        if not status.st_nlink and stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                key = (status.st_dev, status.st_ino)
                yield str(Path(path).readlink()), key, status.st_blocks * 512


def _descriptors(root: str) -> tuple[Descriptors, bool]:
    """Find what processes have open: where it is shown, and its status; and whether it is all."""
    found: Descriptors = []
    whole = True
    for process in _processes(root):
        try:
            with os.scandir(f"{root}/proc/{process}/fd") as entries:
                for entry in entries:
                    if len(found) == _FILES_COUNTED:
                        return found, False
                    with contextlib.suppress(OSError):
                        found.append((entry.path, entry.stat()))
        except PermissionError:
            whole = False  # it does not let itself be looked at
        except OSError:
            continue
    return found, whole


def _passes_files(descriptor: tuple[str, os.stat_result]) -> bool:
    """Tell whether this is a socket with files on their way that nobody has taken out."""
    path, status = descriptor
    if not stat.S_ISSOCK(status.st_mode):
        return False
    folder, number = os.path.split(path)
    with contextlib.suppress(OSError):
        return _PASSED.search(Path(f"{folder}info", number).read_bytes()) is not None
    return False


def _mapped(root: str) -> tuple[dict[File, int], bool]:
    """Find mapped files without a name, as far as they are mapped, and whether these are all."""
    found: dict[File, int] = {}
    left = _MAPPINGS_COUNTED
    for process in _processes(root):
        with (
            contextlib.suppress(OSError),
            Path(root, "proc", process, "maps").open(encoding="utf-8", errors="replace") as lines,
        ):
            for line in lines:
                if (left := left - 1) < 0:
                    return found, False
                if match := _MAPPED.fullmatch(line):
                    begin, end, major, minor, number = match.groups()
                    key = (os.makedev(int(major, 16), int(minor, 16)), int(number))
                    found[key] = max(found.get(key, 0), int(end, 16) - int(begin, 16))
    return found, True


def _said(used: int, limit: int, what: str) -> str:
    return f"The sandbox uses {used >> 20} of {limit >> 20} MB of {what}."
