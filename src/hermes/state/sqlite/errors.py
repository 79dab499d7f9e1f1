"""Errors of the ledger: what SQLite's mean for a person, and refusals that several verbs share."""

import shutil
import sqlite3
from pathlib import Path

from hermes.domain.errors import Conflict, NotFound, SessionBusy, StoreError

_PAGES = 65_536
"""Bytes that SQLite needs beside the ledger before it can write."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether somebody else holds the lock."""
    return _primary(error) in _BUSY


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    match _primary(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return _locked(path)
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_IOERR if _no_room(path):
            return _full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return cannot_open(path)
        case sqlite3.SQLITE_NOTADB:
            return not_a_database(path)
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(
                f"The ledger {path} is damaged ({error}).",
                hint="Stop Hermes, keep a copy of the file, then put the newest copy from "
                "backups/ in its place.",
            )
        case sqlite3.SQLITE_IOERR:
            return StoreError(
                f"The disk reported an error on {path} ({error}).",
                hint="Check the disk and its free space; nothing half-written is kept.",
            )
        case _:
            return StoreError(
                f"The ledger {path} could not be used ({error}).",
                hint="Try again; if it happens each time, please report it with this message.",
            )


def _full(path: Path) -> StoreError:
    return StoreError(
        f"The disk is full: nothing more can be written to {path}.",
        hint="Free some space, e.g. with `hermes sessions prune --older-than 90d`; everything"
        " recorded so far is safe.",
    )


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _PAGES
    except OSError:
        return False


def cannot_open(path: Path) -> StoreError:
    return StoreError(
        f"The ledger {path} cannot be opened for writing.",
        hint=f"Check that {path.parent} exists, belongs to you and is not read-only.",
    )


def not_a_database(path: Path) -> StoreError:
    return StoreError(
        f"{path} is not a SQLite database.",
        hint="Move the file aside, or put a copy from backups/ in its place.",
    )


def _locked(path: Path) -> StoreError:
    """Say who is likely to hold the write lock."""
    holders = lock_holders(path)
    who = f" by {', '.join(holders)}" if holders else " by another process"
    return StoreError(
        f"The ledger {path} is locked{who}.",
        hint="Wait for that process or stop it, then try again."
        if holders
        else f"Find it with `lsof {path}`, wait for it or stop it, then try again.",
    )


def lock_holders(path: Path, *, locks: Path = Path("/proc/locks")) -> list[str]:
    """Name the processes that hold SQLite's write lock, as far as the kernel tells."""
    try:
        # stat, not open: closing any descriptor of these files would drop SQLite's own locks.
        inode = path.with_name(path.name + "-shm").stat().st_ino
        lines = locks.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    pids = {pid for line in lines if (pid := _writer_pid(line, inode)) is not None}
    return [_process_name(pid) for pid in sorted(pids)]


_WRITE_LOCK_BYTE = 120
"""Where in the -shm file SQLite locks out other writers."""


def _writer_pid(line: str, inode: int) -> int | None:
    fields = line.split()
    if len(fields) < 8 or fields[3] != "WRITE" or not fields[5].endswith(f":{inode}"):
        return None
    first, last, pid = fields[6], fields[7], fields[4]
    if not (first.isdigit() and last.isdigit() and pid.isdigit()):
        return None
    return int(pid) if int(first) <= _WRITE_LOCK_BYTE <= int(last) else None


def _process_name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"{name} (process {pid})"


def _primary(error: sqlite3.Error) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else sqlite3.SQLITE_ERROR


# -- refusals ------------------------------------------------------------------


def unknown_session(session_id: str) -> NotFound:
    return NotFound(
        f"There is no session `{session_id}`.", hint="List the sessions with: hermes sessions list"
    )


def id_taken(what: str, taken: str) -> Conflict:
    return Conflict(f"The {what} `{taken}` exists already.", hint="Use a new id.")


def session_busy(session_id: str) -> SessionBusy:
    return SessionBusy(
        f"Session `{session_id}` is in the middle of a turn.",
        hint="Wait until it has ended, or interrupt it.",
    )
