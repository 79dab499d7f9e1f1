"""Files: what an environment does with them, and those of this machine.

`HostFiles` works on regular files only. Symbolic links are resolved first and
the result is opened without following another one. Opening never blocks: a
pipe or device is refused after `fstat`, not waited for. Writing goes to a new
file beside the target which then takes its place, if the target still is what
the writer read: two edits of one file at a time lose nothing.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, ParamSpec, Protocol, TypeVar

from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.domain.ports.execution import NOTHING, DirEntry, FileStat, digest

_PROCESS_INTERNALS = re.compile(
    r"/proc/(?:\d+/)*(?:task/\d+/)?(?:environ|mem|auxv|fd|fdinfo|map_files)(?:/|\Z)"
)
"""Read in our own process these would show our own secrets."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOCK_SECONDS = 5.0
_LONGEST = 64 << 20
"""Bytes of a file that is read at once."""
_AT_ONCE = 2
"""Threads of the process that files of one session take."""


P = ParamSpec("P")
T = TypeVar("T")


class Files(Protocol):
    """The files that an environment reaches; paths are absolute and mean what they mean there."""

    async def stat(self, path: str) -> FileStat | None: ...
    async def present(self, paths: Sequence[str]) -> frozenset[str]: ...
    async def read(self, path: str, offset: int, limit: int | None) -> bytes: ...
    async def write(self, path: str, data: bytes, was: str = "") -> None: ...
    async def remove(self, path: str) -> None: ...
    async def list_dir(self, path: str) -> list[DirEntry]: ...


class BlockingFiles(Protocol):
    """The same for code that runs in a thread."""

    def stat(self, path: str) -> FileStat | None: ...
    def present(self, paths: Sequence[str]) -> frozenset[str]: ...
    def read(self, path: str, offset: int, limit: int | None) -> bytes: ...
    def write(self, path: str, data: bytes, was: str = "") -> None: ...
    def remove(self, path: str) -> None: ...
    def list_dir(self, path: str) -> list[DirEntry]: ...


