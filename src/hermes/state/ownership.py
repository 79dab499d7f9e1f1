"""Owners of turns: the process that runs a turn, and whether it is still alive.

Every process that runs turns holds an exclusive `flock` on a file of its own
in the home's run folder for as long as it lives. The kernel releases the lock
when the process ends, however it ends, so a lock that can be taken, or a file
that is missing, means that the owner is dead. Process ids alone could not tell:
they are used again.

Beside the lock lies the owner's stall file, empty unless the watchdog ended the process:
then it has the session that blocked it, if one did, and the stacks of all threads.
"""

import os
import re
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from hermes.config.locks import is_locked, lock
from hermes.domain.errors import StoreError

_SUFFIX = ".lock"
_STALL = ".stall"
_REPORTED = ".stalled"
_KEEP_STALLS = 30 * 24 * 3600.0


class Owner:
    def __init__(self, owner_id: str, path: Path, descriptor: int) -> None:
        self.id = owner_id
        """`<host>-<pid>-<hex>`, unique for every start."""
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def claim(cls, run_dir: Path) -> Self:
        """Become an owner: make the lock file, lock it and clear away dead ones."""
        host = re.sub(r"[^A-Za-z0-9.]+", "_", socket.gethostname()) or "host"
        owner_id = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        path = run_dir / f"{owner_id}{_SUFFIX}"
        try:
            run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            clean_up(run_dir)
            # A new name each time: nobody else can hold or delete it before it is locked,
            # because `clean_up` leaves a file alone that has no content yet.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"The folder {run_dir} cannot be used ({error.strerror}).",
                hint="Check that the Hermes home belongs to you and is not read-only.",
            ) from error
        lock(descriptor)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return cls(owner_id, path, descriptor)

    @property
    def stall_path(self) -> Path:
        """Where the watchdog says what blocked this process."""
        return self._path.with_suffix(_STALL)

    def release(self) -> None:
        """Stop being an owner; doing it again does nothing."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            self.stall_path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def owner_alive(owner_id: str, run_dir: Path) -> bool:
    """Tell whether the process that called itself this still runs."""
    if "/" in owner_id or not owner_id:
        return False
    # A file that is not ours to look at is taken for that of a live process.
    return is_locked(run_dir / f"{owner_id}{_SUFFIX}", if_unreadable=True)


def blocked_by(owner_id: str, run_dir: Path) -> str | None:
    """Return the session that blocked a dead owner; "" if unknown, None if nothing did.

    An owner that was blocked by something else than a session is `-`.
    """
    for suffix in (_STALL, _REPORTED):
        with suppress(OSError):
            text = (run_dir / f"{owner_id}{suffix}").read_text("utf-8", "replace")
            if text:
                first = text.partition("\n")[0]
                return first.removeprefix("session ") if first.startswith("session ") else ""
    return None


def new_stalls(run_dir: Path) -> list[str]:
    """Return what ended blocked processes, each once, and forget those of long ago."""
    found = []
    for path in (*run_dir.glob(f"*{_STALL}"), *run_dir.glob(f"*{_REPORTED}")):
        with suppress(OSError):
            if owner_alive(path.stem, run_dir):
                continue
            stat = path.stat()
            if not stat.st_size or time.time() - stat.st_mtime > _KEEP_STALLS:
                path.unlink()
            elif path.suffix == _STALL:
                found.append(path.read_text("utf-8", "replace"))
                path.rename(path.with_suffix(_REPORTED))
    return found


def clean_up(run_dir: Path) -> int:
    """Remove the lock files of owners that died; return how many."""
    removed = 0
    for path in run_dir.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_size > 0 and not is_locked(path, if_unreadable=True):
                path.unlink()
                removed += 1
    return removed
