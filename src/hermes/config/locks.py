"""Kernel locks on files (`flock`), for work that only one process may do at a time.

A lock belongs to an open file and ends with it: the kernel releases it when the
process ends, however it ends, so a lock that can be taken means that its holder is
gone. Process ids cannot tell that: they are reused. A lock file that others may wait
for is never removed, because a lock on a deleted file protects nothing.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.domain.errors import ConfigError, HermesError


def open_lock(path: Path, failure: type[HermesError] = ConfigError) -> int:
    """Open a lock file without locking it; the file and its folder are created if needed."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise failure(
            f"{path} cannot be opened: {error.strerror}.",
            hint="Check that the folder belongs to you and is not read-only.",
        ) from error


def lock(descriptor: int) -> None:
    """Take the lock until the descriptor is closed. Blocks until it is free."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def try_lock(descriptor: int) -> bool:
    """Take the lock unless another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_lock(path: Path) -> int | None:
    """Open and lock a file; the descriptor holds the lock. None if another process has it."""
    descriptor = open_lock(path)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def locked(path: Path, failure: type[HermesError] = ConfigError) -> Iterator[None]:
    """Hold the lock for the body of the `with`. Blocks until it is free."""
    descriptor = open_lock(path, failure)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path, *, if_unreadable: bool) -> bool:
    """Tell whether a process holds the lock. A file that is missing is not locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return if_unreadable
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
