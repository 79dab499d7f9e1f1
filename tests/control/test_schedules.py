"""What people write as a schedule, and the instants that follow."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.jobs.schedules import (
    instant_of,
    next_instant,
    parse_schedule,
    stamp,
)
from hermes.domain.errors import ConfigError, UsageError
from hermes.domain.jobs import Schedule, ScheduleKind
from hermes.domain.ports.clock import zone_named

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from(
    [
        UTC,
        BERLIN,
        ZoneInfo("America/New_York"),
        ZoneInfo("Africa/Cairo"),
        ZoneInfo("Asia/Kathmandu"),
        ZoneInfo("America/Havana"),
    ]
)
NOW = datetime(2026, 11, 16, 8, 0, 30, tzinfo=UTC).timestamp()
MOMENTS = st.floats(min_value=1.6e9, max_value=2.2e9)


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def cron(expr: str) -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, expr=expr)


def walk(expr: str, start: float, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    found = []
    for _ in range(count):
        due = next_instant(cron(expr), start, zone=zone, anchor=start)
        assert due is not None
        found.append(stamp(due, zone))
        start = due
    return found


@pytest.mark.parametrize(
    ("text", "minutes", "display"),
    [
        ("30m", 30, "once in 30m"),
        ("30 min", 30, "once in 30m"),
        ("1 Minute", 1, "once in 1m"),
        ("2h", 120, "once in 2h"),
        ("2 hrs", 120, "once in 2h"),
        ("1d", 1440, "once in 1d"),
        ("3 days", 4320, "once in 3d"),
    ],
)
def test_a_time_span_means_once_after_it(text: str, minutes: int, display: str) -> None:
    schedule = parse_schedule(text, NOW, BERLIN)
    assert schedule.kind is ScheduleKind.ONCE
    assert instant_of(schedule.run_at, UTC) == NOW + minutes * 60
    assert schedule.display == display


@pytest.mark.parametrize(
    ("text", "minutes", "display"),
    [
        ("every 30m", 30, "every 30m"),
        ("Every  2 hours", 120, "every 2h"),
        ("every 90 minutes", 90, "every 90m"),
        ("every 1d", 1440, "every 1d"),
    ],
)
def test_every_makes_an_interval(text: str, minutes: int, display: str) -> None:
    schedule = parse_schedule(text, NOW, BERLIN)
    assert schedule == Schedule(kind=ScheduleKind.INTERVAL, minutes=minutes, display=display)


def test_a_time_without_an_offset_is_in_the_given_zone() -> None:
    schedule = parse_schedule("2026-12-24T18:00", NOW, BERLIN)
    assert schedule.run_at == "2026-12-24T18:00:00+01:00"
    assert schedule.display == "once at 2026-12-24 18:00"
    assert parse_schedule("2026-12-24 18:00", NOW, UTC).run_at == "2026-12-24T18:00:00+00:00"


def test_a_time_with_an_offset_keeps_its_instant() -> None:
    schedule = parse_schedule("2026-12-24T18:00Z", NOW, BERLIN)
    assert schedule.run_at == "2026-12-24T19:00:00+01:00"


def test_a_time_just_past_is_taken_and_one_long_past_is_not() -> None:
    assert parse_schedule(stamp(NOW - 119, UTC), NOW, UTC).kind is ScheduleKind.ONCE
    with pytest.raises(UsageError, match="in the past"):
        parse_schedule(stamp(NOW - 121, UTC), NOW, UTC)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("soon", "not a schedule"),
        ("every", "not a schedule"),
        ("every day at nine", "not a time span"),
        ("every 0m", "less than a minute"),
        ("0m", "less than a minute"),
        ("10s", "not a time span"),
        ("2w", "not a time span"),
        ("every 2 weeks", "not a time span"),
        ("99999d", "more than ten years"),
        ("9999-12-31T23:59", "more than ten years"),
        ("2026-13-01", "not a schedule"),
        ("60 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * * * 8", "Bad day-of-week"),
        ("* * * * * 60", "Bad second"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("*/0 * * * *", "Bad minute"),
        ("* * * *", "not a schedule"),
        ("* * * * * * *", "not a schedule"),
        ("1 2 3 4 \N{ARABIC-INDIC DIGIT FIVE}", "not a cron expression"),
        ("* " * 101, "longer than"),
    ],
)
def test_what_makes_no_sense_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_schedule(text, NOW, BERLIN)
    assert caught.value.hint


@given(st.text(max_size=60), ZONES)
def test_any_text_is_understood_or_refused_with_a_hint(text: str, zone: ZoneInfo) -> None:
    try:
        said = parse_schedule(text, NOW, zone).display
    except UsageError as error:
        said = error.hint
    assert said


@given(st.from_regex(r"[0-9*/,#LlWw-]{1,8}( [0-9*/,#LlWw-]{1,8}){4,5}", fullmatch=True))
def test_anything_like_cron_is_understood_or_refused(text: str) -> None:
    try:
        schedule = parse_schedule(text, NOW, BERLIN)
    except UsageError:
        return
    due = next_instant(schedule, NOW, zone=BERLIN, anchor=NOW)
    assert due is None or due > NOW


def test_cron_follows_the_clock_on_the_wall() -> None:
    assert walk("0 9 * * 1-5", at("2026-11-13T08:00"), 3) == [
        "2026-11-13T09:00:00+01:00",
        "2026-11-16T09:00:00+01:00",
        "2026-11-17T09:00:00+01:00",
    ]
    assert walk("0 9 * * MON", at("2026-11-13T08:00"), 1) == ["2026-11-16T09:00:00+01:00"]


def test_the_sixth_field_are_seconds() -> None:
    assert walk("0 9 * * * 30", at("2026-11-13T09:00:10"), 2) == [
        "2026-11-13T09:00:30+01:00",
        "2026-11-14T09:00:30+01:00",
    ]
    assert walk("0 9 * * * */20", at("2026-11-13T09:00:10"), 3) == [
        "2026-11-13T09:00:20+01:00",
        "2026-11-13T09:00:40+01:00",
        "2026-11-14T09:00:00+01:00",
    ]


def test_a_time_that_spring_skips_is_made_up_for_after_the_gap() -> None:
    assert walk("30 2 * * *", at("2027-03-27T12:00"), 2) == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]
    assert walk("30 2 * * * 15", at("2027-03-27T12:00"), 1) == ["2027-03-28T03:00:15+02:00"]


def test_a_time_that_autumn_repeats_is_taken_once() -> None:
    assert walk("30 2 * * *", at("2026-10-24T12:00"), 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_from_within_the_repeated_hour_only_what_is_still_to_come_is_found() -> None:
    second_half_past_two = datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp()
    assert walk("45 1-3 * * *", second_half_past_two, 1) == ["2026-10-25T03:45:00+01:00"]


def test_cron_by_the_hour_goes_on_through_the_repeated_hour() -> None:
    assert walk("0 * * * *", at("2026-10-25T01:30"), 3) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


CRON_FIELDS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/7", "15,45", "5-9"]),
    st.sampled_from(["*", "0", "2", "*/5", "1-3", "23"]),
    st.sampled_from(["*", "1", "31", "*/2", "L"]),
    st.sampled_from(["*", "2", "10", "3,10"]),
    st.sampled_from(["*", "0", "7", "1-5", "1#2"]),
    st.sampled_from(["", " 0", " 30", " */20"]),
)


@given(CRON_FIELDS, MOMENTS, ZONES)
def test_instants_of_cron_strictly_increase(
    fields: tuple[str, ...], start: float, zone: ZoneInfo
) -> None:
    expr = " ".join(fields[:5]) + fields[5]
    try:
        parse_schedule(expr, start, zone)
    except UsageError:
        return
    for _ in range(5):
        due = next_instant(cron(expr), start, zone=zone, anchor=0.0)
        assert due is not None
        assert due > start
        start = due


@given(st.integers(min_value=1, max_value=100_000), MOMENTS, MOMENTS)
def test_an_interval_is_kept_whatever_the_clock_does(
    minutes: int, anchor: float, after: float
) -> None:
    schedule = Schedule(kind=ScheduleKind.INTERVAL, minutes=minutes)
    anchor, after = float(int(anchor)), float(int(after))
    due = next_instant(schedule, after, zone=BERLIN, anchor=anchor)
    assert due is not None
    assert due > after
    assert due > anchor
    assert (due - anchor) % (minutes * 60) == 0
    assert due - max(after, anchor) <= minutes * 60
    assert next_instant(schedule, due, zone=BERLIN, anchor=anchor) == due + minutes * 60


def test_once_has_one_instant() -> None:
    schedule = parse_schedule("1h", NOW, BERLIN)
    assert next_instant(schedule, NOW, zone=BERLIN, anchor=NOW) == NOW + 3600
    assert next_instant(schedule, NOW + 3600, zone=BERLIN, anchor=NOW) is None


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(kind=ScheduleKind.ONCE),
        Schedule(kind=ScheduleKind.ONCE, run_at="tomorrow"),
        Schedule(kind=ScheduleKind.INTERVAL),
        Schedule(kind=ScheduleKind.INTERVAL, minutes=-5),
        Schedule(kind=ScheduleKind.CRON),
        Schedule(kind=ScheduleKind.CRON, expr="every day"),
        Schedule(kind=ScheduleKind.CRON, expr="* * * * * * * *"),
    ],
)
def test_a_stored_schedule_that_makes_no_sense_is_said_to_be_so(schedule: Schedule) -> None:
    with pytest.raises(UsageError):
        next_instant(schedule, NOW, zone=BERLIN, anchor=NOW)


def test_zones_have_names_and_unknown_ones_are_refused() -> None:
    assert zone_named(" Europe/Berlin ") == BERLIN
    for name in ("Mars/Olympus", "../etc/passwd", "Europe", "\x00"):
        with pytest.raises(ConfigError, match="time zone"):
            zone_named(name)


MACHINE = """
from datetime import UTC, datetime
from zoneinfo import ZoneInfo
from hermes.control.jobs.schedules import next_instant, stamp
from hermes.domain.ports.clock import zone_named
from hermes.domain.jobs import Schedule, ScheduleKind
here, there = zone_named(""), ZoneInfo("Europe/Berlin")
for hour in range(0, 24 * 400):
    at = datetime(2026, 9, 1, tzinfo=UTC).timestamp() + hour * 3600
    moment = datetime.fromtimestamp(at, here)
    assert moment.timestamp() == at, (at, moment)
    assert stamp(at, here) == stamp(at, there)
for expr in ("30 2 * * *", "0 * * * *"):
    at = datetime(2026, 10, 24, tzinfo=UTC).timestamp()
    for _ in range(60):
        schedule = Schedule(kind=ScheduleKind.CRON, expr=expr)
        due = next_instant(schedule, at, zone=here, anchor=at)
        assert due == next_instant(schedule, at, zone=there, anchor=at)
        at = due
"""


def test_without_a_name_the_zone_of_the_machine_with_its_clock_changes_is_meant() -> None:
    environ = {**os.environ, "TZ": "Europe/Berlin"}
    done = subprocess.run(
        [sys.executable, "-c", MACHINE], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
