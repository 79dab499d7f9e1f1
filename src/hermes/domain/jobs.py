"""Scheduled jobs.

A job is an entry in the agent's `cron/jobs.json`; the outcome of each due
instant is a row of the ledger, one per job and instant. Field names are those
of existing job files.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class ScheduleKind(StrEnum):
    ONCE = "once"
    INTERVAL = "interval"
    CRON = "cron"


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: ScheduleKind
    run_at: str | None = None
    """ISO 8601 with offset, for `once`."""
    minutes: int | None = None
    """For `interval`."""
    expr: str | None = None
    """For `cron`."""
    display: str = ""


class JobRepeat(Struct, frozen=True, kw_only=True):
    times: int | None = None
    """None for no limit."""
    completed: int = 0


class JobOrigin(Struct, frozen=True, kw_only=True):
    """The chat a job was made in."""

    platform: str
    chat_id: str
    chat_name: str | None = None
    thread_id: str | None = None


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"
    ERROR = "error"


class Job(Struct, frozen=True, kw_only=True):
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
    RUNNING = "running"
    RAN = "ran"
    FAILED = "failed"
    MISSED = "missed"
    """No process was running at the time, and afterwards it was too late."""
    SKIPPED = "skipped"
    """Deliberately not run, e.g. because the one before was still running."""


class DeliveryStatus(StrEnum):
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
