"""The ledger in one SQLite file: the parts put together, opened and closed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import msgspec

from hermes.config.paths import HermesHome
from hermes.domain.errors import StoreError
from hermes.domain.ports.ledger import Ledger, LedgerStats
from hermes.state.sqlite.base import change, many, one, row_of
from hermes.state.sqlite.database import (
    BUSY_SECONDS,
    check_ours,
    free_reserve,
    is_frozen,
    keep_reserve,
    ledger_file,
    load_migrations,
    migrate,
    open_writer,
    switch_to_wal,
)
from hermes.state.sqlite.delivery import InboxPart, OutboxPart
from hermes.state.sqlite.doors import HookPart, InstantPart, KeyPart
from hermes.state.sqlite.errors import store_error
from hermes.state.sqlite.messages import MessagePart
from hermes.state.sqlite.readers import Readers
from hermes.state.sqlite.rows import dump
from hermes.state.sqlite.runs import RunPart
from hermes.state.sqlite.search import SearchPart, some_upkeep
from hermes.state.sqlite.sessions import SessionPart
from hermes.state.sqlite.turns import ApprovalPart, TurnPart, UsagePart
from hermes.state.sqlite.writer import Work, Writer

T = TypeVar("T")


class SqliteLedger(
    SessionPart,
    MessagePart,
    SearchPart,
    InboxPart,
    TurnPart,
    OutboxPart,
    ApprovalPart,
    UsagePart,
    RunPart,
    KeyPart,
    InstantPart,
    HookPart,
):
    @classmethod
    async def open(cls, path: Path, *, backups: Path, busy_seconds: float = BUSY_SECONDS) -> Self:
        """Open the ledger, making or migrating the database where needed."""
        connections = await asyncio.to_thread(_prepare, path, backups, busy_seconds)
        writer = Writer(*connections, path, some_upkeep, busy_seconds=busy_seconds)
        return cls(writer, Readers(path))

    async def keep(self, name: str, value: Any) -> None:
        if value is None:
            await self._write(lambda db: change(db, "ledger.forget", (name,)))
            return
        text = dump(value)
        await self._write(lambda db: change(db, "ledger.keep", (name, text)))

    async def kept(self, name: str) -> Any:
        row = await self._quick(lambda db: one(db, "ledger.kept", (name,)))
        return None if row is None else msgspec.json.decode(row["value"])

    async def stats(self) -> LedgerStats:
        def work(db: sqlite3.Connection) -> LedgerStats:
            counts = row_of(db, "ledger.stats")
            by_source = many(db, "ledger.by_source")
            return LedgerStats(
                by_source={row["source"]: row["sessions"] for row in by_source}, **dict(counts)
            )

        return await self._read(work)

    async def close(self) -> None:
        # Readers first: the last db to go folds the log into the database.
        await self._readers.close()
        await self._writer.close()


def _prepare(
    path: Path, backups: Path, busy_seconds: float
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Check, open and migrate; return the writer's two connections."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The folder {path.parent} cannot be made ({error.strerror}).",
            hint="Check its permissions, or set HERMES_HOME to a folder of yours.",
        ) from error
    check_ours(path)
    opened: list[sqlite3.Connection] = []
    try:
        opened.append(open_writer(path, busy_seconds=busy_seconds))
        path.chmod(0o600)
        switch_to_wal(opened[0])
        migrate(opened[0], path, backups, load_migrations())
        opened.append(open_writer(path, busy_seconds=busy_seconds))
    except BaseException as error:
        for db in opened:
            db.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from error
        raise
    keep_reserve(path)
    return opened[0], opened[1]


class _NoWriter(Writer):
    """Where nothing can be written: raises what opening did."""

    def __init__(self, error: StoreError) -> None:
        self._error = error

    async def run(self, work: Work[T]) -> T:  # noqa: ARG002
        raise self._error

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def open_ledger(home: HermesHome) -> AsyncIterator[Ledger]:
    async with opened(ledger_file(home), home.backups_dir) as ledger:
        yield ledger


@asynccontextmanager
async def existing_ledger(home: HermesHome, *, deletes: bool = False) -> AsyncIterator[Ledger]:
    """Open the ledger of a home, or an empty one elsewhere if it has none.

    For commands that only look: they leave no database behind, and a full disk does not
    stop them. Those that delete get the room that is kept for it.
    """
    path = ledger_file(home)
    if path.exists():
        if deletes:
            await asyncio.to_thread(free_reserve, path)
        async with opened(path, home.backups_dir, may_freeze=not deletes) as ledger:
            yield ledger
        return
    with TemporaryDirectory(prefix="hermes-") as folder:
        async with opened(Path(folder) / "state.db", Path(folder)) as ledger:
            yield ledger


@asynccontextmanager
async def opened(
    path: Path, backups: Path, *, may_freeze: bool = False
) -> AsyncIterator[SqliteLedger]:
    try:
        ledger = await SqliteLedger.open(path, backups=backups)
    except StoreError as error:
        if not (may_freeze and await asyncio.to_thread(is_frozen, path)):
            raise
        ledger = SqliteLedger(_NoWriter(error), Readers(path, frozen=True))
    try:
        yield ledger
    finally:
        await ledger.close()
