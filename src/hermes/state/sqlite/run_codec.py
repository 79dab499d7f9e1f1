"""Rows of runs and their logs to values of the domain."""

import sqlite3

import msgspec

from hermes.domain.events import TurnEvent
from hermes.domain.runs import LoggedEvent, Run, RunKind, RunOutcome, RunState
from hermes.state.sqlite import codec

__all__ = ["read_event", "read_run"]

_outcome = msgspec.json.Decoder(RunOutcome)
_event: msgspec.json.Decoder[TurnEvent] = msgspec.json.Decoder(TurnEvent)


def read_run(row: sqlite3.Row) -> Run:
    """Read a row of `run_rows`."""
    return Run(
        id=row["id"],
        kind=RunKind(row["kind"]),
        key_id=row["key_id"],
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        inbox_id=row["inbox_id"],
        turn_id=row["turn_id"],
        state=RunState(row["state"]),
        request=codec.load_any(row["request"]),
        idempotency_key=row["idempotency_key"],
        logged=bool(row["logged"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        outcome=None if row["outcome"] is None else _outcome.decode(row["outcome"]),
        through_seq=row["through_seq"],
        previous_id=row["previous_id"],
        branched=bool(row["branched"]),
    )


def read_event(row: sqlite3.Row) -> LoggedEvent:
    """Read a row of `run_events`."""
    return LoggedEvent(seq=row["seq"], at=row["at"], event=_event.decode(row["event"]))
