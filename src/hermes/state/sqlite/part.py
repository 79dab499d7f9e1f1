"""What the parts of the ledger share: one writer, the readers, small helpers."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hermes.state.sqlite.queries import sql
from hermes.state.sqlite.readers import Readers
from hermes.state.sqlite.writer import Work, Writer

__all__ = ["LedgerPart", "Parameters", "change", "one", "rows"]

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class LedgerPart:
    """A group of verbs over the shared connections."""

    def __init__(self, path: Path, writer: Writer, readers: Readers) -> None:
        self._path = path
        self._writer = writer
        self._readers = readers

    async def _write(self, work: Work[T]) -> T:
        return await self._writer.run(work)

    async def _read(self, work: Work[T]) -> T:
        return await self._readers.run(work)

    async def _quick(self, work: Work[T]) -> T:
        """Run a read of a few rows by key; see `Readers.quick`."""
        return await self._readers.quick(work)


def rows(
    connection: sqlite3.Connection, query: str, parameters: Parameters = ()
) -> list[sqlite3.Row]:
    """Run a named query to its end and return all rows."""
    return connection.execute(sql(query), parameters).fetchall()


def one(
    connection: sqlite3.Connection, query: str, parameters: Parameters = ()
) -> sqlite3.Row | None:
    """Run a named query to its end and return the first row, if any.

    To its end: a statement with RETURNING that is left open blocks the commit.
    """
    found = connection.execute(sql(query), parameters).fetchall()
    return found[0] if found else None


def change(connection: sqlite3.Connection, query: str, parameters: Parameters = ()) -> int:
    """Run a named query without results and return how many rows it changed."""
    return connection.execute(sql(query), parameters).rowcount
