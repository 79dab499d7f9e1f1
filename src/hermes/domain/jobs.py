"""Jobs: what is to be done at certain times.

A job is a line in the agent's `cron/jobs.json`; what became of each due
instant is a row of the ledger, one per job and instant. Field names are those
that people's job files already have.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class ScheduleKind(StrEnum):
    """How instants are found."""

    ONCE = "once"
    INTERVAL = "interval"
    CRON = "cron"


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job is due."""

    kind: ScheduleKind
    run_at: str | None = None
    """ISO 8601 with offset, for `once`."""
    minutes: int | None = None
    """For `interval`."""
    expr: str | None = None
    """For `cron`."""
    display: str = ""


class JobRepeat(Struct, frozen=True, kw_only=True):
    """How often it runs."""

    times: int | None = None
    """None for without end."""
    completed: int = 0


class JobOrigin(Struct, frozen=True, kw_only=True):
    """The chat a job was made in."""

    platform: str
    chat_id: str
    chat_name: str | None = None
    thread_id: str | None = None


class JobState(StrEnum):
    """Where a job stands."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"
    ERROR = "error"


class Job(Struct, frozen=True, kw_only=True):
    """Something to do at certain times."""

    id: str
    """12 hexadecimal digits."""
    name: str
    prompt: str = ""
    skills: tuple[str, ...] = ()
    skill: str | None = None
    """The first of `skills`, for readers of older files."""
    model: str | None = None
    provider: str | None = None
    provider_snapshot: str | None = None
    model_snapshot: str | None = None
    base_url: str | None = None
    script: str | None = None
    no_agent: bool = False
    context_from: tuple[str, ...] = ()
    schedule: Schedule
    schedule_display: str = ""
    repeat: JobRepeat = JobRepeat()
    enabled: bool = True
    state: JobState = JobState.SCHEDULED
    paused_at: str | None = None
    paused_reason: str | None = None
    created_at: str
    next_run_at: str | None = None
    last_run_at: str | None = None
    last_status: str | None = None
    last_error: str | None = None
    last_delivery_error: str | None = None
    deliver: str = "local"
    origin: JobOrigin | None = None
    enabled_toolsets: tuple[str, ...] | None = None
    workdir: str | None = None
    attach_to_session: bool | None = None


class InstantStatus(StrEnum):
    """What became of a due instant."""

    RUNNING = "running"
    RAN = "ran"
    FAILED = "failed"
    MISSED = "missed"
    """Nobody was there to run it, and it was too late afterwards."""
    SKIPPED = "skipped"
    """Deliberately not run, e.g. because the one before was still running."""


class DeliveryStatus(StrEnum):
    """What became of a result."""

    NONE = "none"
    """There was nothing to deliver, or nowhere to deliver it to."""
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Instant(Struct, frozen=True, kw_only=True):
    """One due instant of one job: exactly one row each."""

    job_id: str
    due_at: float
    source: str = "schedule"
    """`schedule` or `manual`."""
    status: InstantStatus = InstantStatus.RUNNING
    delivery: DeliveryStatus = DeliveryStatus.NONE
    claimed_by: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    session_id: str | None = None
    error: str | None = None
    delivery_error: str | None = None
    detail: dict[str, Any] = {}
