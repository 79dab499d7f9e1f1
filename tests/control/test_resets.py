"""When a conversation starts over by itself."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.admission.resets import (
    ResetReason,
    check_policies,
    due,
    is_trigger,
    model_note,
    policy_of,
    user_note,
)
from hermes.domain.errors import ConfigError
from hermes.domain.inbound import ChatKind
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import SessionReset

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, tz: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=tz).timestamp()


def used(when: float, messages: int = 3) -> Session:
    return Session(
        id="s1",
        agent_id="main",
        source="telegram",
        started_at=0.0,
        updated_at=when,
        message_count=messages,
    )


def test_without_a_policy_nothing_ever_starts_over() -> None:
    assert due(used(0.0), SessionReset(), 1e10, UTC) is None


def test_idle_counts_minutes_since_the_last_use() -> None:
    policy = SessionReset(mode="idle", idle_minutes=30)
    assert due(used(0.0), policy, 30 * 60, UTC) is None
    assert due(used(0.0), policy, 30 * 60 + 1, UTC) is ResetReason.IDLE


def test_daily_happens_at_the_local_hour_once() -> None:
    policy = SessionReset(mode="daily", at_hour=4)
    evening = used(at("2026-11-14 23:00"))
    assert due(evening, policy, at("2026-11-15 03:59"), BERLIN) is None
    assert due(evening, policy, at("2026-11-15 04:00"), BERLIN) is ResetReason.DAILY
    morning = used(at("2026-11-15 04:01"))
    assert due(morning, policy, at("2026-11-15 23:59"), BERLIN) is None
    assert due(morning, policy, at("2026-11-16 04:00"), BERLIN) is ResetReason.DAILY


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_daily_holds_on_days_that_are_not_24_hours_long(day: str) -> None:
    policy = SessionReset(mode="daily", at_hour=4)
    before, after = used(at(f"{day} 03:59")), used(at(f"{day} 04:01"))
    now = at(f"{day} 12:00")
    assert due(before, policy, now, BERLIN) is ResetReason.DAILY
    assert due(after, policy, now, BERLIN) is None


def test_an_hour_that_is_skipped_or_comes_twice_resets_once() -> None:
    policy = SessionReset(mode="daily", at_hour=2)
    # In spring 02:00 is skipped: the reset comes when the clock jumps, at 03:00.
    jump = at("2026-03-29 03:00")
    assert due(used(jump - 1), policy, jump + 60, BERLIN) is ResetReason.DAILY
    assert due(used(jump - 3600), policy, jump - 1, BERLIN) is None
    assert due(used(jump + 1), policy, jump + 7200, BERLIN) is None
    # In autumn 02:00 comes twice: the first time counts.
    first = at("2026-10-25 01:59") + 60
    assert due(used(first - 1), policy, first + 60, BERLIN) is ResetReason.DAILY
    assert due(used(first + 60), policy, first + 3660, BERLIN) is None


def test_both_means_whichever_comes_first() -> None:
    policy = SessionReset(mode="both", at_hour=4, idle_minutes=60)
    last = used(at("2026-11-15 03:30"))
    assert due(last, policy, at("2026-11-15 04:10"), BERLIN) is ResetReason.DAILY
    assert due(last, policy, at("2026-11-15 04:31"), BERLIN) is ResetReason.IDLE


def test_an_empty_session_is_not_replaced_by_another_empty_one() -> None:
    policy = SessionReset(mode="idle", idle_minutes=1)
    assert due(used(0.0, messages=0), policy, 1e6, UTC) is None


def test_background_work_keeps_a_session_but_not_for_ever() -> None:
    section = SessionReset(mode="idle", idle_minutes=1, bg_process_max_age_hours=24)
    assert due(used(0.0), section, 1e6, UTC, 3600.0) is None
    assert due(used(0.0), section, 1e6, UTC, 24 * 3600.0) is not None
    assert due(used(0.0), section, 1e6, UTC) is not None


def test_the_platform_is_asked_first_then_the_kind_of_chat_then_the_default() -> None:
    section = SessionReset(
        mode="idle",
        idle_minutes=10,
        notify=False,
        reset_by_type={"group": {"mode": "daily"}, "dm": {"idle_minutes": 99}},
        reset_by_platform={"email": {"mode": "none"}, "irc": "both"},
    )
    settings = Settings(session_reset=section)
    assert policy_of(settings, "telegram", ChatKind.CHANNEL) == section
    assert policy_of(settings, "telegram", ChatKind.GROUP).mode == "daily"
    assert policy_of(settings, "telegram", ChatKind.GROUP).notify is False
    assert policy_of(settings, "telegram", ChatKind.PRIVATE).idle_minutes == 99
    assert policy_of(settings, "email", ChatKind.GROUP).mode == "none"
    assert policy_of(settings, "irc", ChatKind.GROUP).mode == "both"


def test_trigger_words_are_whole_messages_in_any_case() -> None:
    settings = Settings(reset_triggers=("Start over", " "))
    assert is_trigger(settings, "  start OVER ")
    assert not is_trigger(settings, "please start over")
    assert not is_trigger(settings, "")


def test_people_are_told_unless_they_asked_not_to_be() -> None:
    policy = SessionReset(mode="both", idle_minutes=180, at_hour=4)
    assert "3 hours" in (user_note(ResetReason.IDLE, policy) or "")
    assert "04:00" in (user_note(ResetReason.DAILY, policy) or "")
    assert user_note(ResetReason.IDLE, SessionReset(notify=False)) is None
    assert "idle" in model_note(ResetReason.IDLE)


@pytest.mark.parametrize("section", [{"mode": "weekly"}, {"at_hour": 24}, {"idle_minutes": "x"}])
def test_settings_that_mean_nothing_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        check_policies(SessionReset(reset_by_type={"group": section}))


@given(
    last=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001
    pause=st.timedeltas(timedelta(0), timedelta(days=3)),
    hour=st.integers(0, 23),
)
def test_after_a_day_and_a_bit_a_daily_reset_is_always_due_and_never_twice(
    last: datetime, pause: timedelta, hour: int
) -> None:
    policy = SessionReset(mode="daily", at_hour=hour)
    when = last.replace(tzinfo=BERLIN).timestamp()
    now = when + pause.total_seconds()
    reason = due(used(when), policy, now, BERLIN)
    if pause > timedelta(hours=25):
        assert reason is ResetReason.DAILY
    if reason is not None:
        assert due(used(now), policy, now, BERLIN) is None
