"""Time, so that tests can own it."""

import asyncio
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from hermes.domain.errors import ConfigError


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable."""


async def wait_at_most(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Wait for an event, but no longer than this."""
    async with asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[Any]] = {
            group.create_task(clock.sleep(seconds)),
            group.create_task(event.wait()),
        }
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def zone_named(name: str) -> tzinfo:
    """Return the zone called `name`, e.g. `Europe/Berlin`; empty: that of this machine."""
    if not name.strip():
        return _MachineZone()
    try:
        return ZoneInfo(name.strip())
    except (ValueError, OSError, LookupError) as error:
        raise ConfigError(
            f"`{name}` is not a known time zone.",
            hint="Use a name such as Europe/Berlin, or leave `timezone` empty.",
        ) from error


class _MachineZone(tzinfo):
    """The zone of this machine with its clock changes, which a fixed offset lacks."""

    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _moment: datetime | None, /) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None, /) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime, /) -> datetime:
        # The naive local time is made by the C library, which also sets `fold`.
        local = datetime.fromtimestamp(moment.replace(tzinfo=UTC, microsecond=0).timestamp())  # noqa: DTZ006
        return local.replace(tzinfo=self, microsecond=moment.microsecond)


def clock_time(at: float, zone: str) -> str:
    """Return a moment as people read it in the zone of that name: `2027-01-31 09:00`."""
    return datetime.fromtimestamp(at, zone_named(zone)).strftime("%Y-%m-%d %H:%M")
