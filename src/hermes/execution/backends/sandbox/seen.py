"""Remembers how something in the project was, and tells whether it is the same now.

What has changed has another time, unless it changed twice within a tick of the clock, or through
a mapping: then its time is not to be trusted, and its content is read again.
"""

import contextlib
import os
import stat
import time

from msgspec import Struct
from msgspec.structs import replace

from hermes.execution.backends.sandbox.settings import LONGEST_CONFIG

_TICK = 100_000_000
"""Nanoseconds in which two changes of a file may get the same time."""


class Seen(Struct, frozen=True):
    """How something was."""

    kind: int
    identity: tuple[int, ...]
    content: bytes | None = None
    """Of a file, if it is short; where a link led."""

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

    def untrusted(self) -> "Seen":
        """Return the same as something that must be read again to be known."""
        return replace(self, identity=(*self.identity[:-1], 0))

    def of_another_file(self) -> "Seen":
        """Return the same as that of a file which takes its place: it may get the same number."""
        return replace(self, identity=(0, 0, *self.identity[2:-1], 0))


GONE, HIDDEN = Seen(kind=0, identity=()), Seen(kind=-1, identity=())


def identity_in(status: os.stat_result) -> tuple[int, ...]:
    return (
        *(status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )


def described(directory: int, name: str, *, keep: bool = True) -> Seen:
    """Return how something in an open folder is; what changes after that looks different."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    content: bytes | None = None
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(name, dir_fd=directory))
    elif stat.S_ISREG(status.st_mode) and keep:
        with contextlib.suppress(PermissionError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(LONGEST_CONFIG + 1)
        content = None if content is None or len(content) > LONGEST_CONFIG else content
    seen = Seen(kind=stat.S_IFMT(status.st_mode), identity=identity_in(status), content=content)
    return seen.untrusted() if time.time_ns() - status.st_ctime_ns < _TICK else seen
