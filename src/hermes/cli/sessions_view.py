"""How sessions look at the terminal and in JSON."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import click

from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.ports.ledger import LedgerStats, SearchHit, SessionQuery
from hermes.domain.session import Session, StoredMessage

__all__ = [
    "clock",
    "filter_options",
    "hit_line",
    "query_from",
    "session_facts",
    "session_header",
    "session_line",
    "stats_lines",
    "transcript_text",
]


MAX_RESULT = 2000
"""How much of a tool result is shown."""

_KINDS = {
    InputKind.USER: "You",
    InputKind.STEER: "You, meanwhile",
    InputKind.NOTICE: "Notice",
    InputKind.SUMMARY: "Summary of what came before",
}


def clock(at: float) -> str:
    """Return a time as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def session_line(session: Session) -> str:
    """Return one line of the list."""
    name = session.title or session.preview or "(nothing said)"
    messages = f"{session.message_count:>5}"
    return f"{session.id:<26}  {clock(session.updated_at)}  {session.source:<10} {messages}  {name}"


def session_facts(session: Session) -> dict[str, Any]:
    """Return what `--json` says about a session."""
    return {
        "id": session.id,
        "title": session.title,
        "preview": session.preview,
        "source": session.source,
        "agent_id": session.agent_id,
        "model": session.model,
        "provider": session.provider,
        "cwd": session.cwd,
        "user_id": session.user_id,
        "parent_session_id": session.parent_id,
        "started_at": session.started_at,
        "updated_at": session.updated_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "message_count": session.message_count,
        "tool_call_count": session.tool_call_count,
        "input_tokens": session.usage.input_tokens,
        "output_tokens": session.usage.output_tokens,
        "estimated_cost_usd": session.cost_usd,
    }


def session_header(session: Session) -> Iterator[str]:
    """Yield the lines above a transcript."""
    yield f"Session {session.id}" + (f": {session.title}" if session.title else "")
    model = f", {session.model}" if session.model else ""
    yield f"{session.source}, agent {session.agent_id}{model}, started {clock(session.started_at)}"
    if session.ended_at is not None:
        yield f"ended {clock(session.ended_at)} ({session.end_reason})"
    tokens = session.usage.total_tokens
    if tokens:
        cost = f", about ${session.cost_usd:.4f}" if session.cost_usd else ""
        yield f"{session.message_count} messages, {tokens} tokens{cost}"


def transcript_text(messages: list[StoredMessage]) -> Iterator[str]:
    """Yield each message as a block of text."""
    for stored in messages:
        mark = "" if stored.active else "  (no longer in the context)"
        head, body = _block(stored)
        yield f"\n── {head} · {clock(stored.at)}{mark}"
        if body:
            yield body


def hit_line(hit: SearchHit) -> str:
    """Return one search hit as two lines."""
    name = f"  {hit.title}" if hit.title else ""
    return f"{hit.session_id}  {clock(hit.at)}  {hit.role}{name}\n    {hit.snippet}"


def stats_lines(stats: LedgerStats) -> Iterator[str]:
    """Yield what there is, one thing a line."""
    yield f"Sessions   {stats.sessions}"
    for source, count in stats.by_source.items():
        yield f"  {source:<9}{count}"
    yield f"Messages   {stats.messages}"
    yield f"Turns      {stats.turns} ({stats.open_turns} open)"
    yield f"Waiting    {stats.inbox_waiting} in, {stats.outbox_pending} out"
    yield f"Approvals  {stats.approvals_pending} pending"
    yield f"Size       {stats.bytes / 1_048_576:.1f} MiB"


def _block(stored: StoredMessage) -> tuple[str, str]:
    match stored.message:
        case UserMessage(sender=sender, kind=kind, content=content):
            named = sender if sender and kind is InputKind.USER else _KINDS[kind]
            return named, content_text(content)
        case AssistantMessage(text=text, tool_calls=calls):
            lines = [text] if text else []
            lines += [f"  → {call.name} {call.arguments}" for call in calls]
            return "Hermes", "\n".join(lines)
        case ToolMessage(name=name, outcome=outcome, content=content):
            said = content_text(content)
            more = len(said) - MAX_RESULT
            tail = f"\n  … {more} more characters" if more > 0 else ""
            ended = "" if outcome is ToolOutcome.OK else f" ({outcome.value})"
            return f"{name}{ended}", said[:MAX_RESULT] + tail


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
