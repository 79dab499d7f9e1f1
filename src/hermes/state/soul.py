"""The text files a person edits by hand: SOUL.md and the memories.

Read in full but never more than a bound, as UTF-8 whatever is in them, so that
a huge or binary file cannot hurt. A file that is not there is None.
"""

import asyncio
from pathlib import Path

from hermes.domain.errors import StoreError

__all__ = [
    "MAX_MEMORY_BYTES",
    "MAX_SOUL_BYTES",
    "read_memories",
    "read_self",
    "read_soul",
    "read_text",
]

MAX_SOUL_BYTES = 64 * 1024
MAX_MEMORY_BYTES = 64 * 1024

_MEMORY_FILES = ("MEMORY.md", "USER.md")


async def read_soul(path: Path) -> str | None:
    """Read who the agent is; None if the file is missing or blank."""
    return await read_text(path, MAX_SOUL_BYTES)


async def read_memories(folder: Path) -> dict[str, str]:
    """Read the memory files that exist and are not blank, by name."""
    return await asyncio.to_thread(_memories, folder)


async def read_self(soul: Path, memories: Path) -> tuple[str | None, dict[str, str]]:
    """Read the soul and the memories in one go."""
    return await asyncio.to_thread(lambda: (_read(soul, MAX_SOUL_BYTES), _memories(memories)))


async def read_text(path: Path, max_bytes: int) -> str | None:
    """Read the beginning of a text file; None if it is missing or blank."""
    return await asyncio.to_thread(_read, path, max_bytes)


def _memories(folder: Path) -> dict[str, str]:
    found = {name: _read(folder / name, MAX_MEMORY_BYTES) for name in _MEMORY_FILES}
    return {name: text for name, text in found.items() if text is not None}


def _read(path: Path, max_bytes: int) -> str | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read ({error.strerror}).", hint="Check the file's permissions."
        ) from error
    # Cutting may split a character; the piece that is left of it is dropped.
    cut = data[:max_bytes].decode("utf-8-sig", "ignore" if len(data) > max_bytes else "replace")
    text = cut.replace("\r\n", "\n").strip()
    return text or None
