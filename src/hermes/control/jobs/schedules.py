"""Schedules: what people write, and the instants that follow from it.

    30m  2h  1d                 once, after that time
    every 30m                   again and again, that far apart
    0 9 * * 1-5                 cron; a sixth field at the end are seconds
    2027-01-31T09:00            once, then; without an offset in the given zone

Intervals are real time: a clock change does not stretch them. Cron follows the
clock on the wall: a time that is skipped in spring is made up for right after
the gap, and one that comes twice in autumn is taken once.
"""

import re
from datetime import datetime, tzinfo

from cronsim import CronSim, CronSimError

from hermes.domain.errors import UsageError
from hermes.domain.jobs import Schedule, ScheduleKind

LATE_SECONDS = 120.0
"""A time this little in the past still counts: people type slowly."""
MAX_MINUTES = 10 * 366 * 24 * 60
MAX_LENGTH = 200
_HINT = "Use e.g. `30m`, `every 2h`, `0 9 * * 1-5` or `2027-01-31T09:00`."
_SPAN = re.compile(r"(\d{1,9})\s*([a-z]+)", re.ASCII)
_CRON_FIELD = re.compile(r"[0-9A-Za-z*/,#-]+", re.ASCII)
_UNITS = {
    "m min mins minute minutes": 1,
    "h hr hrs hour hours": 60,
    "d day days": 24 * 60,
}
_MINUTES = {name: minutes for names, minutes in _UNITS.items() for name in names.split()}


def parse_schedule(text: str, now: float, zone: tzinfo) -> Schedule:
    """Understand what a person wrote; `UsageError` says what is wrong with it."""
    text = " ".join(text.split())
    if not text:
        raise UsageError("The schedule is empty.", hint=_HINT)
    if len(text) > MAX_LENGTH:
        raise UsageError(f"The schedule is longer than {MAX_LENGTH} characters.", hint=_HINT)
    lowered = text.lower()
    if lowered.startswith("every "):
        minutes = _minutes(lowered.removeprefix("every ").strip(), text)
        return Schedule(
            kind=ScheduleKind.INTERVAL, minutes=minutes, display=f"every {_span(minutes)}"
        )
    if _SPAN.fullmatch(lowered):
        minutes = _minutes(lowered, text)
        return Schedule(
            kind=ScheduleKind.ONCE,
            run_at=stamp(now + minutes * 60, zone),
            display=f"once in {_span(minutes)}",
        )
    if len(text.split()) in (5, 6) and text[0] in "*0123456789":
        return _cron(text, now, zone)
    return _moment(text, now, zone)


def next_instant(schedule: Schedule, after: float, *, zone: tzinfo, anchor: float) -> float | None:
    """Return the first instant after `after`; None if there is none any more.

    Intervals are counted from `anchor`. `UsageError` if the schedule makes no
    sense, e.g. because its file was edited by hand.
    """
    match schedule.kind:
        case ScheduleKind.ONCE:
            at = instant_of(schedule.run_at, zone)
            if at is None:
                raise UsageError(f"`{schedule.run_at}` is not a time.", hint=_HINT)
            return at if at > after else None
        case ScheduleKind.INTERVAL:
            return _next_interval(schedule.minutes or 0, after, anchor)
        case ScheduleKind.CRON:
            return _next_cron(schedule.expr or "", after, zone)


def stamp(at: float, zone: tzinfo) -> str:
    """Write an instant as ISO 8601 with offset, in whole seconds."""
    return datetime.fromtimestamp(at, zone).isoformat(timespec="seconds")


def instant_of(text: str | None, zone: tzinfo) -> float | None:
    """Read a time back; without an offset it is in `zone`. None if it is not one."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _minutes(span: str, text: str) -> int:
    found = _SPAN.fullmatch(span)
    unit = _MINUTES.get(found[2]) if found else None
    if found is None or unit is None:
        raise UsageError(f"`{text}` is not a time span of minutes, hours or days.", hint=_HINT)
    minutes = int(found[1]) * unit
    if minutes < 1:
        raise UsageError(f"`{text}` is less than a minute.", hint=_HINT)
    if minutes > MAX_MINUTES:
        raise UsageError(f"`{text}` is more than ten years.", hint=_HINT)
    return minutes


def _span(minutes: int) -> str:
    if minutes % (24 * 60) == 0:
        return f"{minutes // (24 * 60)}d"
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def _moment(text: str, now: float, zone: tzinfo) -> Schedule:
    at = instant_of(text, zone)
    if at is None:
        raise UsageError(f"`{text}` is not a schedule.", hint=_HINT)
    if at < now - LATE_SECONDS:
        raise UsageError(f"`{text}` is in the past.", hint="Give a time in the future.")
    if at > now + MAX_MINUTES * 60:
        raise UsageError(f"`{text}` is more than ten years away.", hint=_HINT)
    written = stamp(at, zone)
    shown = written[:16].replace("T", " ")
    return Schedule(kind=ScheduleKind.ONCE, run_at=written, display=f"once at {shown}")


def _cron(text: str, now: float, zone: tzinfo) -> Schedule:
    if _next_cron(text, now, zone) is None:
        raise UsageError(f"`{text}` never happens.", hint="Check the day and the month.")
    return Schedule(kind=ScheduleKind.CRON, expr=text, display=text)


def _next_interval(minutes: int, after: float, anchor: float) -> float:
    if not 1 <= minutes <= MAX_MINUTES:
        raise UsageError(f"An interval of {minutes} minutes is not possible.", hint=_HINT)
    step = minutes * 60.0
    due = anchor + max((after - anchor) // step + 1, 1.0) * step
    return due if due > after else due + step


def _next_cron(expr: str, after: float, zone: tzinfo) -> float | None:
    fields = expr.split()
    if len(expr) > MAX_LENGTH or not all(_CRON_FIELD.fullmatch(field) for field in fields):
        raise UsageError(f"`{expr}` is not a cron expression.", hint=_HINT)
    # Only expressions of five fields get the treatment of clock changes that cron has,
    # so a fixed second is taken out of the expression and added afterwards.
    seconds = 0
    if len(fields) == 6:
        last = fields.pop()
        if last.isdecimal() and int(last) < 60:
            seconds = int(last)
        else:
            fields.insert(0, last)
    try:
        return _simulated(" ".join(fields), after - seconds, seconds, zone)
    except CronSimError as error:
        raise UsageError(f"`{expr}` is not a cron expression: {error}.", hint=_HINT) from error


def _simulated(expr: str, start: float, seconds: int, zone: tzinfo) -> float | None:
    for moment in CronSim(expr, datetime.fromtimestamp(start, zone)):
        # When the clock is put back, a time on the wall can be one that has passed already.
        if (due := moment.timestamp()) > start:
            return due + seconds
    return None
