"""Jobs of an agent: the rules by which they are made and changed.

    scheduled <-> paused        scheduled -> completed | error

A paused job is not enabled and has no next instant; resuming counts it from
now. Everything is checked before it is written: a schedule that never
comes, a delivery that has nowhere to go.
"""

import re
import secrets
from collections.abc import Sequence
from datetime import tzinfo
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hermes.control.jobs.schedules import MAX_LENGTH, next_instant, parse_schedule, stamp
from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.jobs import (
    Instant,
    Job,
    JobOrigin,
    JobRepeat,
    JobState,
    Schedule,
    ScheduleKind,
)
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.files import JobStore
from hermes.domain.ports.ledger import InstantStore

_SHORT_NAME = 50
_PLACES = ("origin", "local", "all")
_TARGET = re.compile(r"[a-z][a-z0-9_-]{0,40}(:[^\s,:][^\s,]*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

Name = Annotated[str, Meta(max_length=200, examples=["Morning news"])]
Prompt = Annotated[str, Meta(max_length=5000, examples=["Summarise the news of today."])]
When = Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH, examples=["every 2h"])]
Deliver = Annotated[str, Meta(min_length=1, max_length=1000, examples=["telegram:12345"])]
Skill = Annotated[str, Meta(min_length=1, max_length=200)]
Skills = Annotated[tuple[Skill, ...], Meta(max_length=50)]
Times = Annotated[int, Meta(ge=1, le=1_000_000)]
Reason = Annotated[str, Meta(max_length=500)]


class RepeatBody(Struct, frozen=True, kw_only=True):
    """How often a job runs."""

    times: Times | None = None
    """null: without end."""


class JobDraft(Struct, frozen=True, kw_only=True):
    schedule: When
    """`30m`, `every 2h`, five or six cron fields, or an ISO 8601 time."""
    prompt: Prompt = ""
    name: Name = ""
    """Empty: made from the prompt."""
    deliver: Deliver = "local"
    skills: Skills = ()
    skill: Skill | None = None
    repeat: Times | RepeatBody | None = None


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


class AgentJobs:
    def __init__(self, store: JobStore, instants: InstantStore, clock: Clock, zone: tzinfo) -> None:
        self._store = store
        self._instants = instants
        self._clock = clock
        self._zone = zone

    async def jobs(self) -> list[Job]:
        return await self._store.jobs()

    async def job(self, job_id: str) -> Job:
        job = await self._store.job(job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id}.")
        return job

    async def create(self, draft: JobDraft) -> Job:
        now = self._clock.now()
        prompt = _prompt(draft.prompt, None)
        schedule = parse_schedule(draft.schedule, now, self._zone)
        skills = _skills(draft.skills, draft.skill)
        return await self._store.add_job(
            Job(
                id=secrets.token_hex(6),
                name=_name(draft.name or prompt[:_SHORT_NAME]),
                prompt=prompt,
                skills=skills,
                skill=next(iter(skills), None),
                schedule=schedule,
                schedule_display=schedule.display,
                repeat=JobRepeat(times=_times(draft.repeat)),
                created_at=stamp(now, self._zone),
                next_run_at=self._first(schedule, now),
                deliver=_deliver(draft.deliver, None),
            )
        )

    async def change(self, job_id: str, change: ChangedJob) -> Job:
        """Change a job; all of it or nothing."""
        return await self._store.change_job(job_id, lambda job: self._changed(job, change))

    async def pause(self, job_id: str, reason: str | None = None) -> Job:
        """Let a job rest; pausing a paused one only changes the reason."""
        why = (reason or "").strip() or None
        return await self._store.change_job(job_id, lambda job: self._paused(job, why))

    async def resume(self, job_id: str) -> Job:
        """Resume a paused job; its next instant is counted from now."""
        return await self._store.change_job(job_id, self._resumed)

    async def run_now(self, job_id: str) -> Job:
        """Make a job due; `Conflict` if it is paused."""
        return await self._store.change_job(job_id, self._due)

    async def remove(self, job_id: str) -> None:
        """Remove a job; what became of its instants stays on record."""
        if not await self._store.remove_job(job_id):
            raise NotFound(f"There is no job {job_id}.")

    async def history(self, job_id: str, *, limit: int) -> list[Instant]:
        await self.job(job_id)
        return await self._instants.instants(job_id, limit=limit)

    def _changed(self, job: Job, change: ChangedJob) -> Job:
        if change.name is not UNSET:
            job = replace(job, name=_name(change.name))
        if change.prompt is not UNSET:
            job = replace(job, prompt=_prompt(change.prompt, job.script))
        if change.deliver is not UNSET:
            job = replace(job, deliver=_deliver(change.deliver, job.origin))
        if change.skills is not UNSET or change.skill is not UNSET:
            skills = _skills(change.skills or (), change.skill or None)
            job = replace(job, skills=skills, skill=next(iter(skills), None))
        if change.repeat is not UNSET:
            job = replace(job, repeat=_repeat(job, _times(change.repeat)))
        if change.schedule is not UNSET:
            job = self._rescheduled(job, change.schedule)
        if change.enabled is UNSET or change.enabled is job.enabled:
            return job
        return self._resumed(job) if change.enabled else self._paused(job, None)

    def _rescheduled(self, job: Job, text: str) -> Job:
        now = self._clock.now()
        schedule = parse_schedule(text, now, self._zone)
        job = replace(job, schedule=schedule, schedule_display=schedule.display)
        if job.state is JobState.PAUSED or not job.enabled:
            return job
        repeat = job.repeat
        if job.state is JobState.COMPLETED:
            repeat = replace(repeat, completed=0)
        return replace(
            job,
            repeat=repeat,
            state=JobState.SCHEDULED,
            next_run_at=self._first(schedule, now),
            last_error=None if job.state is JobState.ERROR else job.last_error,
        )

    def _paused(self, job: Job, reason: str | None) -> Job:
        if job.state is JobState.COMPLETED:
            raise Conflict(f"Job {job.id} is completed: there is nothing to pause.")
        return replace(
            job,
            enabled=False,
            state=JobState.PAUSED,
            paused_at=job.paused_at or stamp(self._clock.now(), self._zone),
            paused_reason=reason or job.paused_reason,
            next_run_at=None,
        )

    def _resumed(self, job: Job) -> Job:
        if job.enabled and job.state is JobState.SCHEDULED and job.next_run_at is not None:
            return job
        _check_exhausted(job)
        now = self._clock.now()
        due = next_instant(job.schedule, now, zone=self._zone, anchor=now)
        if due is None:
            raise Conflict(
                f"The time of job {job.id} has passed.", hint="Give it a new schedule first."
            )
        return replace(
            job,
            enabled=True,
            state=JobState.SCHEDULED,
            paused_at=None,
            paused_reason=None,
            next_run_at=stamp(due, self._zone),
        )

    def _due(self, job: Job) -> Job:
        if job.state is JobState.PAUSED or not job.enabled:
            raise Conflict(f"Job {job.id} is paused.", hint="Resume it first.")
        if job.state is JobState.ERROR:
            raise Conflict(
                f"Job {job.id} cannot run: {job.last_error or 'its schedule has failed.'}",
                hint="Give it a new schedule, or repair it in jobs.json.",
            )
        _check_exhausted(job)
        return replace(
            job, state=JobState.SCHEDULED, next_run_at=stamp(self._clock.now(), self._zone)
        )

    def _first(self, schedule: Schedule, now: float) -> str | None:
        if schedule.kind is ScheduleKind.ONCE:
            # Also one that is due already, by no more than a late person is granted.
            return schedule.run_at
        due = next_instant(schedule, now, zone=self._zone, anchor=now)
        return None if due is None else stamp(due, self._zone)


