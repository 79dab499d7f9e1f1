"""`/api/jobs`: scheduled jobs over HTTP."""

from datetime import tzinfo
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.control.jobs.jobs import AgentJobs, ChangedJob, JobDraft, Reason
from hermes.control.jobs.schedules import stamp
from hermes.domain.jobs import DeliveryStatus, Instant, InstantStatus, Job
from hermes.domain.keys import Action
from hermes.entry.http.access import AgentQuery, chosen_agent
from hermes.entry.http.endpoint import Call, Operations

operation = Operations("Jobs", Action.JOBS, redacts=True)

MAX_PAGE = 200


class NewJob(JobDraft, frozen=True, kw_only=True):
    """A job that is to be made."""

    agent: str | None = None
    """Which agent does it; empty: the default agent."""
    model: str | None = None
    """Another name for `agent`."""


class PauseBody(Struct, frozen=True, kw_only=True):
    """Why a job rests."""

    reason: Reason | None = None


class HistoryQuery(AgentQuery, frozen=True, kw_only=True):
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

    object: Literal["list"] = "list"
    data: list[JobMoment]
    limit: int
    has_more: bool


def _moment(instant: Instant, zone: tzinfo) -> JobMoment:
    given = {name: getattr(instant, name) for name in JobMoment.__struct_fields__}
    for name in ("due_at", "started_at", "finished_at"):
        given[name] = None if given[name] is None else stamp(given[name], zone)
    return JobMoment(**given)


_JOBS = "/api/jobs"
_JOB = "/api/jobs/{job_id}"


async def _jobs(call: Call[Any, Any], name: str | None = None) -> AgentJobs:
    context = call.context
    agent = await chosen_agent(call, name)
    return AgentJobs(context.jobs(agent.agent_id), context.ledger, context.clock, context.zone)


@operation(f"GET {_JOBS}", 404, 503)
async def list_jobs(call: Call[None, AgentQuery]) -> JobList:
    """List jobs."""
    return JobList(jobs=await (await _jobs(call)).jobs())


@operation(f"POST {_JOBS}", 404, 503)
async def create_job(call: Call[NewJob, AgentQuery]) -> JobAnswer:
    """Make a job."""
    jobs = await _jobs(call, call.body.agent or call.body.model)
    return JobAnswer(job=await jobs.create(call.body))


@operation(f"GET {_JOB}", 404, 503)
async def get_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Read a job."""
    return JobAnswer(job=await (await _jobs(call)).job(call.path["job_id"]))


@operation(f"PATCH {_JOB}", 404, 409, 503)
async def change_job(call: Call[ChangedJob, AgentQuery]) -> JobAnswer:
    """Change a job."""
    return JobAnswer(job=await (await _jobs(call)).change(call.path["job_id"], call.body))


@operation(f"DELETE {_JOB}", 404, 503)
async def delete_job(call: Call[None, AgentQuery]) -> Removed:
    """Remove a job."""
    await (await _jobs(call)).remove(call.path["job_id"])
    return Removed()


@operation(f"POST {_JOB}/pause", 404, 409, 503)
async def pause_job(call: Call[PauseBody, AgentQuery]) -> JobAnswer:
    """Pause a job."""
    return JobAnswer(job=await (await _jobs(call)).pause(call.path["job_id"], call.body.reason))


@operation(f"POST {_JOB}/resume", 404, 409, 503)
async def resume_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Let a paused job go on."""
    return JobAnswer(job=await (await _jobs(call)).resume(call.path["job_id"]))


@operation(f"POST {_JOB}/run", 404, 409, 503)
async def run_job(call: Call[None, AgentQuery]) -> JobAnswer:
    """Make a job due now."""
    return JobAnswer(job=await (await _jobs(call)).run_now(call.path["job_id"]))


@operation(f"GET {_JOB}/history", 404, 503)
async def job_history(call: Call[None, HistoryQuery]) -> JobHistory:
    """See what became of a job's instants."""
    limit = call.query.limit
    found = await (await _jobs(call)).history(call.path["job_id"], limit=limit + 1)
    return JobHistory(
        data=[_moment(instant, call.context.zone) for instant in found[:limit]],
        limit=limit,
        has_more=len(found) > limit,
    )
