"""Checkpoints: how a project looked before the agent changed it."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Snapshot(Struct, frozen=True, kw_only=True):
    number: int
    commit: str
    at: datetime
    why: str


class Restored(Struct, frozen=True, kw_only=True):
    changed: list[str]
    left: list[str]
    """Files that the record left out for their size: they stay as they are."""


class CheckpointStore(Protocol):
    async def snapshots(self, folder: str) -> list[Snapshot]:
        """Return the records of a project, the newest first."""

    async def diff(self, folder: str, number: int) -> str:
        """Return what has changed in a project since a record."""

    async def restore(self, folder: str, number: int, name: str = "") -> Restored:
        """Bring a project, or one file of it, back to a record."""
