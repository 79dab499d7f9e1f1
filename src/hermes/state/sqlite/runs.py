"""Runs over HTTP and their event logs."""

import sqlite3
from collections.abc import Sequence

import msgspec

from hermes.domain.events import TurnEvent
from hermes.domain.runs import (
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunOutcome,
    RunQuery,
)
from hermes.state.sqlite import codec
from hermes.state.sqlite.handed import waiting_session
from hermes.state.sqlite.part import LedgerPart, Parameters, change, one, rows
from hermes.state.sqlite.queries import sql
from hermes.state.sqlite.run_codec import read_event, read_run
from hermes.state.sqlite.run_opening import RunOpening

__all__ = ["RunPart"]

AT_ONCE = 200
"""Runs that are pruned: other writers get their turn between two batches."""


class RunPart(LedgerPart):
    """Implements `RunStore`."""

    async def open_run(self, new: NewRun) -> OpenedRun:
        """Commit the run, its session and the admission of its message together."""
        return await self._write(RunOpening(new))

    async def run(self, run_id: str) -> Run | None:
        """Return one run."""
        return await self._run("runs.get", (run_id,))

    async def runs(self, query: RunQuery) -> list[Run]:
        """List runs, newest first."""
        values = msgspec.structs.asdict(query)
        values["kinds"] = codec.dump(query.kinds)
        values["states"] = codec.dump(query.states)
        values["limit"] = -1 if query.limit is None else query.limit
        name = _listing(query)
        return await self._read(lambda c: [read_run(row) for row in rows(c, name, values)])

    async def run_under(self, key_id: str, idempotency_key: str) -> Run | None:
        """Return the run that an API key opened under an idempotency key."""
        return await self._run("runs.under", (key_id, idempotency_key))

    async def log_run(self, run_id: str, events: Sequence[TurnEvent], at: float) -> int:
        """Append events; return the id of the last one in the log.

        A run that has ended, or is gone, gets no more events.
        """
        texts = [codec.dump(event) for event in events]

        def work(connection: sqlite3.Connection) -> int:
            values = {"id": run_id, "events": len(texts), "at": at}
            row = one(connection, "runs.count_events", values)
            if row is not None:
                _append(connection, run_id, row["last_event"], texts, at)
                return int(row["last_event"])
            row = one(connection, "runs.last_event", (run_id,))
            return 0 if row is None else int(row["last_event"])

        return await self._write(work)

    async def run_log(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Return logged events with an id greater than `after`, in order."""
        found = await self._read(lambda c: rows(c, "runs.log", (run_id, after, limit)))
        return [read_event(row) for row in found]

    async def finish_run(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> bool:
        """Append the last events and record the outcome together; False if it had one."""
        if outcome.state.open:
            raise ValueError(f"a run cannot end as {outcome.state.value}")
        texts = [codec.dump(event) for event in events]
        values = {
            "id": run_id,
            "state": outcome.state.value,
            "outcome": codec.dump(outcome),
            "events": len(texts),
            "at": at,
        }

        def work(connection: sqlite3.Connection) -> bool:
            end = one(connection, "runs.end", (run_id,))
            if end is None:
                return False
            row = one(connection, "runs.finish", values | _through(connection, end))
            assert row is not None
            _append(connection, run_id, row["last_event"], texts, at)
            change(connection, "runs.mark_answered", (run_id,))
            return True

        return await self._write(work)

    async def delete_run(self, run_id: str) -> bool:
        """Forget a run and its log; False if there is none. Its session stays."""
        return await self._write(lambda c: change(c, "runs.delete", (run_id,)) > 0)

    async def prune_runs(self, *, logs_before: float, runs_before: float) -> int:
        """Drop old logs, and old runs altogether, of runs that have ended; count the latter."""
        pruned = 0
        while gone := await self._write(lambda c: change(c, "runs.prune", (runs_before, AT_ONCE))):
            pruned += gone
        while await self._write(lambda connection: _drop_logs(connection, logs_before)):
            pass
        return pruned

    async def handed_call(self, call_id: str) -> str | None:
        """Return the session in which this call waits for its client's result."""
        return await self._quick(lambda connection: waiting_session(connection, call_id))

    async def _run(self, query: str, parameters: Parameters) -> Run | None:
        row = await self._quick(lambda connection: one(connection, query, parameters))
        return None if row is None else read_run(row)


def _listing(query: RunQuery) -> str:
    """Name the query that looks at the fewest rows."""
    if query.session_id is not None:
        return "runs.matching_in_session"
    only_open = bool(query.states) and all(state.open for state in query.states)
    return "runs.matching_open" if only_open else "runs.matching"


def _append(
    connection: sqlite3.Connection, run_id: str, last: int, texts: Sequence[str], at: float
) -> None:
    first = last - len(texts) + 1
    numbered = [(run_id, seq, at, text) for seq, text in enumerate(texts, start=first)]
    connection.executemany(sql("runs.insert_event"), numbered)


def _drop_logs(connection: sqlite3.Connection, before: float) -> int:
    """Forget the logs of some runs; return of how many."""
    old = rows(connection, "runs.old_logs", (before, AT_ONCE))
    for row in old:
        change(connection, "runs.drop_log", (row["id"],))
        change(connection, "runs.note_no_log", (row["id"],))
    return len(old)


def _through(connection: sqlite3.Connection, end: sqlite3.Row) -> dict[str, int | None]:
    """Tell how far the history goes that a run leaves: to the end of its turn.

    Without a turn of its own (it was taken out of the queue) that is what was
    there before the turn that is running now.
    """
    if end["next_seq"] is None:
        return {"through_seq": None, "through_id": None}
    if end["through_seq"] is not None:
        return {"through_seq": end["through_seq"], "through_id": end["through_id"]}
    if end["open_turn"] not in (None, end["turn_id"]):
        first = one(connection, "runs.first_of_turn", (end["session_id"], end["open_turn"]))
        if first is not None and first["seq"] is not None:
            return {"through_seq": first["seq"] - 1, "through_id": first["id"] - 1}
    return {"through_seq": end["next_seq"] - 1, "through_id": end["newest"]}