class ThreadedFiles:
    def __init__(self, files: Callable[[], BlockingFiles]) -> None:
        self._files = files
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def stat(self, path: str) -> FileStat | None:
        return await self._done(self._files().stat, path)

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        return await self._done(self._files().present, paths)

    async def read(self, path: str, offset: int, limit: int | None) -> bytes:
        return await self._done(self._files().read, path, offset, limit)

    async def write(self, path: str, data: bytes, was: str = "") -> None:
        await self._done(self._files().write, path, data, was)

    async def remove(self, path: str) -> None:
        await self._done(self._files().remove, path)

    async def list_dir(self, path: str) -> list[DirEntry]:
        return await self._done(self._files().list_dir, path)

    async def _done(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it in a thread, which counts until it ends: also if nobody waits for it any more."""
        await self._room.acquire()
        doing = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
        doing.add_done_callback(lambda _: self._room.release())
        return await asyncio.shield(doing)


class HostFiles:
    def stat(self, path: str) -> FileStat | None:
        with explained(path):
            try:
                return described(path, Path(path).stat())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def present(self, paths: Sequence[str]) -> frozenset[str]:
        return frozenset(path for path in paths if os.path.exists(path))  # noqa: PTH110

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        with explained(path):
            real = os.path.realpath(path)
            if _PROCESS_INTERNALS.match(real):
                raise UsageError(f"{path} shows the inside of a process and is not readable here.")
            fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # Before there is a file object: making one of a directory fails and leaks.
                require_regular(path, os.fstat(fd))
            except UsageError:
                os.close(fd)
                raise
            with os.fdopen(fd, "rb") as file:
                if offset:
                    file.seek(offset)
                return read_whole(path, file) if limit is None else file.read(limit)

    def write(self, path: str, data: bytes, was: str = "") -> None:
        with explained(path):
            real = Path(os.path.realpath(path))
            existing = _existing(path, real)
            real.parent.mkdir(parents=True, exist_ok=True)
            draft = real.with_name(draft_name(real.name))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(draft, flags, 0o666 if existing is None else 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    if existing is not None:
                        _copy_ownership(fd, existing)
                    file.write(data)
                with changing(os.open(real.parent, FOLDER)):
                    require_unchanged(path, was, lambda: self.read(str(real)))
                    draft.replace(real)
            except BaseException:
                with contextlib.suppress(OSError):
                    draft.unlink()
                raise

    def remove(self, path: str) -> None:
        with explained(path):
            status = Path(path).lstat()
            if not stat.S_ISLNK(status.st_mode):
                require_regular(path, status)
            Path(path).unlink()

    def list_dir(self, path: str) -> list[DirEntry]:
        with explained(path), os.scandir(path) as entries:
            return sorted((_entry(entry) for entry in entries), key=lambda entry: entry.name)


def described(path: str, status: os.stat_result) -> FileStat:
    return FileStat(
        path=path,
        is_dir=stat.S_ISDIR(status.st_mode),
        is_file=stat.S_ISREG(status.st_mode),
        size=status.st_size,
        modified_at=status.st_mtime,
    )


def draft_name(name: str) -> str:
    """Return a hidden name for a file that is to take the place of `name`."""
    return f".{name[:64]}.{secrets.token_hex(6)}.tmp"


def _entry(entry: os.DirEntry[str]) -> DirEntry:
    try:
        is_dir, size = entry.is_dir(), entry.stat(follow_symlinks=False).st_size
    except OSError:  # gone meanwhile, or a link that leads nowhere we may look
        is_dir, size = False, 0
    return DirEntry(name=entry.name, is_dir=is_dir, size=size)


def _existing(path: str, real: Path) -> os.stat_result | None:
    try:
        status = real.lstat()
    except FileNotFoundError:
        return None
    require_regular(path, status)
    require_writable(path, status)
    return status


def _copy_ownership(fd: int, existing: os.stat_result) -> None:
    # Owner first: changing it clears the set-id bits of the mode.
    with contextlib.suppress(OSError):
        os.fchown(fd, existing.st_uid, existing.st_gid)
    os.fchmod(fd, stat.S_IMODE(existing.st_mode))


@contextlib.contextmanager
def changing(folder: int) -> Iterator[None]:
    """Let no other thread or process of ours change files of an open folder; closes it.

    A command may hold the same lock as long as it likes, so it is waited for only a while.
    """
    try:
        patience = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < patience:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        os.close(folder)


def require_unchanged(path: str, was: str, read: Callable[[], bytes]) -> None:
    """Refuse to replace what is no longer as it was when it was read."""
    if not was:
        return
    try:
        now = digest(read())
    except (FileNotFoundError, NotFound):
        now = NOTHING
    if now != was:
        raise changed_meanwhile(path)


def changed_meanwhile(path: str) -> Conflict:
    return Conflict(f"{path} was changed meanwhile; nothing was written.", hint="Read it again.")


def read_whole(path: str, file: BinaryIO, most: int = _LONGEST) -> bytes:
    """Read all that is left of a file, unless that is too much: it may grow meanwhile."""
    data = file.read(most + 1)
    if len(data) > most:
        raise UsageError(f"{path} is too large to be read at once.", hint="Use the terminal.")
    return data


def require_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{path} is a directory, not a file.")
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is a device, pipe or socket, not a regular file.")


def require_writable(path: str, status: os.stat_result) -> None:
    """Refuse to replace what is marked as not to be changed, as a shell would."""
    if not status.st_mode & 0o222:
        raise UsageError(f"{path} is read-only.", hint="If it is to be changed: chmod u+w.")


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{path!r} is not a usable path: {error}.") from error
    except NotADirectoryError as error:
        raise NotFound(f"There is no file at {path}: what should be a folder is none.") from error
    except FileNotFoundError as error:
        raise NotFound(f"There is no file at {path}.") from error
    except PermissionError as error:
        raise HermesError(f"Permission denied: {path}.") from error
    except OSError as error:
        raise HermesError(f"{path}: {error.strerror or error}.") from error
