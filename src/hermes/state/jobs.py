"""Jobs as a file of the agent: `cron/jobs.json`, `{jobs: [...], updated_at}`.

A lock file lets one process at a time read, change and write; the file is
replaced as a whole, so a reader never sees half of one. Each entry stays the
object it was in the file: only fields that a change has really changed are
written into it, so whatever else people or other programs keep there survives.
A field that makes no sense puts its job into the state `error` and leaves the
others alone; a file that makes no sense is an error and is never written over.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from hermes.config.atomic import read_json, write_json
from hermes.config.locks import locked
from hermes.domain.errors import ConfigError, Conflict, NotFound, StoreError
from hermes.domain.jobs import Job, JobState, Schedule, ScheduleKind

LOCK = ".jobs.lock"

log = logging.getLogger(__name__)

T = TypeVar("T")
Raw = dict[str, Any]
NAME_LENGTH = 50
"""Of a name that is made from the prompt."""
_KINDS: dict[str, Any] = get_type_hints(Job)
_NO_SCHEDULE = Schedule(kind=ScheduleKind.ONCE)
_LISTS = ("skills", "context_from", "enabled_toolsets")


class JobFiles:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.json"
        self._folder = folder
        self._turn = asyncio.Lock()
        """Our own callers queue here, so at most one thread waits for the file lock."""

    async def jobs(self) -> list[Job]:
        return [_job(entry) for entry in _entries(await asyncio.to_thread(self._load))]

    async def job(self, job_id: str) -> Job | None:
        return next((job for job in await self.jobs() if job.id == job_id), None)

    async def add_job(self, job: Job) -> Job:
        def add(content: Raw) -> Job:
            if _entry(content, job.id) is not None:
                raise Conflict(f"There is a job {job.id} already.")
            content["jobs"].append(msgspec.to_builtins(job))
            return job

        return await self._edit(add)

    async def change_job(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        def edit(content: Raw) -> Job:
            entry = _entry(content, job_id)
            if entry is None:
                raise NotFound(f"There is no job {job_id}.")
            old = _job(entry)
            new = change(old)
            for name in Job.__struct_fields__:
                if getattr(new, name) != getattr(old, name):
                    entry[name] = msgspec.to_builtins(getattr(new, name))
            return _job(entry)

        return await self._edit(edit)

    async def remove_job(self, job_id: str) -> bool:
        def remove(content: Raw) -> bool:
            entry = _entry(content, job_id)
            content["jobs"] = [each for each in content["jobs"] if each is not entry]
            return entry is not None

        return await self._edit(remove)

    async def _edit(self, edit: Callable[[Raw], T]) -> T:
        """Have the content changed while nobody else can, and write it if it is different."""

        def work() -> T:
            with locked(self._folder / LOCK, StoreError):
                content = self._load()
                before = msgspec.json.encode(content)
                answer = edit(content)
                if msgspec.json.encode(content) != before:
                    self._save(content)
                return answer

        async with self._turn:
            return await asyncio.to_thread(work)

    def _load(self) -> Raw:
        content = read_json(self.path, Raw)
        if not isinstance(content.setdefault("jobs", []), list):
            raise StoreError(
                f"{self.path} is not a list of jobs.", hint="Repair the file or move it away."
            )
        return content

    def _save(self, content: Raw) -> None:
        content["updated_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            write_json(self.path, content)
        except ConfigError as error:
            raise StoreError(error.message, hint=error.hint) from error


def _entries(content: Raw) -> list[Raw]:
    """Return the entries that can be addressed; others stay in the file and are reported."""
    found = []
    for position, entry in enumerate(content["jobs"]):
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry["id"]:
            found.append(entry)
        else:
            log.warning("entry %d of jobs.json has no id and is left alone", position)
    return found


def _entry(content: Raw, job_id: str) -> Raw | None:
    return next((entry for entry in _entries(content) if entry["id"] == job_id), None)


def _job(entry: Raw) -> Job:
    """Read one entry; what cannot be understood makes it a job in the state `error`."""
    fields = _familiar(entry)
    try:
        return msgspec.convert(fields, Job, strict=False)
    except msgspec.ValidationError:
        return _odd_job(fields)


def _odd_job(fields: Raw) -> Job:
    """Read field by field, to leave out only what makes no sense."""
    values: Raw = {}
    for name, value in fields.items():
        try:
            values[name] = msgspec.convert(value, _KINDS[name], strict=False)
        except msgspec.ValidationError:
            continue
    odd = sorted({*fields, "schedule"} - values.keys())
    return Job(
        **{"name": fields["id"], "created_at": "", "schedule": _NO_SCHEDULE}
        | values
        | {
            "state": JobState.ERROR,
            "last_error": f"This cannot be understood in jobs.json: {', '.join(odd)}.",
        }
    )


def _familiar(entry: Raw) -> Raw:
    """Return the fields that a job has, in the forms that other versions wrote them in."""
    known = {
        name: value
        for name, value in entry.items()
        if name in _KINDS and (value is not None or name == "schedule")
    }
    for name in _LISTS:
        if isinstance(known.get(name), str):
            known[name] = [known[name]]
    if isinstance(known.get("skill"), str) and not known.get("skills"):
        known["skills"] = [known["skill"]]
    if isinstance(known.get("repeat"), int):
        known["repeat"] = {"times": known["repeat"]}
    if isinstance(known.get("deliver"), list):
        known["deliver"] = ",".join(str(each) for each in known["deliver"])
    if known.get("state") not in tuple(JobState):
        known["state"] = "scheduled" if known.get("enabled", True) else "paused"
    prompt = known.get("prompt")
    short = prompt[:NAME_LENGTH].strip() if isinstance(prompt, str) else ""
    known.setdefault("name", short or known["id"])
    known.setdefault("created_at", "")
    return known
