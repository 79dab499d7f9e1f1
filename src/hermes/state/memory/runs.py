"""Runs over HTTP and their event logs."""

from collections.abc import Sequence

import msgspec

from hermes.domain.events import TurnEvent
from hermes.domain.inbound import InboxState
from hermes.domain.runs import (
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunOutcome,
    RunQuery,
    RunState,
)
from hermes.state.memory.run_opening import RunOpeningPart
from hermes.state.memory.tables import End

__all__ = ["RunPart"]


class RunPart(RunOpeningPart):
    """Implements `RunStore`."""

    async def open_run(self, new: NewRun) -> OpenedRun:
        """Commit the run, its session and the admission of its message together."""
        return self._open_run(new)

    async def run(self, run_id: str) -> Run | None:
        """Return one run."""
        found = self._tables.runs.get(run_id)
        return None if found is None else self._joined(found)

    async def run_of_turn(self, turn_id: str) -> Run | None:
        """Return the run whose message a turn has taken; the first one if there are several."""
        joined = map(self._joined, self._tables.runs.values())
        found = [run for run in joined if run.turn_id == turn_id]
        return min(found, key=lambda run: run.inbox_id, default=None)

    async def runs(self, query: RunQuery) -> list[Run]:
        """List runs, newest first."""
        newest_first = list(reversed(self._tables.runs.values()))
        newest_first.sort(key=lambda run: -run.created_at)
        found = [self._joined(run) for run in newest_first if _fits(run, query)]
        end = None if query.limit is None else query.offset + query.limit
        return found[query.offset : end]

    async def run_under(self, key_id: str, idempotency_key: str) -> Run | None:
        """Return the run that an API key opened under an idempotency key."""
        found = self._under(key_id, idempotency_key)
        return None if found is None else self._joined(found)

    async def set_run_state(self, run_id: str, state: RunState, at: float) -> None:
        """Note where an open run stands; a run that has ended stays as it is."""
        if not state.open:
            raise ValueError(f"a run ends as {state.value} only with its outcome")
        run = self._open(run_id)
        if run is not None:
            self._change_run(run, at, state=state)

    async def log_run(self, run_id: str, events: Sequence[TurnEvent], at: float) -> int:
        """Append events; return the id of the last one in the log.

        A run that has ended, or is gone, gets no more events.
        """
        run = self._open(run_id)
        if run is not None:
            self._change_run(run, at)
            self._append(run_id, events, at)
        return self._tables.last_events.get(run_id, 0)

    async def run_log(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Return logged events with an id greater than `after`, in order."""
        log = self._tables.run_logs.get(run_id, [])
        return [event for event in log if event.seq > after][:limit]

    async def finish_run(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> bool:
        """Append the last events and record the outcome together; False if it had one."""
        if outcome.state.open:
            raise ValueError(f"a run cannot end as {outcome.state.value}")
        run = self._open(run_id)
        if run is None:
            return False
        end = self._end(self._joined(run))
        if end is not None:
            self._tables.run_ends[run_id] = end
        self._change_run(
            run,
            at,
            state=outcome.state,
            outcome=outcome,
            through_seq=None if end is None else end.seq,
        )
        self._append(run_id, events, at)
        entry = self._tables.inbox.get(run.inbox_id)
        if entry is not None and entry.state is InboxState.TAKEN:
            answered = msgspec.structs.replace(entry, state=InboxState.ANSWERED)
            self._tables.inbox[entry.id] = answered
        return True

    async def delete_run(self, run_id: str) -> bool:
        """Forget a run and its log; False if there is none. Its session stays."""
        return self._forget_run(run_id)

    async def prune_runs(self, *, logs_before: float, runs_before: float) -> int:
        """Drop old logs, and old runs altogether, of runs that have ended; count the latter."""
        ended = [run for run in self._tables.runs.values() if run.outcome is not None]
        old = [run.id for run in ended if run.updated_at < runs_before]
        for run_id in old:
            self._forget_run(run_id)
        for run in ended:
            if run.updated_at < logs_before:
                self._tables.run_logs.pop(run.id, None)
        return len(old)

    def _open(self, run_id: str) -> Run | None:
        found = self._tables.runs.get(run_id)
        return None if found is None or found.outcome is not None else found

    def _change_run(self, run: Run, at: float, **values: object) -> None:
        updated_at = max(run.updated_at, at)
        self._tables.runs[run.id] = msgspec.structs.replace(run, updated_at=updated_at, **values)

    def _append(self, run_id: str, events: Sequence[TurnEvent], at: float) -> None:
        first = self._tables.last_events.get(run_id, 0) + 1
        added = [LoggedEvent(seq=n, at=at, event=e) for n, e in enumerate(events, start=first)]
        self._tables.run_logs.setdefault(run_id, []).extend(added)
        self._tables.last_events[run_id] = first - 1 + len(added)

    def _end(self, run: Run) -> End | None:
        """Tell how far the history goes that a run leaves: to the end of its turn.

        Without a turn of its own (it was taken out of the queue) that is what
        was there before the turn that is running now.
        """
        if run.session_id not in self._tables.sessions:
            return None
        if run.turn_id in self._tables.turn_ends:
            return self._tables.turn_ends[run.turn_id]
        other = self._open_turn_of(run.session_id)
        if other is not None and other.id != run.turn_id:
            begun = [m for m in self._messages_of(run.session_id) if m.turn_id == other.id]
            if begun:
                return End(begun[0].seq - 1, min(m.id for m in begun) - 1)
        return self._end_of_session(run.session_id)


def _fits(run: Run, query: RunQuery) -> bool:
    return (
        query.key_id in (None, run.key_id)
        and query.agent_id in (None, run.agent_id)
        and query.session_id in (None, run.session_id)
        and (not query.kinds or run.kind in query.kinds)
        and (not query.states or run.state in query.states)
        and (query.updated_before is None or run.updated_at < query.updated_before)
    )
