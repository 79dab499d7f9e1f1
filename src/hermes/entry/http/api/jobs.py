"""`/api/jobs`: scheduled jobs over HTTP."""

from typing import Any

from hermes.control.jobs.jobs import JobBook
from hermes.domain.jobs import Job
from hermes.domain.keys import Action
from hermes.entry.http.access import agent_named
from hermes.entry.http.api.jobs_wire import (
    AgentQuery,
    ChangedJob,
    HistoryQuery,
    JobAnswer,
    JobHistory,
    JobList,
    NewJob,
    PauseBody,
    Removed,
    moment_of,
)
from hermes.entry.http.context import redacted
from hermes.entry.http.endpoint import Answer, Call, Endpoint, JsonAnswer

__all__ = [
    "ENDPOINTS",
]


TAG = "Jobs"
_JOBS = "/api/jobs"
_JOB = "/api/jobs/{job_id}"


def _book(call: Call[Any, Any], name: str | None = None) -> JobBook:
    parts = call.parts
    card = agent_named(parts, call.caller, name or call.query.agent or call.query.model)
    return JobBook(parts.jobs(card.agent_id), parts.ledger, parts.clock, parts.zone)


def _shown(call: Call[Any, Any], job: Job) -> JsonAnswer:
    return JsonAnswer(value=redacted(JobAnswer(job=job), call.parts.redact))


async def list_jobs(call: Call[None, AgentQuery]) -> Answer:
    """List all jobs, also paused ones."""
    jobs = await _book(call).jobs()
    return JsonAnswer(value=redacted(JobList(jobs=jobs), call.parts.redact))


async def create_job(call: Call[NewJob, AgentQuery]) -> Answer:
    """Make a job."""
    book = _book(call, call.body.agent or call.body.model)
    return _shown(call, await book.create(call.body.draft()))


async def get_job(call: Call[None, AgentQuery]) -> Answer:
    """Return one job."""
    return _shown(call, await _book(call).job(call.path["job_id"]))


async def change_job(call: Call[ChangedJob, AgentQuery]) -> Answer:
    """Change a job."""
    return _shown(call, await _book(call).change(call.path["job_id"], call.body.change()))


async def delete_job(call: Call[None, AgentQuery]) -> Answer:
    """Remove a job."""
    await _book(call).remove(call.path["job_id"])
    return JsonAnswer(value=Removed())


async def pause_job(call: Call[PauseBody, AgentQuery]) -> Answer:
    """Let a job rest."""
    return _shown(call, await _book(call).pause(call.path["job_id"], call.body.reason))


async def resume_job(call: Call[None, AgentQuery]) -> Answer:
    """Let a job go on."""
    return _shown(call, await _book(call).resume(call.path["job_id"]))


async def run_job(call: Call[None, AgentQuery]) -> Answer:
    """Make a job due now."""
    return _shown(call, await _book(call).run_now(call.path["job_id"]))


async def job_history(call: Call[None, HistoryQuery]) -> Answer:
    """Return what became of the instants of a job."""
    limit = call.query.limit
    found = await _book(call).history(call.path["job_id"], limit=limit + 1)
    history = JobHistory(
        data=[moment_of(instant, call.parts.zone) for instant in found[:limit]],
        limit=limit,
        has_more=len(found) > limit,
    )
    return JsonAnswer(value=redacted(history, call.parts.redact))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="listJobs",
        method="GET",
        path=_JOBS,
        summary="List jobs",
        tag=TAG,
        handler=list_jobs,
        action=Action.JOBS,
        query=AgentQuery,
        answers={200: JobList},
        problems=(404, 503),
    ),
    Endpoint(
        name="createJob",
        method="POST",
        path=_JOBS,
        summary="Make a job",
        tag=TAG,
        handler=create_job,
        action=Action.JOBS,
        body=NewJob,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 503),
    ),
    Endpoint(
        name="getJob",
        method="GET",
        path=_JOB,
        summary="Read a job",
        tag=TAG,
        handler=get_job,
        action=Action.JOBS,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 503),
    ),
    Endpoint(
        name="changeJob",
        method="PATCH",
        path=_JOB,
        summary="Change a job",
        tag=TAG,
        handler=change_job,
        action=Action.JOBS,
        body=ChangedJob,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 409, 503),
    ),
    Endpoint(
        name="deleteJob",
        method="DELETE",
        path=_JOB,
        summary="Remove a job",
        tag=TAG,
        handler=delete_job,
        action=Action.JOBS,
        query=AgentQuery,
        answers={200: Removed},
        problems=(404, 503),
    ),
    Endpoint(
        name="pauseJob",
        method="POST",
        path=f"{_JOB}/pause",
        summary="Pause a job",
        tag=TAG,
        handler=pause_job,
        action=Action.JOBS,
        body=PauseBody,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 409, 503),
    ),
    Endpoint(
        name="resumeJob",
        method="POST",
        path=f"{_JOB}/resume",
        summary="Let a paused job go on",
        tag=TAG,
        handler=resume_job,
        action=Action.JOBS,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 409, 503),
    ),
    Endpoint(
        name="runJob",
        method="POST",
        path=f"{_JOB}/run",
        summary="Make a job due now",
        tag=TAG,
        handler=run_job,
        action=Action.JOBS,
        query=AgentQuery,
        answers={200: JobAnswer},
        problems=(404, 409, 503),
    ),
    Endpoint(
        name="jobHistory",
        method="GET",
        path=f"{_JOB}/history",
        summary="See what became of a job's instants",
        tag=TAG,
        handler=job_history,
        action=Action.JOBS,
        query=HistoryQuery,
        answers={200: JobHistory},
        problems=(404, 503),
    ),
)
