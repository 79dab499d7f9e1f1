"""The agent's own files, read for the prompt of a new session."""

import asyncio
from pathlib import Path

from hermes.config.paths import HermesHome
from hermes.domain.ports.identity import IdentitySnapshot
from hermes.domain.profile import AgentProfile

__all__ = ["FileIdentity"]

SOUL_LIMIT = 20_000


class FileIdentity:
    """Reads SOUL.md and the memory files of an agent's home."""

    def __init__(self, *, memory_limit: int, user_limit: int) -> None:
        self._memory_limit = memory_limit
        self._user_limit = user_limit

    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        """Return what the prompt of a new session is made of."""
        return await asyncio.to_thread(self._read, HermesHome(root=profile.home))

    def _read(self, home: HermesHome) -> IdentitySnapshot:
        return IdentitySnapshot(
            soul=_text(home.soul_file, SOUL_LIMIT),
            memory=_text(home.memories_dir / "MEMORY.md", self._memory_limit),
            user=_text(home.memories_dir / "USER.md", self._user_limit),
        )


def _text(path: Path, limit: int) -> str | None:
    """Return the beginning of a text file; None if it is missing or empty."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(limit + 1).strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    return text[:limit] or None
