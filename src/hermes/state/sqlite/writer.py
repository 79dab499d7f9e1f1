"""The one thread that writes, with group commit.

Callers hand in transaction functions. The thread takes everything that has
queued up, runs it in one transaction, each function inside a savepoint of its
own, commits once and then answers all callers with one wake-up of their event
loop. While it waits for the disk the next batch queues up, so throughput grows
with the number of callers although every commit is synced.

What was handed in is carried out even if the caller is cancelled meanwhile.
"""

import asyncio
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from hermes.domain.errors import StoreError
from hermes.state.sqlite.database import LOG_BYTES
from hermes.state.sqlite.errors import is_busy, store_error

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_log = logging.getLogger(__name__)

MAX_BATCH = 512
ANSWERED_AT_ONCE = 2
IDLE_SECONDS = 0.25
CHECKPOINT_CHANGES = 4000
CHECKPOINT_BYTES = 1024 * 1024
"""How far the log may grow beyond `LOG_BYTES`: what is written over is synced sooner than what
makes a file longer, so most of it is left in place."""


class _Job(Struct):
    """One transaction function and the caller who waits for it."""

    work: Work[Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Answer the caller; runs in the caller's event loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        checkpointer: sqlite3.Connection,
        path: Path,
        idle_work: Work[bool],
        *,
        busy_seconds: float,
    ) -> None:
        """Take over both connections.

        `idle_work` is called in a transaction of its own when nothing waits;
        it returns True while there is more of it to do. `busy_seconds` is how
        long another process may hold the write lock before callers are told.
        """
        self._connection = connection
        self._checkpointer = checkpointer
        self._path = path
        self._wal = f"{path}-wal"
        self._idle_work = idle_work
        self._busy_seconds = busy_seconds
        # SQLite's own waiting backs off to 100 ms and starves beside a busy process.
        connection.execute("PRAGMA busy_timeout = 0")
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closing = False
        self._changes_at_checkpoint = 0
        self._bytes_at_checkpoint = 0
        self._thread = threading.Thread(target=self._main, name="hermes-ledger", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Run `work` in a transaction; when this returns, it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._gate:
            if self._closing:
                raise StoreError("The ledger is closed.", hint="Start Hermes again.")
            self._jobs.put(_Job(work, future, loop))
        return await future

    async def close(self) -> None:
        """Finish what was handed in, then close the connections."""
        with self._gate:
            if not self._closing:
                self._closing = True
                self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        idle_left = False
        while True:
            batch, closing = self._next_batch(IDLE_SECONDS if idle_left else None)
            if batch:
                self._commit(batch)
                _answer(batch)
                self._maybe_checkpoint()
                idle_left = True
            elif not closing:
                idle_left = self._work_idly()
            if closing:
                break
        for connection in (self._checkpointer, self._connection):
            with suppress(sqlite3.Error):
                connection.close()

    def _next_batch(self, patience: float | None) -> tuple[list[_Job], bool]:
        """Wait for work; return it and whether it is the last."""
        try:
            job = self._jobs.get(timeout=patience)
        except Empty:
            return [], False
        batch: list[_Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: list[_Job]) -> None:
        connection = self._connection
        try:
            self._begin()
            if len(batch) == 1:
                self._run_alone(batch[0])
            else:
                for job in batch:
                    self._run_one(job)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            failure = store_error(error, self._path)
            for job in batch:
                job.error = StoreError(failure.message, hint=failure.hint)

    def _begin(self) -> None:
        """Take the write lock, waiting for other processes within the bound."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.0005, 0.003))  # noqa: S311 - jitter
            else:
                return

    def _run_alone(self, job: _Job) -> None:
        """Run the only job of a batch: it needs no savepoint, for which SQLite copies each page."""
        try:
            job.result = job.work(self._connection)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
            self._fail(job, error)
            self._connection.execute("ROLLBACK")

    def _run_one(self, job: _Job) -> None:
        connection = self._connection
        connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
            self._fail(job, error)
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _fail(self, job: _Job, error: Exception) -> None:
        # A full disk makes SQLite roll the entire batch back, not just what the job did.
        if not self._connection.in_transaction:
            raise _lost(error) from error
        job.error = store_error(error, self._path) if isinstance(error, sqlite3.Error) else error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _work_idly(self) -> bool:
        """Do a bounded piece of deferred work; return whether some is left."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            more = self._idle_work(self._connection)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if is_busy(error):
                return True
            _log.warning("deferred ledger work failed: %s", error)
            return False
        self._maybe_checkpoint()
        if not more and self._log_bytes() > LOG_BYTES:
            return self._empty_log()
        return more

    def _maybe_checkpoint(self) -> None:
        """Move the log into the database when it has grown enough.

        The write lock is held meanwhile: no other process can then reset the
        log under the checkpoint. A log that was moved begins anew with the next commit, which
        shortens its file to `LOG_BYTES`; below that the size does not tell how much is in it.
        """
        changes = self._connection.total_changes
        size = self._log_bytes()
        self._bytes_at_checkpoint = min(self._bytes_at_checkpoint, size)
        if (
            changes - self._changes_at_checkpoint < CHECKPOINT_CHANGES
            and size < max(LOG_BYTES, self._bytes_at_checkpoint) + CHECKPOINT_BYTES
        ):
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if is_busy(error):
                return
            _log.warning("checkpoint of the ledger failed: %s", error)
        self._roll_back()
        self._changes_at_checkpoint = changes
        self._bytes_at_checkpoint = size

    def _empty_log(self) -> bool:
        """Give the space of a large log back, now that nothing happens; True: try again later.

        This takes the write lock itself, and waits for nobody.
        """
        try:
            row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if not is_busy(error):
                _log.warning("checkpoint of the ledger failed: %s", error)
            return is_busy(error)
        return bool(row[0])

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size  # noqa: PTH116 - after each commit, so it counts
        except OSError:
            return 0


def _lost(error: Exception) -> sqlite3.Error:
    if isinstance(error, sqlite3.Error):
        return error
    return sqlite3.OperationalError(f"the transaction ended early: {error}")


def _answer(batch: list[_Job]) -> None:
    """Wake each waiting event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        # A loop that is closed has no caller left to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, loop, jobs)


def _settle(loop: asyncio.AbstractEventLoop, jobs: list[_Job]) -> None:
    """Answer a few callers; after a large commit everybody else gets a turn between them."""
    for job in jobs[:ANSWERED_AT_ONCE]:
        job.settle()
    if len(jobs) > ANSWERED_AT_ONCE:
        loop.call_soon(_settle, loop, jobs[ANSWERED_AT_ONCE:])
