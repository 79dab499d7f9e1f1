"""Files that came with messages, read for models that can see them."""

import asyncio
from pathlib import Path

from hermes.agent.images import MAX_IMAGE_BYTES

__all__ = ["read_attachment"]


async def read_attachment(path: str) -> bytes | None:
    """Return the bytes of a stored attachment; None if it is gone or too big."""
    return await asyncio.to_thread(_read, Path(path))


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_IMAGE_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None
