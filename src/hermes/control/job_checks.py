"""What may stand in a job: each check returns the clean value or says what is wrong."""

import re
from collections.abc import Sequence

from hermes.domain.errors import Conflict, UsageError
from hermes.domain.jobs import Job, JobOrigin, JobRepeat

__all__ = [
    "MAX_DELIVER",
    "MAX_NAME",
    "MAX_PROMPT",
    "MAX_SKILLS",
    "MAX_TIMES",
    "changed_repeat",
    "check_exhausted",
    "checked_deliver",
    "checked_name",
    "checked_prompt",
    "checked_skills",
    "checked_times",
]

MAX_NAME = 200
MAX_PROMPT = 5000
MAX_SKILLS = 50
MAX_DELIVER = 1000
MAX_TIMES = 1_000_000
_PLACES = ("origin", "local", "all")
_TARGET = re.compile(r"[a-z][a-z0-9_-]{0,40}(:[^\s,:][^\s,]*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def checked_name(text: str) -> str:
    """Return the name of a job on one line."""
    name = " ".join(_UNPRINTABLE.sub("", text).split())
    if not name:
        raise UsageError("The name of a job cannot be empty.")
    if len(name) > MAX_NAME:
        raise UsageError(f"The name is longer than {MAX_NAME} characters.")
    return name


def checked_prompt(text: str) -> str:
    """Return what a job is to do."""
    prompt = text.strip()
    if len(prompt) > MAX_PROMPT:
        raise UsageError(
            f"The prompt is longer than {MAX_PROMPT} characters.",
            hint="Put the long part into a file or a skill.",
        )
    if "\x00" in prompt:
        raise UsageError("The prompt contains a null character.")
    return prompt


def checked_skills(names: Sequence[str]) -> tuple[str, ...]:
    """Return the skills of a job, each once."""
    skills = tuple(dict.fromkeys(name.strip() for name in names))
    if len(skills) > MAX_SKILLS:
        raise UsageError(f"A job can have {MAX_SKILLS} skills at most.")
    if not all(skills) or any(len(name) > MAX_NAME or not name.isprintable() for name in skills):
        raise UsageError("A skill has an empty or impossible name.")
    return skills


def checked_times(times: int | None) -> int | None:
    """Return how often a job runs; None for without end."""
    if times is not None and not 1 <= times <= MAX_TIMES:
        raise UsageError(
            f"A job cannot run {times} times.", hint="Give a number from 1, or null for ever."
        )
    return times


def changed_repeat(job: Job, times: int | None) -> JobRepeat:
    """Return the count of a job with another end."""
    completed = job.repeat.completed
    if checked_times(times) is not None and times is not None and times <= completed:
        raise UsageError(
            f"Job {job.id} has run {completed} times already.", hint="Give a greater number."
        )
    return JobRepeat(times=times, completed=completed)


def check_exhausted(job: Job) -> None:
    """Raise `Conflict` if a job has run as often as it was to."""
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