def _name(text: str) -> str:
    name = " ".join(_UNPRINTABLE.sub("", text).split())
    if not name:
        raise UsageError("The name of a job cannot be empty.")
    return name


def _prompt(text: str, script: str | None) -> str:
    prompt = text.strip()
    if not prompt and script is None:
        raise UsageError("A job needs a prompt.", hint="Say what the job should do.")
    if "\x00" in prompt:
        raise UsageError("The prompt contains a null character.")
    return prompt


def _skills(names: Sequence[str], only: str | None) -> tuple[str, ...]:
    skills = tuple(dict.fromkeys(name.strip() for name in names or filter(None, [only])))
    if not all(name and name.isprintable() for name in skills):
        raise UsageError("A skill name is empty or has characters that cannot be printed.")
    return skills


def _times(repeat: int | RepeatBody | None) -> int | None:
    return repeat.times if isinstance(repeat, RepeatBody) else repeat


def _repeat(job: Job, times: int | None) -> JobRepeat:
    completed = job.repeat.completed
    if times is not None and times <= completed:
        raise UsageError(
            f"Job {job.id} has run {completed} times already.", hint="Give a greater number."
        )
    return JobRepeat(times=times, completed=completed)


def _check_exhausted(job: Job) -> None:
    if job.repeat.times is not None and job.repeat.completed >= job.repeat.times:
        raise Conflict(f"Job {job.id} has finished all its runs.", hint="Raise its `repeat` first.")


def _deliver(text: str, origin: JobOrigin | None) -> str:
    """Check where results go; the form only, not whether the chat exists."""
    targets = [target.strip() for target in text.split(",")]
    if not all(_TARGET.fullmatch(target) for target in targets):
        raise UsageError(
            "`deliver` does not name a place.",
            hint="Use origin, local, all, a platform, platform:chat or platform:chat:thread, "
            "or several of them with commas between.",
        )
    for target in targets:
        place, colon, _ = target.partition(":")
        if colon and place in _PLACES:
            raise UsageError(f"`{target}`: {place} is not a platform.")
    if "origin" in targets and origin is None:
        raise UsageError(
            "This job was not created in a chat, so it cannot deliver to `origin`.",
            hint="Name a platform, or use local.",
        )
    return ",".join(dict.fromkeys(targets))
