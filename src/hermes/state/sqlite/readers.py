"""A few read-only connections, used from worker threads, and one for quick reads.

Each read runs in one transaction and therefore sees one state of the ledger,
however many statements it takes. A read of a few rows by key takes some twenty
microseconds, a fifth of what a hop to a thread and back costs; such reads run
on the event loop. Readers never wait for writers; should the database be
locked all the same, a quick read goes to a thread like any other.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from functools import partial
from pathlib import Path
from typing import TypeVar

from hermes.domain.errors import StoreError
from hermes.state.sqlite.database import open_reader
from hermes.state.sqlite.errors import store_error
from hermes.state.sqlite.writer import Work

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_READERS = 4


class Readers:
    """A pool of connections that grows up to `MAX_READERS` when needed."""

    def __init__(self, path: Path, *, frozen: bool = False) -> None:
        self._path = path
        self._open = partial(open_reader, path, frozen=frozen)
        self._free: deque[sqlite3.Connection] = deque()
        self._seats = asyncio.Semaphore(MAX_READERS)
        self._quick: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, work: Work[T]) -> T:
        async with self._seats:
            return await asyncio.to_thread(self._run, work)

    async def quick(self, work: Work[T]) -> T:
        """Run a read of a few rows by key, on the event loop if the database is free."""
        try:
            if self._quick is None:
                self._quick = await asyncio.to_thread(self._open, 0.0)
            if not self._closed:
                return _in_transaction(self._quick, work)
        except sqlite3.Error:
            log.debug("a quick read goes to a thread", exc_info=True)
        return await self.run(work)

    async def close(self) -> None:
        self._closed = True
        if self._quick is not None:
            self._quick.close()
            self._quick = None
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
                return _in_transaction(connection, work)
            finally:
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
            return self._open()


def _in_transaction(connection: sqlite3.Connection, work: Work[T]) -> T:
    try:
        connection.execute("BEGIN")
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
