"""How the live database is opened: only here, and only through SQLite.

A plain `open()`/`close()` of the file by this process would cancel the POSIX
locks that SQLite holds on it and let two writers destroy it; looking at the
file is done with `stat` at most.

Nothing checkpoints by itself (`wal_autocheckpoint = 0`): SQLite before 3.51.3
can lose pages when one connection resets the write-ahead log while another
checkpoints, so the writer checkpoints under the write lock instead.
"""

import sqlite3
from pathlib import Path

from hermes.domain.errors import StoreError
from hermes.state.sqlite.failures import cannot_open, not_a_database, store_error

__all__ = [
    "APPLICATION_ID",
    "BUSY_SECONDS",
    "check_ours",
    "open_reader",
    "open_writer",
    "switch_to_wal",
]

APPLICATION_ID = 0x48524D53
"""`HRMS` in the file header: this database is ours."""

BUSY_SECONDS = 10.0
"""How long another process may hold the write lock before we give up."""


def open_writer(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a connection that may write; the file is made if there is none."""
    return _open(path, "rwc", busy_seconds)


def open_reader(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    return _open(path, "ro", busy_seconds)


def check_ours(path: Path) -> None:
    """Refuse a database that something else has written, without touching it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if not path.is_file():
        raise cannot_open(path)
    try:
        connection = open_reader(path)
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    if size > 0 and pages == 0:
        # Too short to be a database: SQLite would take it for an empty one and overwrite it.
        raise not_a_database(path)
    if application == APPLICATION_ID or not tables:
        return
    origin = "an earlier Hermes" if "schema_version" in tables else "another program"
    raise StoreError(
        f"{path} was written by {origin} and is left untouched.",
        hint=f"Move it aside, for example: mv {path} {path}.old",
    )


def switch_to_wal(connection: sqlite3.Connection) -> None:
    """Make the database use a write-ahead log; persistent."""
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Can only be chosen before anything is written to the file.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA journal_size_limit = 67108864")


def _open(path: Path, mode: str, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("fold", 1, _fold, deterministic=True)
        connection.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _fold(text: str | None) -> str | None:
    return None if text is None else text.casefold()
