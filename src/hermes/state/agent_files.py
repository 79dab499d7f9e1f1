"""The agent's own files: SOUL.md and the memories for the prompt, and the heads of skills.

People edit them by hand. They are read in full but never more than a bound, as UTF-8
whatever is in them, so that a huge or binary file cannot hurt. A file that is missing
or blank is None.
"""

import asyncio
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from hermes.config.paths import HermesHome
from hermes.domain.errors import StoreError
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.profile import AgentProfile
from hermes.domain.settings.live import LiveSettings

MAX_BYTES = 64 * 1024
MAX_KEPT = 32
"""Files whose text is kept."""
MAX_HEAD = 4000
"""Bytes of a skill, of which its head is a part."""


class FileIdentity:
    """Reads them where they have changed; to look whether they have takes less than a thread."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._read: dict[str, tuple[object, str | None]] = {}
        """Path -> how the file was when it was read, and its text."""

    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        soul, remembered, known = _places(profile.home)
        limits, memory, user = self._settings().memory, None, None
        if limits.memory_enabled:
            memory = await self._text(remembered)
        if limits.user_profile_enabled:
            user = await self._text(known)
        return IdentitySnapshot(
            soul=profile.prompt.strip() or await self._text(soul),
            memory=(memory and memory[: limits.memory_char_limit]) or None,
            user=(user and user[: limits.user_char_limit]) or None,
        )

    async def _text(self, path: str) -> str | None:
        state = _state(path)
        kept = self._read.get(path)
        if kept is None or kept[0] != state:
            kept = state, await asyncio.to_thread(read_text, Path(path))
            self._read[path] = kept
            if len(self._read) > MAX_KEPT:
                del self._read[next(iter(self._read))]
        return kept[1]


@lru_cache(maxsize=64)
def _places(root: Path) -> tuple[str, str, str]:
    """Return where a home has the soul, the memories and what is known about the user."""
    home = HermesHome(root=root)
    memories = home.memories_dir
    return str(home.soul_file), str(memories / "MEMORY.md"), str(memories / "USER.md")


def _state(path: str) -> object:
    """Return what changes when a file does."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each new session, so it counts
    except FileNotFoundError:
        return None
    except OSError:
        return object()  # whoever reads it says why it cannot be read
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str | None:
    """Read the beginning of a text file; None if it is missing or blank."""
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


async def skill_cards(directory: Path) -> list[dict[str, Any]]:
    """List the skills: name, description, category and path below the skills directory."""
    return await asyncio.to_thread(_cards, directory)


def _cards(directory: Path) -> list[dict[str, Any]]:
    cards = []
    for path in sorted(directory.rglob("SKILL.md")) if directory.is_dir() else ():
        head = _head(path)
        place = path.parent.relative_to(directory)
        cards.append(
            {
                "name": str(head.get("name") or place.name),
                "description": str(head.get("description") or ""),
                "category": place.parts[0] if len(place.parts) > 1 else "",
                "path": str(place),
            }
        )
    return cards


def _head(path: Path) -> dict[str, Any]:
    """Return the YAML between the first two `---` lines; nothing if there is none."""
    try:
        parts = (read_text(path, MAX_HEAD) or "").split("---", 2)
        head = yaml.safe_load(parts[1]) if not parts[0] and len(parts) > 2 else {}
    except (StoreError, yaml.YAMLError):
        return {}
    return head if isinstance(head, dict) else {}
