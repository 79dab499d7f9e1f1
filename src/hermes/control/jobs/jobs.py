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

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from hermes.control.jobs.schedules import next_instant, parse_schedule, stamp
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

MAX_NAME = 200
MAX_PROMPT = 5000
MAX_SKILLS = 50
MAX_DELIVER = 1000
MAX_TIMES = 1_000_000
_PLACES = ("origin", "local", "all")
_TARGET = re.compile(r"[a-z][a-z0-9_-]{0,40}(:[^\s,:][^\s,]*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def checked_name(text: str) -> str:
    name = " ".join(_UNPRINTABLE.sub("", text).split())
    if not name:
        raise UsageError("The name of a job cannot be empty.")
    if len(name) > MAX_NAME:
        raise UsageError(f"The name is longer than {MAX_NAME} characters.")
    return name


def checked_prompt(text: str, script: str | None) -> str:
    prompt = text.strip()
    if not prompt and script is None:
        raise UsageError("A job needs a prompt.", hint="Say what is to be done.")
    if len(prompt) > MAX_PROMPT:
        raise UsageError(
            f"The prompt is longer than {MAX_PROMPT} characters.",
            hint="Put the long part into a file or a skill.",
        )
    if "\x00" in prompt:
        raise UsageError("The prompt contains a null character.")
    return prompt


def checked_skills(names: Sequence[str]) -> tuple[str, ...]:
    skills = tuple(dict.fromkeys(name.strip() for name in names))
    if len(skills) > MAX_SKILLS:
        raise UsageError(f"A job can have {MAX_SKILLS} skills at most.")
    if not all(skills) or any(len(name) > MAX_NAME or not name.isprintable() for name in skills):
        raise UsageError("A skill has an empty or impossible name.")
    return skills


def checked_times(times: int | None) -> int | None:
    if times is not None and not 1 <= times <= MAX_TIMES:
        raise UsageError(
            f"A job cannot run {times} times.", hint="Give a number from 1, or null for ever."
        )
    return times


def changed_repeat(job: Job, times: int | None) -> JobRepeat:
    completed = job.repeat.completed
    if checked_times(times) is not None and times is not None and times <= completed:
        raise UsageError(
            f"Job {job.id} has run {completed} times already.", hint="Give a greater number."
        )
    return JobRepeat(times=times, completed=completed)


def check_exhausted(job: Job) -> None:
    if job.repeat.times is not None and job.repeat.completed >= job.repeat.times:
        raise Conflict(
            f"Job {job.id} has run as often as it was to.", hint="Raise its `repeat` first."
        )


def checked_deliver(text: str, origin: JobOrigin | None) -> str:
    """Check where results go; the form only, not whether the chat exists."""
    targets = [target.strip() for target in text.split(",")]
    if len(text) > MAX_DELIVER or not all(_TARGET.fullmatch(target) for target in targets):
        raise UsageError(
            "`deliver` names no place to deliver to.",
            hint="Use origin, local, all, a platform, platform:chat or platform:chat:thread, "
            "or several of them with commas between.",
        )
    for target in targets:
        place, colon, _ = target.partition(":")
        if colon and place in _PLACES:
            raise UsageError(f"`{target}`: {place} is not a platform.")
    if "origin" in targets and origin is None:
        raise UsageError(
            "This job was not made in a chat, so it cannot deliver to `origin`.",
            hint="Name a platform, or use local.",
        )
    return ",".join(dict.fromkeys(targets))


_SHORT_NAME = 50
MAX_REASON = 500


class JobDraft(Struct, frozen=True, kw_only=True):
    schedule: str
    name: str = ""
    """Empty: made from the prompt."""
    prompt: str = ""
    script: str | None = None
    no_agent: bool = False
    skills: tuple[str, ...] = ()
    deliver: str = "local"
    repeat: int | None = None
    """How often; None for without end."""
    origin: JobOrigin | None = None


class JobChange(Struct, frozen=True, kw_only=True):
    """What is to be different; unset fields stay as they are."""

    name: str | UnsetType = UNSET
    schedule: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    deliver: str | UnsetType = UNSET
    skills: tuple[str, ...] | UnsetType = UNSET
    repeat: int | UnsetType | None = UNSET
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
        script = (draft.script or "").strip() or None
        prompt = checked_prompt(draft.prompt, script)
        if draft.no_agent and script is None:
            raise UsageError("A job without an agent needs a script.")
        schedule = parse_schedule(draft.schedule, now, self._zone)
        skills = checked_skills(draft.skills)
        return await self._store.add_job(
            Job(
                id=secrets.token_hex(6),
                name=checked_name(draft.name or prompt[:_SHORT_NAME] or script or ""),
                prompt=prompt,
                script=script,
                no_agent=draft.no_agent,
                skills=skills,
                skill=skills[0] if skills else None,
                schedule=schedule,
                schedule_display=schedule.display,
                repeat=JobRepeat(times=checked_times(draft.repeat)),
                created_at=stamp(now, self._zone),
                next_run_at=self._first(schedule, now),
                deliver=checked_deliver(draft.deliver, draft.origin),
                origin=draft.origin,
            )
        )

    async def change(self, job_id: str, change: JobChange) -> Job:
        """Change a job; all of it or nothing."""
        now = self._clock.now()
        return await self._store.change_job(job_id, lambda job: self._changed(job, change, now))

    async def pause(self, job_id: str, reason: str | None = None) -> Job:
        """Let a job rest; pausing a paused one only changes the reason."""
        now = self._clock.now()
        reason = (reason or "").strip() or None
        if reason is not None and len(reason) > MAX_REASON:
            raise UsageError(f"The reason is longer than {MAX_REASON} characters.")
        return await self._store.change_job(job_id, lambda job: self._paused(job, reason, now))

    async def resume(self, job_id: str) -> Job:
        """Resume a paused job; its next instant is counted from now."""
        now = self._clock.now()
        return await self._store.change_job(job_id, lambda job: self._resumed(job, now))

    async def run_now(self, job_id: str) -> Job:
        """Make a job due; `Conflict` if it is paused."""
        now = self._clock.now()
        return await self._store.change_job(job_id, lambda job: self._due(job, now))

    async def remove(self, job_id: str) -> None:
        """Remove a job; what became of its instants stays on record."""
        if not await self._store.remove_job(job_id):
            raise NotFound(f"There is no job {job_id}.")

    async def history(self, job_id: str, *, limit: int) -> list[Instant]:
        """Return what became of its instants, newest first."""
        await self.job(job_id)
        return await self._instants.instants(job_id, limit=limit)

    def _changed(self, job: Job, change: JobChange, now: float) -> Job:
        if change.name is not UNSET:
            job = replace(job, name=checked_name(change.name))
        if change.prompt is not UNSET:
            job = replace(job, prompt=checked_prompt(change.prompt, job.script))
        if change.deliver is not UNSET:
            job = replace(job, deliver=checked_deliver(change.deliver, job.origin))
        if change.skills is not UNSET:
            skills = checked_skills(change.skills)
            job = replace(job, skills=skills, skill=skills[0] if skills else None)
        if change.repeat is not UNSET:
            job = replace(job, repeat=changed_repeat(job, change.repeat))
        if change.schedule is not UNSET:
            job = self._rescheduled(job, change.schedule, now)
        if change.enabled is UNSET or change.enabled is job.enabled:
            return job
        return self._resumed(job, now) if change.enabled else self._paused(job, None, now)

    def _rescheduled(self, job: Job, text: str, now: float) -> Job:
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

    def _paused(self, job: Job, reason: str | None, now: float) -> Job:
        if job.state is JobState.COMPLETED:
            raise Conflict(f"Job {job.id} is completed: there is nothing to pause.")
        return replace(
            job,
            enabled=False,
            state=JobState.PAUSED,
            paused_at=job.paused_at or stamp(now, self._zone),
            paused_reason=reason or job.paused_reason,
            next_run_at=None,
        )

    def _resumed(self, job: Job, now: float) -> Job:
        if job.enabled and job.state is JobState.SCHEDULED and job.next_run_at is not None:
            return job
        check_exhausted(job)
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

    def _due(self, job: Job, now: float) -> Job:
        if job.state is JobState.PAUSED or not job.enabled:
            raise Conflict(f"Job {job.id} is paused.", hint="Resume it first.")
        if job.state is JobState.ERROR:
            raise Conflict(
                f"Job {job.id} cannot run: {job.last_error or 'its schedule has failed.'}",
                hint="Give it a new schedule, or repair it in jobs.json.",
            )
        check_exhausted(job)
        return replace(job, state=JobState.SCHEDULED, next_run_at=stamp(now, self._zone))

    def _first(self, schedule: Schedule, now: float) -> str | None:
        if schedule.kind is ScheduleKind.ONCE:
            # Also one that is due already, by no more than a late person is granted.
            return schedule.run_at
        due = next_instant(schedule, now, zone=self._zone, anchor=now)
        return None if due is None else stamp(due, self._zone)
