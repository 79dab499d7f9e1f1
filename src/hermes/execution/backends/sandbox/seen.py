"""Remembers how something in the project was, and tells whether it is the same now.

What has changed has another time, unless it changed twice within a tick of the clock, or through
a mapping: then its time is not to be trusted, and its content is read again.
"""

import contextlib
import ctypes
import hashlib
import os
import stat
import struct
import time
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from hermes.execution.backends.sandbox.settings import LONGEST_CONFIG

_TICK = 100_000_000
"""Nanoseconds in which two changes of a file may get the same time."""
_HERE, _BORN, _BORN_AT = -100, 0x800, 80
"""Of `statx`: names are relative to the directory; what is asked for, and where it is told."""
_LONGEST_COMPARED = 1 << 20
"""Bytes of a file that is compared by all of its content."""


class Seen(Struct, frozen=True):
    """How something was."""

    kind: int
    identity: tuple[int, ...]
    content: bytes | None = None
    """Of a file, if it is short; where a link led."""
    digest: bytes = b""
    """Of a file, also of a long one."""
    folder: tuple[int, ...] = ()
    """Which folder it is in."""
    born: int = 0
    """When it was made: another file may get its number."""

    @property
    def file(self) -> tuple[int, ...]:
        """Which file it is, whatever its name and its content are."""
        return self.identity[:2]

    @property
    def mode(self) -> int:
        return self.identity[2] if self.identity else 0

    @property
    def has_other_names(self) -> bool:
        """It is a file that can be written to without a look at this name."""
        return self.kind == stat.S_IFREG and self.identity[3] > 1

    def is_like(self, other: "Seen") -> bool:
        """Tell whether this holds what the other one held."""
        if (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.kind == stat.S_IFREG:
            return self.digest == other.digest != b""
        return self.content == other.content  # of what is neither file nor link there is none

    def was_in(self, directory: int) -> bool:
        """Tell whether this is the folder that it was in, and no other of the same name."""
        return self.folder in {(), folder_identity(directory)}

    def untrusted(self) -> "Seen":
        """Return the same as something that must be read again to be known."""
        return replace(self, identity=(*self.identity[:-1], 0))

    def of_another_file(self) -> "Seen":
        """Return the same as that of a file which takes its place: it may get the same number."""
        return replace(self, identity=(0, 0, *self.identity[2:-1], 0))


GONE, HIDDEN = Seen(kind=0, identity=()), Seen(kind=-1, identity=())


def folder_identity(directory: int) -> tuple[int, ...]:
    """Return which folder is open; another one may get its number, but not when it was made."""
    status = os.fstat(directory)
    return (status.st_dev, status.st_ino, born(f"/proc/self/fd/{directory}"))


def born(path: str) -> int:
    """Return when a file was made, in nanoseconds; 0 where nobody knows."""
    answer = ctypes.create_string_buffer(256)
    try:
        if ctypes.CDLL(None).statx(_HERE, os.fsencode(path), 0, _BORN, answer):
            return 0
    except AttributeError:  # an old library
        return 0
    known: int = struct.unpack_from("=I", answer)[0]
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BORN_AT)
    return int(seconds * 10**9 + nanoseconds) if known & _BORN else 0


def identity_in(status: os.stat_result) -> tuple[int, ...]:
    return (
        *(status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )


def described(directory: int, name: str, *, keep: bool = True, compare: bool = True) -> Seen:
    """Return how something in an open folder is; what changes after that looks different.

    A short content is kept, unless that is too much; a long one is read if it is to be compared.
    """
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    content: bytes | None = None
    digest = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(name, dir_fd=directory))
    elif stat.S_ISREG(status.st_mode):
        with contextlib.suppress(PermissionError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(LONGEST_CONFIG + 1)
                short = len(content) <= LONGEST_CONFIG
                digest = _digest(content, file, status) if short or compare else b""
                content = content if short and keep else None
    seen = Seen(
        kind=stat.S_IFMT(status.st_mode),
        identity=identity_in(status),
        content=content,
        digest=digest,
        folder=folder_identity(directory),
        born=born(f"/proc/self/fd/{directory}/{name}"),
    )
    return seen.untrusted() if time.time_ns() - status.st_ctime_ns < _TICK else seen


def _digest(begin: bytes, file: BinaryIO, status: os.stat_result) -> bytes:
    """Return what tells one content from another; of a very long one also by size and time."""
    made = hashlib.sha256(begin)
    if status.st_size > _LONGEST_COMPARED:
        made.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    elif len(begin) > LONGEST_CONFIG:
        made.update(file.read(_LONGEST_COMPARED))
    return made.digest()
