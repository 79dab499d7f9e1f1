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
from hermes.entry.http.endpoint import Answer, Call, JsonAnswer, operation

__all__ = []


TAG = "Jobs"
_JOBS = "/api/jobs"
_JOB = "/api/jobs/{job_id}"


def _book(call: Call[Any, Any], name: str | None = None) -> JobBook:
    parts = call.parts
    card = agent_named(parts, call.caller, name or call.query.agent or call.query.model)
    return JobBook(parts.jobs(card.agent_id), parts.ledger, parts.clock, parts.zone)


def _shown(call: Call[Any, Any], job: Job) -> JsonAnswer:
    return JsonAnswer(value=redacted(JobAnswer(job=job), call.parts.redact))


@operation(
    f"GET {_JOBS}",
    TAG,
    action=Action.JOBS,
    query=AgentQuery,
    answers={200: JobList},
    problems=(404, 503),
)
async def list_jobs(call: Call[None, AgentQuery]) -> Answer:
    """List jobs."""
    jobs = await _book(call).jobs()
    return JsonAnswer(value=redacted(JobList(jobs=jobs), call.parts.redact))


@operation(
    f"POST {_JOBS}",
    TAG,
    action=Action.JOBS,
    body=NewJob,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 503),
)
async def create_job(call: Call[NewJob, AgentQuery]) -> Answer:
    """Make a job."""
    book = _book(call, call.body.agent or call.body.model)
    return _shown(call, await book.create(call.body.draft()))


@operation(
    f"GET {_JOB}",
    TAG,
    action=Action.JOBS,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 503),
)
async def get_job(call: Call[None, AgentQuery]) -> Answer:
    """Read a job."""
    return _shown(call, await _book(call).job(call.path["job_id"]))


@operation(
    f"PATCH {_JOB}",
    TAG,
    action=Action.JOBS,
    body=ChangedJob,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 409, 503),
)
async def change_job(call: Call[ChangedJob, AgentQuery]) -> Answer:
    """Change a job."""
    return _shown(call, await _book(call).change(call.path["job_id"], call.body.change()))


@operation(
    f"DELETE {_JOB}",
    TAG,
    action=Action.JOBS,
    query=AgentQuery,
    answers={200: Removed},
    problems=(404, 503),
)
async def delete_job(call: Call[None, AgentQuery]) -> Answer:
    """Remove a job."""
    await _book(call).remove(call.path["job_id"])
    return JsonAnswer(value=Removed())


@operation(
    f"POST {_JOB}/pause",
    TAG,
    action=Action.JOBS,
    body=PauseBody,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 409, 503),
)
async def pause_job(call: Call[PauseBody, AgentQuery]) -> Answer:
    """Pause a job."""
    return _shown(call, await _book(call).pause(call.path["job_id"], call.body.reason))


@operation(
    f"POST {_JOB}/resume",
    TAG,
    action=Action.JOBS,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 409, 503),
)
async def resume_job(call: Call[None, AgentQuery]) -> Answer:
    """Let a paused job go on."""
    return _shown(call, await _book(call).resume(call.path["job_id"]))


@operation(
    f"POST {_JOB}/run",
    TAG,
    action=Action.JOBS,
    query=AgentQuery,
    answers={200: JobAnswer},
    problems=(404, 409, 503),
)
async def run_job(call: Call[None, AgentQuery]) -> Answer:
    """Make a job due now."""
    return _shown(call, await _book(call).run_now(call.path["job_id"]))


@operation(
    f"GET {_JOB}/history",
    TAG,
    action=Action.JOBS,
    query=HistoryQuery,
    answers={200: JobHistory},
    problems=(404, 503),
)
async def job_history(call: Call[None, HistoryQuery]) -> Answer:
    """See what became of a job's instants."""
    limit = call.query.limit
    found = await _book(call).history(call.path["job_id"], limit=limit + 1)
    history = JobHistory(
        data=[moment_of(instant, call.parts.zone) for instant in found[:limit]],
        limit=limit,
        has_more=len(found) > limit,
    )
    return JsonAnswer(value=redacted(history, call.parts.redact))
