"""The live database: opened only here, and only through SQLite, and brought to our schema.

A plain `open()`/`close()` of the file by this process would cancel the POSIX
locks that SQLite holds on it and let two writers destroy it; looking at the
file is done with `stat` at most.

Nothing checkpoints by itself (`wal_autocheckpoint = 0`): SQLite before 3.51.3
can lose pages when one connection resets the write-ahead log while another
checkpoints, so the writer checkpoints under the write lock instead.

A `state.db` of the earlier Hermes is recognised without locks and side files
(`immutable`), is never opened for writing, and our ledger lives beside it.

Migrations are numbered SQL files, applied in order in one transaction; `user_version`
is the number of the last one. Before an older database that holds anything is changed,
a copy goes to the backups folder through SQLite's backup API.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.domain.errors import StoreError, StoreTooNew
from hermes.state.sqlite.errors import cannot_open, not_a_database, store_error

APPLICATION_ID = 0x48524D53
"""`HRMS` in the file header: this database is ours."""

IMPORTED = "imported"
"""Where the ledger keeps from which file of an earlier Hermes it was filled."""

LOG_BYTES = 8 * 1024 * 1024
"""The write-ahead log is no larger than this at rest, and little larger under load."""

BUSY_SECONDS = 10.0
"""How long another process may hold the write lock before we give up."""


def open_writer(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a connection that may write; the file is made if there is none."""
    return _open(path, "rwc", busy_seconds)


def open_reader(
    path: Path, busy_seconds: float = BUSY_SECONDS, *, frozen: bool = False
) -> sqlite3.Connection:
    """Open a connection that only reads; `frozen` without the side files that others would need."""
    return _open(path, "ro&immutable=1" if frozen else "ro", busy_seconds)


def is_frozen(path: Path) -> bool:
    """Tell whether a ledger of ours can be read from its file alone: its log is empty."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return False
    try:
        with closing(open_reader(path, frozen=True)) as connection:
            mark = connection.execute("PRAGMA application_id").fetchone()[0]
            return mark == APPLICATION_ID and _version(connection) == load_migrations()[-1].version
    except sqlite3.Error:
        return False


RESERVE_BYTES = 1 << 20
"""Kept beside the ledger, to be given up when the disk is full and something is to be deleted."""


def keep_reserve(path: Path) -> None:
    reserve = path.with_name(path.name + "-reserve")
    with suppress(OSError):
        if not reserve.exists() and _free_bytes(path) > 2 * RESERVE_BYTES:
            reserve.touch(mode=0o600)
            reserve.write_bytes(bytes(RESERVE_BYTES))


def free_reserve(path: Path) -> None:
    """Make room on a full disk for what deletes."""
    with suppress(OSError):
        if _free_bytes(path) < RESERVE_BYTES:
            path.with_name(path.name + "-reserve").unlink()


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize


def ledger_file(home: HermesHome) -> Path:
    """Return where the ledger is, or is to be made."""
    beside = home.ledger_beside
    return beside if beside.exists() or is_earlier(home.database) else home.database


def not_imported(home: HermesHome) -> str:
    """Say that conversations of an earlier Hermes are there; empty if none are."""
    if not is_earlier(home.database):
        return ""
    return (
        f"{home.database} belongs to an earlier Hermes and is left untouched; new conversations"
        f" go to {home.ledger_beside.name}. Bring the old ones over with: hermes import"
    )


def is_earlier(path: Path) -> bool:
    """Tell whether an earlier Hermes wrote a database, leaving no trace of having looked."""
    if not path.is_file():
        return False
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return False  # whoever opens it explains what is wrong
    if not tables:
        return _log_of_another(path)
    return application != APPLICATION_ID and (
        "schema_version" in tables or tables >= {"sessions", "messages"}
    )


def _log_of_another(path: Path) -> bool:
    """Tell whether the first pages, so far only in the write-ahead log, bear another mark."""
    try:
        with path.with_name(path.name + "-wal").open("rb") as file:
            log = file.read(1 << 20)
    except OSError:
        return False
    size = int.from_bytes(log[8:12], "big") + 24
    for at in range(32, len(log) - size + 1, size):
        if int.from_bytes(log[at : at + 4], "big") == 1:
            return int.from_bytes(log[at + 92 : at + 96], "big") != APPLICATION_ID
    return False


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
    # What a log is shortened to when it begins anew, after a checkpoint.
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")


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
        connection.create_function("hash_of", 1, hash_of, deterministic=True)
        connection.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # What a savepoint may undo is not for the disk, least of all in a file of its own.
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def _fold(text: str | None) -> str | None:
    return None if text is None else text.casefold()


def hash_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class SchemaStep(Struct, frozen=True):
    version: int
    text: str


def load_migrations() -> list[SchemaStep]:
    folder = files("hermes.state.sqlite") / "sql" / "migrations"
    found = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    steps = [SchemaStep(int(f.name.split("_", 1)[0]), f.read_text(encoding="utf-8")) for f in found]
    return sorted(steps, key=lambda step: step.version)


def migrate(
    connection: sqlite3.Connection, path: Path, backups: Path, migrations: Sequence[SchemaStep]
) -> None:
    """Apply what is missing; `StoreTooNew` if the database is ahead of us."""
    newest = migrations[-1].version
    current = _version(connection)
    _check_not_ahead(current, newest, path)
    if current == newest:
        return
    if current > 0:
        _back_up(connection, backups, path.stem, current)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while we waited for the lock.
        current = _version(connection)
        _check_not_ahead(current, newest, path)
        for migration in migrations:
            if migration.version > current:
                for statement in _statements(migration.text):
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_not_ahead(current: int, newest: int, path: Path) -> None:
    if current > newest:
        raise StoreTooNew(
            f"{path} has schema {current}; this Hermes knows schemas up to {newest}.",
            hint="Update Hermes, or put an older copy from backups/ in the file's place.",
        )


def _back_up(connection: sqlite3.Connection, backups: Path, stem: str, version: int) -> None:
    backups.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    target = backups / f"{stem}-schema{version}-{stamp}.db"
    number = 2
    while target.exists():
        target = backups / f"{stem}-schema{version}-{stamp}-{number}.db"
        number += 1
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
    target.chmod(0o600)


def _statements(text: str) -> Iterator[str]:
    """Split a script; `executescript` would commit the transaction around it."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
