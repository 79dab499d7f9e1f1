"""`/api/jobs`: scheduled jobs over HTTP."""

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
    AgentJobs,
    JobChange,
    JobDraft,
)
from hermes.control.jobs.schedules import MAX_LENGTH, stamp
from hermes.domain.jobs import DeliveryStatus, Instant, InstantStatus, Job
from hermes.domain.keys import Action
from hermes.entry.http.access import require_agent
from hermes.entry.http.endpoint import Call, Operations

operation = Operations("Jobs", Action.JOBS, redacts=True)

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
        """Return the draft that the rules check."""
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
        """Return the draft that the rules check."""
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


_JOBS = "/api/jobs"
_JOB = "/api/jobs/{job_id}"


def _book(call: Call[Any, Any], name: str | None = None) -> AgentJobs:
    context = call.context
    agent = require_agent(call, name or call.query.agent or call.query.model)
    return AgentJobs(context.jobs(agent.agent_id), context.ledger, context.clock, context.zone)


@operation(f"GET {_JOBS}", 404, 503)
async def list_jobs(call: Call[None, AgentQuery]) -> JobList:
    """List jobs."""
    return JobList(jobs=await _book(call).jobs())


@operation(f"POST {_JOBS}", 404, 503)
async def create_job(call: Call[NewJob, AgentQuery]) -> JobAnswer:
    """Make a job."""
    book = _book(call, call.body.agent or call.body.model)
    return JobAnswer(job=await book.create(call.body.draft()))


@operation(f"GET {_JOB}", 404, 503)
async def get_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Read a job."""
    return JobAnswer(job=await _book(call).job(call.path["job_id"]))


@operation(f"PATCH {_JOB}", 404, 409, 503)
async def change_job(call: Call[ChangedJob, AgentQuery]) -> JobAnswer:
    """Change a job."""
    return JobAnswer(job=await _book(call).change(call.path["job_id"], call.body.change()))


@operation(f"DELETE {_JOB}", 404, 503)
async def delete_job(call: Call[None, AgentQuery]) -> Removed:
    """Remove a job."""
    await _book(call).remove(call.path["job_id"])
    return Removed()


@operation(f"POST {_JOB}/pause", 404, 409, 503)
async def pause_job(call: Call[PauseBody, AgentQuery]) -> JobAnswer:
    """Pause a job."""
    return JobAnswer(job=await _book(call).pause(call.path["job_id"], call.body.reason))


@operation(f"POST {_JOB}/resume", 404, 409, 503)
async def resume_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Let a paused job go on."""
    return JobAnswer(job=await _book(call).resume(call.path["job_id"]))


@operation(f"POST {_JOB}/run", 404, 409, 503)
async def run_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Make a job due now."""
    return JobAnswer(job=await _book(call).run_now(call.path["job_id"]))


@operation(f"GET {_JOB}/history", 404, 503)
async def job_history(call: Call[None, HistoryQuery]) -> JobHistory:
    """See what became of a job's instants."""
    limit = call.query.limit
    found = await _book(call).history(call.path["job_id"], limit=limit + 1)
    return JobHistory(
        data=[moment_of(instant, call.context.zone) for instant in found[:limit]],
        limit=limit,
        has_more=len(found) > limit,
    )
