"""One process at a time reads, changes and writes the files of a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.domain.errors import StoreError

__all__ = ["locked_folder"]


@contextmanager
def locked_folder(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock file `name` of a folder, which is made if need be. Blocks."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be used: {error.strerror}.",
            hint="Check that the Hermes home belongs to you and is not read-only.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
