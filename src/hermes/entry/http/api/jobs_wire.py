"""What is sent to and from `/api/jobs`."""

from datetime import tzinfo
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.control.jobs.jobs import (
    MAX_DELIVER,
    MAX_NAME,
    MAX_PROMPT,
    MAX_REASON,
    MAX_SKILLS,
    MAX_TIMES,
    JobChange,
    JobDraft,
)
from hermes.control.jobs.schedules import MAX_LENGTH, stamp
from hermes.domain.jobs import DeliveryStatus, Instant, InstantStatus, Job

__all__ = [
    "AgentQuery",
    "ChangedJob",
    "HistoryQuery",
    "JobAnswer",
    "JobHistory",
    "JobList",
    "JobMoment",
    "NewJob",
    "PauseBody",
    "Removed",
    "moment_of",
]

MAX_PAGE = 200

Name = Annotated[str, Meta(max_length=MAX_NAME, examples=["Morning news"])]
Prompt = Annotated[str, Meta(max_length=MAX_PROMPT, examples=["Summarise the news of today."])]
When = Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH, examples=["every 2h"])]
Deliver = Annotated[str, Meta(min_length=1, max_length=MAX_DELIVER, examples=["telegram:12345"])]
Skill = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Skills = Annotated[list[Skill], Meta(max_length=MAX_SKILLS)]
Times = Annotated[int, Meta(ge=1, le=MAX_TIMES)]


class RepeatBody(Struct, frozen=True, kw_only=True):
    """How often a job runs."""

    times: Times | None = None
    """null: without end."""


Repeat = Times | RepeatBody | None


class NewJob(Struct, frozen=True, kw_only=True):
    """A job that is to be made."""

    schedule: When
    """`30m`, `every 2h`, five or six cron fields, or an ISO 8601 time."""
    prompt: Prompt = ""
    name: Name = ""
    """Empty: made from the prompt."""
    deliver: Deliver = "local"
    skills: Skills = []
    skill: Skill | None = None
    repeat: Repeat = None
    agent: str | None = None
    """Which agent does it; empty: the default agent."""
    model: str | None = None
    """Another name for `agent`."""

    def draft(self) -> JobDraft:
        """Return what the job book takes."""
        skills = tuple(self.skills) or ((self.skill,) if self.skill else ())
        return JobDraft(
            schedule=self.schedule,
            prompt=self.prompt,
            name=self.name,
            deliver=self.deliver,
            skills=skills,
            repeat=_times(self.repeat),
        )


class ChangedJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different; fields that are left out stay as they are."""

    name: Name | UnsetType = UNSET
    schedule: When | UnsetType = UNSET
    prompt: Prompt | UnsetType = UNSET
    deliver: Deliver | UnsetType = UNSET
    skills: Skills | UnsetType = UNSET
    skill: Skill | UnsetType | None = UNSET
    repeat: Times | RepeatBody | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET

    def change(self) -> JobChange:
        """Return what the job book takes."""
        skills: tuple[str, ...] | UnsetType = UNSET
        if self.skills is not UNSET:
            skills = tuple(self.skills)
        elif self.skill is not UNSET:
            skills = (self.skill,) if self.skill else ()
        return JobChange(
            name=self.name,
            schedule=self.schedule,
            prompt=self.prompt,
            deliver=self.deliver,
            skills=skills,
            repeat=UNSET if self.repeat is UNSET else _times(self.repeat),
            enabled=self.enabled,
        )


class PauseBody(Struct, frozen=True, kw_only=True):
    """Why a job rests."""

    reason: Annotated[str, Meta(max_length=MAX_REASON)] | None = None


class AgentQuery(Struct, frozen=True, kw_only=True):
    """Whose jobs; the default agent's if nothing is given."""

    agent: str | None = None
    model: str | None = None
    """Another name for `agent`."""


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """How much of the history."""

    agent: str | None = None
    model: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50


class JobAnswer(Struct, frozen=True, kw_only=True):
    """One job."""

    job: Job


class JobList(Struct, frozen=True, kw_only=True):
    """All jobs of an agent."""

    jobs: list[Job]


class Removed(Struct, frozen=True, kw_only=True):
    """The job is gone."""

    ok: bool = True


class JobMoment(Struct, frozen=True, kw_only=True):
    """What became of one due instant."""

    job_id: str
    due_at: str
    source: str
    status: InstantStatus
    delivery: DeliveryStatus
    """What became of the result; apart from whether the job itself went well."""
    started_at: str | None = None
    finished_at: str | None = None
    session_id: str | None = None
    error: str | None = None
    delivery_error: str | None = None
    detail: dict[str, Any] = {}


class JobHistory(Struct, frozen=True, kw_only=True):
    """What became of the instants of a job, newest first."""

    object: str = "list"
    data: list[JobMoment]
    limit: int
    has_more: bool


def moment_of(instant: Instant, zone: tzinfo) -> JobMoment:
    """Return an instant as clients see it."""
    return JobMoment(
        job_id=instant.job_id,
        due_at=stamp(instant.due_at, zone),
        source=instant.source,
        status=instant.status,
        delivery=instant.delivery,
        started_at=None if instant.started_at is None else stamp(instant.started_at, zone),
        finished_at=None if instant.finished_at is None else stamp(instant.finished_at, zone),
        session_id=instant.session_id,
        error=instant.error,
        delivery_error=instant.delivery_error,
        detail=instant.detail,
    )


def _times(repeat: int | RepeatBody | None) -> int | None:
    return repeat.times if isinstance(repeat, RepeatBody) else repeat
