"""Bring a database to the schema of this version.

Migrations are numbered SQL files, applied in order in one transaction;
`user_version` is the number of the last one. Before an older database that
holds anything is changed, a copy goes to the backups folder through SQLite's
backup API.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import StoreTooNew
from hermes.state.sqlite.connection import APPLICATION_ID

__all__ = ["Migration", "load_migrations", "migrate"]


class Migration(Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    version: int
    name: str
    text: str


def load_migrations() -> list[Migration]:
    """Read the numbered files, in order."""
    folder = files("hermes.state.sqlite") / "sql" / "migrations"
    found = [
        Migration(
            version=int(file.name.split("_", 1)[0]),
            name=file.name,
            text=file.read_text(encoding="utf-8"),
        )
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found, key=lambda migration: migration.version)


def migrate(
    connection: sqlite3.Connection, path: Path, backups: Path, migrations: Sequence[Migration]
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
