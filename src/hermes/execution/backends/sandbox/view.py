"""Files below a root that others can write to, seen exactly as they see them.

Paths are walked component by component from the root, which may be that of
another mount namespace. Every step is an open without following links,
relative to the directory before it; links are read and interpreted here,
absolute ones from that root. So no link, `..` or rename that a command plays
leads out, and no race does either.

Hermes may have rights that commands lack. Therefore kernel file systems are
out of bounds, and writing needs a writable place besides a writable mount.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NoReturn, Self

from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import DirEntry, FileStat
from hermes.execution.backends.sandbox.names import CHOOSING, chooses_only, leads_to_one
from hermes.execution.backends.sandbox.settings import LONGEST_CONFIG
from hermes.execution.host.files import (
    FOLDER,
    changing,
    described,
    draft_name,
    explained,
    read_whole,
    require_regular,
    require_unchanged,
    require_writable,
)

_OUT_OF_BOUNDS = frozenset({"proc", "sys", "dev"})
_MAX_LINKS = 40
_MAX_STEPS = 4096
"""Names that a walk goes through, those in links included."""
_MAX_DEPTH = 200
"""Directories that a walk keeps open."""
_MAX_LISTED = 20_000
"""Entries that are listed of a directory."""
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class View:
    """A root directory that nothing leads out of, as `BlockingFiles`."""

    def __init__(
        self,
        root: str,
        writable: tuple[str, ...],
        guarded: tuple[str, ...] = (),
        project: str = "",
        keeps: object = None,
    ) -> None:
        """Look from `root`; write below `writable`, but not below what is `guarded` in it.

        In a `project` the guarded names count in every folder, and what git keeps is for git.
        What it `keeps` lives as long as it does: the root may lead through a descriptor of that.
        """
        self._root = root
        self._keeps = keeps
        self._project = _parts(project) if project else None
        self._writable = [_parts(path) for path in writable]
        self._guarded = [_parts(path) for path in guarded]

    def stat(self, path: str) -> FileStat | None:
        with explained(path), _Walk(self._root) as walk:
            try:
                walk.go(path)
                return described(path, walk.status())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def present(self, paths: Sequence[str]) -> frozenset[str]:
        found = set()
        for path in paths:
            with contextlib.suppress(HermesError):
                if self.stat(path) is not None:
                    found.add(path)
        return frozenset(found)

    def read(self, path: str, offset: int, limit: int | None) -> bytes:
        with explained(path), _Walk(self._root) as walk:
            walk.go(path)
            require_regular(path, walk.status())
            fd = walk.open(os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                require_regular(path, os.fstat(fd))
                if offset:
                    file.seek(offset)
                return read_whole(path, file) if limit is None else file.read(limit)

    def write(self, path: str, data: bytes, was: str = "") -> None:
        with explained(path), _Walk(self._root, self._require_writable) as walk:
            walk.go(path)
            self._require_writable(walk.names)
            mode, known = 0o666, b""
            with contextlib.suppress(FileNotFoundError):
                existing = walk.status()
                require_regular(path, existing)
                require_writable(path, existing)
                mode = stat.S_IMODE(existing.st_mode) & 0o777
                if walk.names[-1] in CHOOSING:
                    known = walk.content(path, LONGEST_CONFIG)
            self._require_choice(walk.names, data, known)
            walk.replace(
                data, mode, lambda: require_unchanged(path, was, partial(walk.content, path))
            )

    def remove(self, path: str) -> None:
        with explained(path), _Walk(self._root) as walk:
            walk.go(path, follow_last=False)
            self._require_writable(walk.names)
            status = walk.status()
            if not stat.S_ISLNK(status.st_mode):
                require_regular(path, status)
            walk.unlink()

    def list_dir(self, path: str) -> list[DirEntry]:
        with explained(path), _Walk(self._root) as walk:
            walk.go(path)
            fd = walk.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(fd) as entries:
                    found = [_entry(entry) for entry in islice(entries, _MAX_LISTED)]
            finally:
                os.close(fd)
        return sorted(found, key=lambda entry: entry.name)

    def _require_writable(self, names: list[str]) -> None:
        named = leads_to_one(self._within_project(names))
        if named or _depth(names, self._writable) <= _depth(names, self._guarded):
            self._refuse("this place is read-only in the sandbox")

    def _require_choice(self, names: list[str], data: bytes, known: bytes) -> None:
        name = names[-1]
        if self._within_project(names) and name in CHOOSING and not chooses_only(name, data, known):
            self._refuse("paths and templates in this file are read-only in the sandbox")

    def _within_project(self, names: list[str]) -> list[str]:
        project = self._project
        return names[len(project) :] if project and project == names[: len(project)] else []

    def _refuse(self, reason: str) -> NoReturn:
        ask = "; a command with `escalate` can ask for it" if self._guarded else ""
        raise OSError(errno.EROFS, f"{reason}{ask}")


def _entry(entry: os.DirEntry[str]) -> DirEntry:
    """Describe an entry; a link for itself, wherever it leads."""
    try:
        size = entry.stat(follow_symlinks=False).st_size
        is_dir = entry.is_dir(follow_symlinks=False)
    except OSError:  # gone meanwhile
        size, is_dir = 0, False
    return DirEntry(name=entry.name, is_dir=is_dir, size=size)


class _Walk:
    """A walk from the root; ends at a name in an open directory."""

    def __init__(self, root: str, may_create: Callable[[list[str]], None] | None = None) -> None:
        self._root = root
        self._may_create = may_create
        self._fds: list[int] = []
        self.names: list[str] = []
        """The real path, without links and dots."""

    def __enter__(self) -> Self:
        try:
            # The root itself is reached through a link of the kernel's own making.
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            self._fds.append(os.open(self._root, flags))
        except OSError as error:
            raise HermesError(
                "The sandbox is not running.", hint="Run a command to start it again."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def go(self, path: str, *, follow_last: bool = True) -> None:
        ahead = _parts(path)[::-1]
        links = steps = 0
        while ahead:
            name = ahead.pop()
            steps += 1
            if steps > _MAX_STEPS:
                raise OSError(errno.ELOOP, "too many directories and links on the way")
            if name == "..":
                if self.names:
                    self._leave()
                continue
            self._enter_parent()
            target = None if not ahead and not follow_last else self._link(name)
            if target is None:
                self._permit(name)
                self.names.append(name)
                if len(self.names) > _MAX_DEPTH:
                    raise OSError(errno.ENAMETOOLONG, "too many directories deep")
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                while self.names:
                    self._leave()
            ahead.extend(_parts(target)[::-1])

    def status(self) -> os.stat_result:
        parent, name = self._end()
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def open(self, flags: int) -> int:
        parent, name = self._end()
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)

    def unlink(self) -> None:
        parent, name = self._end()
        os.unlink(name, dir_fd=parent)

    def content(self, path: str, *most: int) -> bytes:
        with os.fdopen(self.open(os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return read_whole(path, file, *most)

    def replace(self, data: bytes, mode: int, check: Callable[[], None]) -> None:
        """Put a new file in place if `check` has nothing against it."""
        parent, name = self._end()
        draft = draft_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, mode, dir_fd=parent)
        try:
            with os.fdopen(fd, "wb") as file:
                if mode != 0o666:
                    os.fchmod(fd, mode)
                file.write(data)
            with changing(os.open(".", FOLDER, dir_fd=parent)):
                check()
                os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=parent)
            raise

    def _end(self) -> tuple[int, str]:
        """Return the last directory and the name in it; `.` for the root."""
        if not self.names:
            return self._fds[0], "."
        self._enter_parent(keep_last=True)
        return self._fds[len(self.names) - 1], self.names[-1]

    def _enter_parent(self, *, keep_last: bool = False) -> None:
        """Open the directories whose names are known but not open yet."""
        wanted = len(self.names) - (1 if keep_last else 0)
        while len(self._fds) <= wanted:
            depth = len(self._fds)
            name = self.names[depth - 1]
            try:
                fd = os.open(name, _STEP, dir_fd=self._fds[-1])
            except FileNotFoundError:
                if self._may_create is None:
                    raise
                self._may_create(self.names[:depth])
                os.mkdir(name, 0o777, dir_fd=self._fds[-1])
                fd = os.open(name, _STEP, dir_fd=self._fds[-1])
            self._fds.append(fd)

    def _leave(self) -> None:
        if len(self._fds) > len(self.names):
            os.close(self._fds.pop())
        self.names.pop()

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._fds[-1])
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None

    def _permit(self, name: str) -> None:
        if not self.names and name in _OUT_OF_BOUNDS:
            raise OSError(errno.EACCES, "kernel files are not for the file tools")


def _depth(names: list[str], roots: list[list[str]]) -> int:
    """Return how deep the deepest of `roots` is that `names` are below; -1: none."""
    return max((len(root) for root in roots if names[: len(root)] == root), default=-1)


def _parts(path: str) -> list[str]:
    if "\0" in path:
        raise ValueError("embedded null byte")
    return [part for part in path.split("/") if part not in {"", "."}]
