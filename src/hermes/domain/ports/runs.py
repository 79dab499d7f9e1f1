"""Runs over HTTP and their event logs, as the ledger keeps them."""

from collections.abc import Sequence
from typing import Protocol

from hermes.domain.events import TurnEvent
from hermes.domain.runs import (
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunOutcome,
    RunQuery,
    RunState,
)

__all__ = ["RunStore"]


class RunStore(Protocol):
    """Requests that were accepted."""

    async def open_run(self, new: NewRun) -> OpenedRun:
        """Commit the run, its session and the admission of its message together.

        An idempotency key that the same API key used before finds that run
        (`duplicate`); `Conflict` if its fingerprint is another one. `NotFound`
        for a session or an earlier run that is not there.
        """
        ...

    async def run(self, run_id: str) -> Run | None:
        """Return one run."""
        ...

    async def run_of_turn(self, turn_id: str) -> Run | None:
        """Return the run whose message a turn has taken."""
        ...

    async def runs(self, query: RunQuery) -> list[Run]:
        """List runs, newest first."""
        ...

    async def run_under(self, key_id: str, idempotency_key: str) -> Run | None:
        """Return the run that an API key opened under an idempotency key."""
        ...

    async def set_run_state(self, run_id: str, state: RunState, at: float) -> None:
        """Note where an open run stands; a run that has ended stays as it is."""
        ...

    async def log_run(self, run_id: str, events: Sequence[TurnEvent], at: float) -> int:
        """Append events; return the id of the last one in the log."""
        ...

    async def run_log(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Return logged events with an id greater than `after`, in order."""
        ...

    async def finish_run(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> bool:
        """Append the last events and record the outcome together; False if it had one.

        The message counts as answered from then on.
        """
        ...

    async def delete_run(self, run_id: str) -> bool:
        """Forget a run and its log; False if there is none. Its session stays."""
        ...

    async def prune_runs(self, *, logs_before: float, runs_before: float) -> int:
        """Drop old logs, and old runs altogether, of runs that have ended."""
        ...

    async def handed_call(self, call_id: str) -> str | None:
        """Return the session in which this call waits for its client's result."""
        ...
