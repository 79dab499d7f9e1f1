"""`modal_snapshots.json`: which filesystem snapshot belongs to which session.

Read and replaced as a whole under a file lock, because sessions of several
processes may end at the same time.
"""

import asyncio
import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hermes.domain.errors import ConfigError

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshot ids in one file."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ConfigError(
                "The modal backend does not know where to keep snapshot ids.",
                hint="Set `terminal.container_persistent` to false, or report this.",
            )
        self._path = Path(path)

    async def get(self, task: str) -> str | None:
        """Return the snapshot of a session."""
        return (await asyncio.to_thread(self._read)).get(task)

    async def put(self, task: str, image_id: str) -> None:
        """Remember the snapshot of a session."""
        await asyncio.to_thread(self._put, task, image_id)

    def _put(self, task: str, image_id: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            known = {**self._read(), task: image_id}
            draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(6)}.tmp")
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
            draft.replace(self._path)

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._path} is damaged: {error}.",
                hint="Delete the file; sessions then start from their image again.",
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_name(f"{self._path.name}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
