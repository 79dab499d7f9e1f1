"""Keeps files of the Hermes home in step with a copy on another machine.

Before a command, but at most every five seconds, local files are compared by
time and size with what was last sent; new and changed ones go over as a tar
archive, vanished ones are deleted there. When the environment is closed,
files that changed on the other side come back, but only under roots that say
so: what commands wrote must not become credentials or skills of the host.
What comes back is checked: asked-for names only, regular files only, bounded,
and never over a file that changed here in the meantime.
"""

import asyncio
import io
import os
import posixpath
import secrets
import shlex
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.execution.remote.files import Caller

EVERY = 5.0
MAX_FILES = 20_000
MAX_PIECE = 8 * 1024 * 1024
"""Bytes of file content that travel in one archive, unless one file is larger."""
MAX_BACK = 256 * 1024 * 1024

_Version = tuple[int, int]
"""Time in nanoseconds, size."""


class SyncRoot(Struct, frozen=True, kw_only=True):
    """A file or directory of this machine and where it lives on the other."""

    local: str
    remote: str
    """Absolute, or relative to the home directory there."""
    back: bool = False
    """Bring changed files back on close."""


class _Local(Struct, frozen=True, kw_only=True):
    path: Path
    version: _Version
    mode: int
    back: bool


class FileSync:
    """What was sent to one machine, and what has to be."""

    def __init__(self, roots: Iterable[SyncRoot], clock: Clock) -> None:
        self._roots = tuple(roots)
        self._clock = clock
        self._checked: float | None = None
        self._home: str | None = None
        self._sent: dict[str, _Local] = {}
        self._there: dict[str, str] = {}

    async def push(self, call: Caller, home: str) -> None:
        """Send what changed since the last time, unless that was just now."""
        now = self._clock.monotonic()
        if self._checked is not None and now - self._checked < EVERY and home == self._home:
            return
        self._checked = now
        if home != self._home:
            self._home, self._sent = home, {}
        present = await asyncio.to_thread(_scan, self._roots, home)
        changed = [name for name, file in present.items() if self._sent.get(name) != file]
        gone = [name for name in self._sent if name not in present]
        for piece in _pieces(changed, present):
            archive = await asyncio.to_thread(_pack, piece, present)
            await _checked(call, "umask 077; tar -xpf - -C /", archive)
        if gone:
            names = "".join(f"{name}\0" for name in gone)
            await _checked(call, "xargs -0 rm -f --", os.fsencode(names))
        self._sent = present
        backs = [name for name in changed if present[name].back]
        if backs:
            self._there.update(await _versions(call, backs))

    async def pull(self, call: Caller, home: str) -> int:
        """Bring back what changed on the other side; return how many files."""
        if not any(root.back for root in self._roots) or home != self._home:
            return 0
        there = await self._list(call, home)
        wanted = [name for name, version in there.items() if self._there.get(name) != version]
        if not wanted:
            return 0
        names = os.fsencode("".join(f"{name}\0" for name in wanted))
        archive = await _checked(
            call, "cd / && xargs -0 tar -cf - 2>/dev/null", names.replace(b"\0/", b"\0")[1:]
        )
        return await asyncio.to_thread(self._unpack, archive, frozenset(wanted), home)

    async def _list(self, call: Caller, home: str) -> dict[str, str]:
        roots = [_there(root, home) for root in self._roots if root.back]
        find = " ".join(shlex.quote(root) for root in roots)
        output = await _checked(call, f"find {find} -type f -print0 2>/dev/null; true")
        names = os.fsdecode(output).split("\0")[:-1]
        return await _versions(call, names[:MAX_FILES]) if names else {}

    def _unpack(self, archive: bytes, wanted: frozenset[str], home: str) -> int:
        count = 0
        budget = MAX_BACK
        # Several archives in a row when the names did not fit one command line.
        with tarfile.open(fileobj=io.BytesIO(archive), ignore_zeros=True) as tar:
            for member in tar:
                name = "/" + member.name.lstrip("/")
                if name not in wanted or not member.isreg() or member.size > budget:
                    continue
                target = self._target(name, home)
                content = tar.extractfile(member)
                if target is None or content is None:
                    continue
                budget -= member.size
                _replace(target, content.read())
                count += 1
        return count

    def _target(self, name: str, home: str) -> Path | None:
        """Return where a file of the other side belongs here; None if it must not come."""
        known = self._sent.get(name)
        if known is not None:
            current = _describe(known.path, back=known.back)
            return known.path if current == known else None
        for root in self._roots:
            top = _there(root, home)
            if not root.back or not name.startswith(f"{top}/"):
                continue
            target = Path(root.local, *name[len(top) + 1 :].split("/"))
            inside = target.resolve().is_relative_to(Path(root.local).resolve())
            return target if inside and ".." not in target.parts and not target.exists() else None
        return None


def _there(root: SyncRoot, home: str) -> str:
    remote = root.remote.removeprefix("~/")
    return posixpath.normpath(posixpath.join(home, remote))


def _scan(roots: Iterable[SyncRoot], home: str) -> dict[str, _Local]:
    """Return the local files under their names on the other side."""
    found: dict[str, _Local] = {}
    for root in roots:
        top = Path(root.local)
        for path in _files(top):
            below = path.relative_to(top).as_posix()
            name = posixpath.normpath(posixpath.join(_there(root, home), below))
            if (file := _describe(path, back=root.back)) is not None and len(found) < MAX_FILES:
                found[name] = file
    return found


def _files(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
        return
    for directory, _, names in os.walk(top):
        for name in sorted(names):
            yield Path(directory, name)


def _describe(path: Path, *, back: bool) -> _Local | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    version = (status.st_mtime_ns, status.st_size)
    return _Local(path=path, version=version, mode=stat.S_IMODE(status.st_mode), back=back)


def _pieces(names: list[str], files: Mapping[str, _Local]) -> Iterator[list[str]]:
    """Cut a list of files into archives of bounded size."""
    piece: list[str] = []
    size = 0
    for name in names:
        size += files[name].version[1]
        if piece and size > MAX_PIECE:
            yield piece
            piece, size = [], files[name].version[1]
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
            member.mtime = files[name].version[0] // 1_000_000_000
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


async def _versions(call: Caller, names: list[str]) -> dict[str, str]:
    """Return time and size of files on the other side, as text to compare."""
    script = (
        "if stat -c %s / >/dev/null 2>&1; then how=(-c '%s %.9Y'); else how=(-f '%z %Fm'); fi;"
        " while IFS= read -rd '' f; do printf '%s\\0%s\\0' \"$f\""
        ' "$(stat "${how[@]}" -- "$f" 2>/dev/null)"; done'
    )
    output = await _checked(call, script, os.fsencode("".join(f"{name}\0" for name in names)))
    fields = os.fsdecode(output).split("\0")[:-1]
    return dict(zip(fields[::2], fields[1::2], strict=True))


async def _checked(call: Caller, script: str, stdin: bytes = b"") -> bytes:
    status, output = await call(script, stdin, timeout=600)
    if status:
        said = output.decode("utf-8", "replace").strip()[-300:]
        raise HermesError(
            f"Files could not be synchronised: {said or f'exit code {status}'}.",
            hint="Check that tar and xargs are there and that the disk is not full.",
        )
    return output


def _replace(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name[:64]}.{secrets.token_hex(6)}.tmp")
    draft.write_bytes(data)
    draft.replace(target)
