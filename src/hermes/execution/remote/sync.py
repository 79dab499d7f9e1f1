"""FileSync: a copy of the skills on another machine, kept in step.

Before a command, but at most every five seconds, local files are compared by
time and size with what was last sent; new and changed ones go over as a tar
archive, vanished ones are deleted there. Nothing comes back: what commands
wrote must not become skills of the host.
"""

import asyncio
import contextlib
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.execution.remote.files import HelperRun

EVERY = 5.0
MAX_FILES = 20_000
MAX_PIECE = 8 * 1024 * 1024
"""Bytes of file content that travel in one archive, unless one file is larger."""
REMOTE = ".hermes/skills"
"""Below the home directory there."""


class _Local(Struct, frozen=True):
    path: Path
    changed: int
    """Nanoseconds."""
    size: int
    mode: int


class FileSync:
    """What was sent to one machine, and what has to be."""

    def __init__(self, local: Path, clock: Clock) -> None:
        self._local = local
        self._clock = clock
        self._checked: float | None = None
        self._home: str | None = None
        self._sent: dict[str, _Local] = {}

    async def push(self, call: HelperRun, home: str) -> None:
        """Send what changed since the last time, unless that was just now."""
        now = self._clock.monotonic()
        if self._checked is not None and now - self._checked < EVERY and home == self._home:
            return
        self._checked = now
        if home != self._home:
            self._home, self._sent = home, {}
        present = await asyncio.to_thread(_scan, self._local, posixpath.join(home, REMOTE))
        changed = [name for name, file in present.items() if self._sent.get(name) != file]
        gone = [name for name in self._sent if name not in present]
        for piece in _pieces(changed, present):
            archive = await asyncio.to_thread(_pack, piece, present)
            await _checked(call, "umask 077; tar -xpf - -C /", archive)
        if gone:
            names = "".join(f"{name}\0" for name in gone)
            await _checked(call, "xargs -0 rm -f --", os.fsencode(names))
        self._sent = present


def _scan(top: Path, remote: str) -> dict[str, _Local]:
    """Return the local files under their names on the other side."""
    found: dict[str, _Local] = {}
    for directory, _, names in os.walk(top):
        for path in (Path(directory, name) for name in sorted(names)):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and len(found) < MAX_FILES:
                    name = posixpath.join(remote, path.relative_to(top).as_posix())
                    mode = stat.S_IMODE(status.st_mode)
                    found[name] = _Local(path, status.st_mtime_ns, status.st_size, mode)
    return found


def _pieces(names: list[str], files: Mapping[str, _Local]) -> Iterator[list[str]]:
    """Cut a list of files into archives of bounded size."""
    piece: list[str] = []
    size = 0
    for name in names:
        size += files[name].size
        if piece and size > MAX_PIECE:
            yield piece
            piece, size = [], files[name].size
        piece.append(name)
    if piece:
        yield piece


def _pack(names: list[str], files: Mapping[str, _Local]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            try:
                data = files[name].path.read_bytes()
            except OSError:
                continue  # gone since the scan; the next one sees that
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size = len(data)
            member.mode = files[name].mode & 0o700
            member.mtime = files[name].changed // 1_000_000_000
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


async def _checked(call: HelperRun, script: str, stdin: bytes) -> None:
    status, output = await call(script, stdin, timeout=600)
    if status:
        said = output.decode("utf-8", "replace").strip()[-300:]
        raise HermesError(
            f"Files could not be synchronised: {said or f'exit code {status}'}.",
            hint="Check that tar and xargs are there and that the disk is not full.",
        )
