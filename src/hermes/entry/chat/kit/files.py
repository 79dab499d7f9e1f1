"""Files on disk, read and copied within a limit beside the event loop."""

import asyncio
import shutil
from pathlib import Path

from hermes.domain.ports.platform import FailureAction, PlatformFailure


def check_size(size: int, limit: int) -> None:
    """Raise `OSError` with a text for people if a file is too large."""
    if size > limit:
        raise OSError(f"it is larger than {limit // 1_000_000} MB")


async def read_file(path: Path, limit: int) -> bytes:
    """Return the content of a file that is to be sent; `PlatformFailure` if it cannot be."""

    def read() -> bytes:
        size = path.stat().st_size
        check_size(size, limit)
        if size == 0:
            raise OSError("it is empty")
        return path.read_bytes()

    try:
        return await asyncio.to_thread(read)
    except OSError as error:
        message = f"{path.name} cannot be sent: {error.strerror or error}."
        raise PlatformFailure(FailureAction.GIVE_UP, message) from None


async def copy_file(source: Path, target: Path, limit: int) -> int:
    """Copy a file that the platform's server has on this machine; return its size."""

    def copy() -> int:
        size = source.stat().st_size
        check_size(size, limit)
        part = target.with_name(f"{target.name}.part")
        shutil.copyfile(source, part)
        part.replace(target)
        return size

    return await asyncio.to_thread(copy)
