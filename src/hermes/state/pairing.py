"""Pairing records as files in the home: `<p>-pending.json`, `<p>-approved.json`, limits.

A lock file makes one process at a time read, change and write; each file is
replaced as a whole, so a reader never sees half of one. A file that cannot be
understood is an error, never an empty list: an empty list would be written
back over the people who were let in.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hermes.config.atomic import file_stamp, read_json, write_json
from hermes.config.locks import locked
from hermes.domain.errors import StoreError, UsageError
from hermes.domain.ports.files import PairedUser, PairingRecords, PendingPairing

LOCK = ".lock"

T = TypeVar("T")
LIMITS = "_rate_limits.json"
_PENDING = "-pending.json"
_APPROVED = "-approved.json"
_LOCKOUT = "_lockout:"
_FAILURES = "_failures:"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}(:[a-z0-9][a-z0-9_-]{0,63})?")


class PairingFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = asyncio.Lock()
        """Our own callers queue here, so at most one thread waits for the file lock."""

    async def platforms(self) -> list[str]:
        return await asyncio.to_thread(self._platforms)

    async def read(self, platform: str) -> PairingRecords:
        return await asyncio.to_thread(self._read, platform)

    async def change(
        self, platform: str, edit: Callable[[PairingRecords], tuple[PairingRecords, T]]
    ) -> T:
        async with self._turn:
            return await asyncio.to_thread(self._change, platform, edit)

    async def stamp(self) -> object:
        return await asyncio.to_thread(self._stamp)

    def _platforms(self) -> list[str]:
        names = [path.name for path in self._folder.glob("*.json")]
        found = {
            name.removesuffix(end)
            for name in names
            for end in (_PENDING, _APPROVED)
            if name.endswith(end)
        }
        return sorted(found)

    def _stamp(self) -> object:
        return {path.name: file_stamp(path) for path in self._folder.glob(f"*{_APPROVED}")}

    def _read(self, platform: str) -> PairingRecords:
        if not _NAME.fullmatch(platform):
            raise UsageError(f"`{platform}` is not the name of a platform.")
        limits = self._load(LIMITS, dict[str, float])
        mine = f"{platform}:"
        return PairingRecords(
            pending=self._load(platform + _PENDING, dict[str, PendingPairing]),
            approved=self._load(platform + _APPROVED, dict[str, PairedUser]),
            asked_at={
                name.removeprefix(mine): at for name, at in limits.items() if name.startswith(mine)
            },
            failures=int(limits.get(_FAILURES + platform, 0)),
            locked_until=limits.get(_LOCKOUT + platform, 0.0),
        )

    def _change(
        self, platform: str, edit: Callable[[PairingRecords], tuple[PairingRecords, T]]
    ) -> T:
        with locked(self._folder / LOCK, StoreError):
            old = self._read(platform)
            new, answer = edit(old)
            if new.pending != old.pending:
                self._save(platform + _PENDING, new.pending)
            if new.approved != old.approved:
                self._save(platform + _APPROVED, new.approved)
            self._save_limits(platform, new)
            return answer

    def _save_limits(self, platform: str, new: PairingRecords) -> None:
        mine = (_LOCKOUT + platform, _FAILURES + platform)
        before = self._load(LIMITS, dict[str, float])
        limits = {
            name: value
            for name, value in before.items()
            if name not in mine and not name.startswith(f"{platform}:")
        }
        limits |= {f"{platform}:{user}": at for user, at in new.asked_at.items()}
        if new.failures:
            limits[_FAILURES + platform] = new.failures
        if new.locked_until:
            limits[_LOCKOUT + platform] = new.locked_until
        if limits != before:
            self._save(LIMITS, limits)

    def _load(self, name: str, kind: type[T]) -> T:
        return read_json(self._folder / name, kind)

    def _save(self, name: str, value: Any) -> None:
        write_json(self._folder / name, value)
