"""Resets: conversations that start over by themselves. Idle too long, a new day, or a word.

A pure function of the session's last use, the policy of its place and the
local time. A session whose background work still runs is left alone, but not
for ever.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

import msgspec

from hermes.domain.errors import ConfigError
from hermes.domain.inbound import ChatKind
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import SessionReset

AUTO_RESET = "auto_reset"
"""Under this name a session remembers why it was opened by itself."""


class ResetReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"


def policy_of(settings: Settings, platform: str, kind: ChatKind) -> SessionReset:
    """Return the policy of a place: by platform, then by kind of chat, then the general one.

    What a part leaves out is as in the whole.
    """
    section = settings.session_reset
    for key, name in (("reset_by_platform", platform), ("reset_by_type", kind.value)):
        if name in _parts(section)[key]:
            return _part(section, key, name)
    return section


def check_policies(section: SessionReset) -> None:
    """Raise `ConfigError` if a part for a platform or a kind of chat makes no sense."""
    for key, parts in _parts(section).items():
        for name in parts:
            _part(section, key, name)


def is_trigger(settings: Settings, text: str) -> bool:
    word = text.strip().lower()
    return bool(word) and word in {each.strip().lower() for each in settings.reset_triggers}


def due(
    session: Session,
    policy: SessionReset,
    now: float,
    tz: tzinfo,
    background_age: float | None = None,
) -> ResetReason | None:
    """Say why the session's next message opens a new one; None: it goes on.

    `background_age` is the age in seconds of the oldest work that still runs
    for the session; None when none does.
    """
    if policy.mode == "none" or session.message_count == 0:
        return None
    if background_age is not None and background_age < policy.bg_process_max_age_hours * 3600:
        return None
    if policy.mode != "daily" and now - session.updated_at > policy.idle_minutes * 60:
        return ResetReason.IDLE
    if policy.mode != "idle" and session.updated_at < _last_hour(now, policy, tz):
        return ResetReason.DAILY
    return None


def user_note(reason: ResetReason, policy: SessionReset) -> str | None:
    if not policy.notify:
        return None
    why = f"because a new day began at {policy.at_hour:02d}:00"
    if reason is ResetReason.IDLE:
        why = f"after {_span(policy.idle_minutes)} of silence"
    return f"New conversation {why}. /resume returns to the previous one."


def model_note(reason: ResetReason) -> str:
    """Return what the model is told at the beginning of the new session."""
    return (
        "The earlier conversation in this chat ended automatically"
        f" ({'idle' if reason is ResetReason.IDLE else 'daily reset'});"
        " you do not see it. If the user refers to it, look it up."
    )


def _last_hour(now: float, policy: SessionReset, tz: tzinfo) -> float:
    """Return the latest instant at which the local clock showed `at_hour`."""
    local = datetime.fromtimestamp(now, tz)
    today = local.replace(hour=policy.at_hour, minute=0, second=0, microsecond=0, fold=0)
    if today.timestamp() > now:
        # Wall-clock arithmetic on the date: a day is not always 24 hours.
        today -= timedelta(days=1)
    return today.timestamp()


def _span(minutes: float) -> str:
    if minutes >= 120:
        return f"{round(minutes / 60)} hours"
    return f"{round(minutes)} minutes"


def _parts(section: SessionReset) -> Mapping[str, Mapping[str, Any]]:
    by_platform, by_type = section.reset_by_platform, section.reset_by_type
    return {"reset_by_platform": by_platform, "reset_by_type": by_type}


def _part(section: SessionReset, key: str, name: str) -> SessionReset:
    part = _parts(section)[key][name]
    values = part if isinstance(part, Mapping) else {"mode": part}
    try:
        return msgspec.convert({**msgspec.structs.asdict(section), **values}, SessionReset)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"session_reset.{key}.{name} is not valid: {error}.",
            hint="`mode` is one of: none, idle, daily, both.",
        ) from error
