"""When a conversation starts over by itself: idle too long, a new day, or a word.

A pure function of the session's last use, the policy of its place and the
local time. A session whose background work still runs is left alone, but not
for ever.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.inbound import ChatKind
from hermes.domain.session import Session

__all__ = [
    "AUTO_RESET",
    "ResetMode",
    "ResetPolicy",
    "ResetReason",
    "ResetRules",
    "Resets",
    "due",
    "model_note",
    "reset_rules",
    "user_note",
]

AUTO_RESET = "auto_reset"
"""Under this name a session remembers why it was opened by itself."""


class ResetMode(StrEnum):
    """Which clock counts."""

    NONE = "none"
    IDLE = "idle"
    DAILY = "daily"
    BOTH = "both"


class ResetReason(StrEnum):
    """Why a conversation started over."""

    IDLE = "idle"
    DAILY = "daily"
    TRIGGER = "trigger"


class ResetPolicy(Struct, frozen=True, kw_only=True):
    """When the conversations of one place start over."""

    mode: ResetMode = ResetMode.NONE
    at_hour: int = 4
    """Local hour of the daily reset."""
    idle_minutes: float = 1440
    notify: bool = True
    bg_process_max_age_hours: float = 24.0
    """Background work older than this does not keep a conversation any more."""


class ResetRules(Struct, frozen=True, kw_only=True):
    """The policies of all places."""

    default: ResetPolicy = ResetPolicy()
    by_type: Mapping[str, ResetPolicy] = {}
    by_platform: Mapping[str, ResetPolicy] = {}
    triggers: frozenset[str] = frozenset()
    """Whole messages, in lower case, that start a new conversation."""

    def policy(self, platform: str, kind: ChatKind) -> ResetPolicy:
        """Return the policy of a place: by platform, then by kind of chat, then the default."""
        found = self.by_platform.get(platform) or self.by_type.get(kind.value)
        return found or self.default

    def is_trigger(self, text: str) -> bool:
        """Tell whether a message is one of the words that start over."""
        return text.strip().lower() in self.triggers


def reset_rules(section: Mapping[str, Any], triggers: tuple[str, ...] = ()) -> ResetRules:
    """Build the rules from `session_reset`; what a part leaves out is as in the whole."""
    base = {key: value for key, value in section.items() if not key.startswith("reset_by_")}
    return ResetRules(
        default=_policy(base, "session_reset"),
        by_type=_policies(base, section, "reset_by_type"),
        by_platform=_policies(base, section, "reset_by_platform"),
        triggers=frozenset(word.strip().lower() for word in triggers if word.strip()),
    )


def due(
    session: Session,
    policy: ResetPolicy,
    now: float,
    tz: tzinfo,
    background_age: float | None = None,
) -> ResetReason | None:
    """Say why the session's next message opens a new one; None: it goes on.

    `background_age` is the age in seconds of the oldest work that still runs
    for the session; None when none does.
    """
    if policy.mode is ResetMode.NONE or session.message_count == 0:
        return None
    if background_age is not None and background_age < policy.bg_process_max_age_hours * 3600:
        return None
    if policy.mode is not ResetMode.DAILY and now - session.updated_at > policy.idle_minutes * 60:
        return ResetReason.IDLE
    if policy.mode is not ResetMode.IDLE and session.updated_at < _last_hour(now, policy, tz):
        return ResetReason.DAILY
    return None


class Resets:
    """The rules together with what they depend on."""

    def __init__(
        self,
        rules: ResetRules,
        tz: tzinfo,
        background_age: Callable[[str], float | None] = lambda _session_id: None,
    ) -> None:
        self.rules = rules
        self._tz = tz
        self._background_age = background_age

    def due(
        self, session: Session, platform: str, kind: ChatKind, now: float
    ) -> tuple[ResetReason, ResetPolicy] | None:
        """Say why and how the next message in this place opens a new session."""
        policy = self.rules.policy(platform, kind)
        reason = due(session, policy, now, self._tz, self._background_age(session.id))
        return (reason, policy) if reason else None


def user_note(reason: ResetReason, policy: ResetPolicy) -> str | None:
    """Return what the person is told; None when they are not."""
    if not policy.notify:
        return None
    why = {
        ResetReason.IDLE: f"after {_span(policy.idle_minutes)} of silence",
        ResetReason.DAILY: f"because a new day began at {policy.at_hour:02d}:00",
        ResetReason.TRIGGER: "as you asked",
    }[reason]
    return f"This is a new conversation, {why}. /resume brings the earlier one back."


def model_note(reason: ResetReason) -> str:
    """Return what the model is told at the beginning of the new session."""
    if reason is ResetReason.TRIGGER:
        return "The user has just started a new conversation."
    return (
        "The earlier conversation in this chat ended automatically"
        f" ({'idle' if reason is ResetReason.IDLE else 'daily reset'});"
        " you do not see it. If the user refers to it, look it up."
    )


def _last_hour(now: float, policy: ResetPolicy, tz: tzinfo) -> float:
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


def _policies(
    base: Mapping[str, Any], section: Mapping[str, Any], key: str
) -> dict[str, ResetPolicy]:
    parts = section.get(key) or {}
    return {
        str(name): _policy({**base, **_as_mapping(part)}, f"{key}.{name}")
        for name, part in parts.items()
    }


def _as_mapping(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {"mode": part}


def _policy(values: Mapping[str, Any], where: str) -> ResetPolicy:
    try:
        policy = msgspec.convert(dict(values), ResetPolicy, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{where} cannot be understood: {error}.",
            hint=f"`mode` is one of: {', '.join(ResetMode)}.",
        ) from error
    if not 0 <= policy.at_hour <= 23:
        raise ConfigError(f"{where}.at_hour is {policy.at_hour}; the hours are 0 to 23.")
    return policy
