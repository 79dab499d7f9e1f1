"""The options that choose sessions, the same in `list`, `export` and `prune`."""

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from hermes.domain.ports.state import SessionQuery

__all__ = ["filter_options", "query_from"]

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


class Age(click.ParamType[float]):
    """A length of time such as `30d`, in seconds."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number and a unit; days if there is none."""
        found = _AGE.fullmatch(str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is not an age such as 30d, 12h, 2w or 45m.", param, ctx)
        return float(found[1]) * _UNITS[found[2] or "d"]


class Moment(click.ParamType[float]):
    """A date or a date with a time, as a timestamp."""

    name = "date"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read ISO 8601; local time if there is no zone."""
        try:
            return datetime.fromisoformat(str(value).strip()).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is not a date such as 2026-01-31.", param, ctx)


_OPTIONS = (
    click.option("--source", help="Only sessions of this door: cli, telegram, cron, ..."),
    click.option("--agent", "agent_id", help="Only sessions of this agent."),
    click.option("--title", help="Only titles that contain this."),
    click.option("--model", help="Only sessions with this model."),
    click.option("--user", "user_id", help="Only sessions of this user."),
    click.option("--cwd", help="Only sessions that work in this directory."),
    click.option("--older-than", type=Age(), help="Not used for this long, e.g. 30d or 12h."),
    click.option("--newer-than", type=Age(), help="Started within this time, e.g. 7d."),
    click.option("--before", type=Moment(), help="Started before this date."),
    click.option("--after", type=Moment(), help="Started after this date."),
    click.option("--min-messages", type=click.IntRange(0), help="With at least so many messages."),
    click.option("--max-messages", type=click.IntRange(0), help="With at most so many messages."),
    click.option("--ended", is_flag=True, help="Only sessions that have ended."),
)


def filter_options(command: Command) -> Command:
    """Add the options that choose sessions."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def query_from(filters: dict[str, Any], *, limit: int | None) -> SessionQuery:
    """Return the query that the options ask for."""
    now = time.time()
    older, newer = filters["older_than"], filters["newer_than"]
    starts = [filters["after"], None if newer is None else now - newer]
    plain = ("source", "agent_id", "title", "model", "user_id", "cwd")
    return SessionQuery(
        started_before=filters["before"],
        started_after=max((start for start in starts if start is not None), default=None),
        updated_before=None if older is None else now - older,
        min_messages=filters["min_messages"],
        max_messages=filters["max_messages"],
        ended=True if filters["ended"] else None,
        limit=limit,
        **{name: filters[name] for name in plain},
    )
