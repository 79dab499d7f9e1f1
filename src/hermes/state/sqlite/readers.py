"""A few read-only connections, used from worker threads.

Each read runs in one transaction and therefore sees one state of the ledger,
however many statements it takes.
"""

import asyncio
import sqlite3
from collections import deque
from pathlib import Path
from typing import TypeVar

from hermes.domain.errors import StoreError
from hermes.state.sqlite.connection import open_reader
from hermes.state.sqlite.failures import store_error
from hermes.state.sqlite.writer import Work

__all__ = ["Readers"]

T = TypeVar("T")

MAX_READERS = 4


class Readers:
    """A pool of connections that grows up to `MAX_READERS` when needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: deque[sqlite3.Connection] = deque()
        self._seats = asyncio.Semaphore(MAX_READERS)
        self._closed = False

    async def run(self, work: Work[T]) -> T:
        """Run `work` on a connection of the pool."""
        async with self._seats:
            return await asyncio.to_thread(self._run, work)

    async def close(self) -> None:
        """Close the connections once their reads have ended."""
        self._closed = True
        for _ in range(MAX_READERS):
            await self._seats.acquire()
        while self._free:
            self._free.pop().close()
        for _ in range(MAX_READERS):
            self._seats.release()

    def _run(self, work: Work[T]) -> T:
        if self._closed:
            raise StoreError("The ledger is closed.", hint="Start Hermes again.")
        try:
            connection = self._take()
            try:
                connection.execute("BEGIN")
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            # The caller was cancelled and the pool closed while this read went on.
            connection.close()
        else:
            self._free.append(connection)

    def _take(self) -> sqlite3.Connection:
        try:
            return self._free.pop()
        except IndexError:
            return open_reader(self._path)
