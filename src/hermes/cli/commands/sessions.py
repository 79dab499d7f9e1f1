"""`hermes sessions`: list, show, search, export and tidy up conversations."""

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from hermes.app.build import App, open_app
from hermes.app.options import run
from hermes.cli.home import (
    HomeLedger,
    age,
    app_options,
    date,
    deleting,
    json_lines_option,
    json_option,
    session_called,
    when,
    with_ledger,
)
from hermes.control.commands.wording import count
from hermes.domain.errors import SessionBusy, StoreError, UsageError
from hermes.domain.events import TurnStream
from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.ports.ledger import LedgerStats, SearchQuery, SessionQuery
from hermes.domain.session import SearchHit, Session, StoredMessage
from hermes.domain.wording import one_line
from hermes.entry.terminal.oneshot import PLATFORM
from hermes.state.transcripts import openai_message

MAX_RESULT = 2000
"""How much of a tool result is shown."""

_KINDS = {
    InputKind.USER: "You",
    InputKind.STEER: "You, meanwhile",
    InputKind.NOTICE: "Notice",
    InputKind.SUMMARY: "Summary of what came before",
}


def session_line(session: Session) -> str:
    name = session.title or session.preview or "(nothing said)"
    messages = f"{session.message_count:>5}"
    return f"{session.id:<26}  {when(session.updated_at)}  {session.source:<10} {messages}  {name}"


def session_facts(session: Session) -> dict[str, Any]:
    own = "id title preview source agent_id model provider cwd user_id"
    times = "started_at updated_at ended_at end_reason message_count tool_call_count"
    return {
        **{name: getattr(session, name) for name in own.split()},
        "parent_session_id": session.parent_id,
        **{name: getattr(session, name) for name in times.split()},
        "input_tokens": session.usage.input_tokens,
        "output_tokens": session.usage.output_tokens,
        "estimated_cost_usd": session.cost_usd,
    }


def session_header(session: Session) -> Iterator[str]:
    yield f"Session {session.id}" + (f": {session.title}" if session.title else "")
    model = f", {session.model}" if session.model else ""
    yield f"{session.source}, agent {session.agent_id}{model}, started {when(session.started_at)}"
    if session.ended_at is not None:
        yield f"ended {when(session.ended_at)} ({session.end_reason})"
    tokens = session.usage.total_tokens
    if tokens:
        cost = f", about ${session.cost_usd:.4f}" if session.cost_usd else ""
        yield f"{session.message_count} messages, {tokens} tokens{cost}"


def transcript_text(messages: list[StoredMessage]) -> Iterator[str]:
    for stored in messages:
        mark = "" if stored.active else "  (no longer in the context)"
        head, body = _block(stored)
        yield f"\n── {head} · {when(stored.at)}{mark}"
        if body:
            yield body


def hit_line(hit: SearchHit) -> str:
    name = f"  {hit.title}" if hit.title else ""
    return f"{hit.session_id}  {when(hit.at)}  {hit.role}{name}\n    {hit.snippet}"


def stats_lines(stats: LedgerStats) -> Iterator[str]:
    yield f"Sessions   {stats.sessions}"
    for source, number in stats.by_source.items():
        yield f"  {source:<9}{number}"
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


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--source", help="Only sessions of this door: cli, telegram, cron, ..."),
    click.option("--agent", "agent_id", help="Only sessions of this agent."),
    click.option("--title", help="Only titles that contain this."),
    click.option("--model", help="Only sessions with this model."),
    click.option("--user", "user_id", help="Only sessions of this user."),
    click.option("--cwd", help="Only sessions that work in this directory."),
    click.option("--older-than", type=age, help="Not used for at least this long: 30d, 12h."),
    click.option("--newer-than", type=age, help="Started within this time, e.g. 7d."),
    click.option("--before", type=date, help="Started before this date."),
    click.option("--after", type=date, help="Started after this date."),
    click.option("--min-messages", type=click.IntRange(0), help="With at least so many messages."),
    click.option("--max-messages", type=click.IntRange(0), help="With at most so many messages."),
    click.option("--ended", is_flag=True, help="Only sessions that have ended."),
)


def filter_options(command: Decorated) -> Decorated:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def query_from(filters: dict[str, Any], *, limit: int | None) -> SessionQuery:
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


@click.group("sessions")
def command() -> None:
    """List, show, search, export and tidy up conversations."""


@command.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(0), default=20, help="How many; 0 for all.")
@json_lines_option
@with_ledger
async def list_command(store: HomeLedger, /, limit: int, as_json: bool, **filters: Any) -> None:
    """List sessions, most recently used first."""
    query = query_from(filters, limit=limit or None)
    shown = 0
    async for session in store.matching(query):
        shown += 1
        store.show(session_facts(session), session_line(session), as_json=as_json)
    if not shown and not as_json:
        store.say("There are no such sessions.")
        await store.note_earlier()


@command.command("show")
@click.argument("reference", metavar="ID|TITLE")
@click.option("--full", is_flag=True, help="Also what was undone or compacted.")
@json_option
@with_ledger
async def show_command(store: HomeLedger, reference: str, full: bool, as_json: bool) -> None:
    """Print a conversation."""
    session = await store.find(reference)
    messages = await store.messages(session, full=full)
    if as_json:
        said = [openai_message(stored.message) for stored in messages]
        store.say_json(session_facts(session) | {"messages": said})
        return
    for line in (*session_header(session), *transcript_text(messages)):
        store.say(line)


@command.command("search")
@click.argument("text", nargs=-1, required=True)
@click.option("--session", "reference", metavar="ID|TITLE", help="Only in this session.")
@click.option("--agent", "agent_id", help="Only sessions of this agent.")
@click.option("--role", "roles", multiple=True, type=click.Choice(["user", "assistant", "tool"]))
@click.option("--newest", "newest_first", is_flag=True, help="Newest first instead of best first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="How many.")
@json_lines_option
@with_ledger
async def search_command(
    store: HomeLedger,
    /,
    text: tuple[str, ...],
    reference: str | None,
    as_json: bool,
    **query: Any,
) -> None:
    """Find messages by words, "a phrase", prefix* or a part of a word."""
    inside = None if reference is None else (await store.find(reference)).id
    query |= {"text": " ".join(text), "session_id": inside}
    hits = await store.ledger.search(SearchQuery(**query))
    for hit in hits:
        store.show(hit, hit_line(hit), as_json=as_json)
    if not hits and not as_json:
        store.say("Nothing found.")


@command.command("export")
@click.argument("reference", metavar="[ID|TITLE]", required=False)
@click.option("--all", "everything", is_flag=True, help="All sessions that match the filters.")
@click.option("--full", is_flag=True, help="Also what was undone or compacted.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@filter_options
@with_ledger
async def export_command(
    store: HomeLedger,
    /,
    reference: str | None,
    everything: bool,
    full: bool,
    output: Path | None,
    **filters: Any,
) -> None:
    """Export as JSON Lines in the OpenAI chat format.

    One session gives a message a line; --all gives a session a line, with its
    messages inside. Secrets known to Hermes are taken out.
    """
    if (reference is None) == (not everything):
        raise UsageError(
            "Name the session to export, or use --all.",
            hint="For example: hermes sessions export --all -o sessions.jsonl",
        )
    query = query_from(filters, limit=None)
    lines = (
        _whole_sessions(store, query, full=full)
        if reference is None
        else _one_session(store, await store.find(reference), full=full)
    )
    written = 0
    with _sink(output) as write:
        async for line in lines:
            written += 1
            write(line.encode() + b"\n")
    if output is not None:
        click.echo(f"{count(written, 'line')} written to {output}", err=True)


@command.command("rename")
@click.argument("reference", metavar="ID|TITLE")
@click.argument("title", nargs=-1, required=True)
@with_ledger
async def rename_command(store: HomeLedger, reference: str, title: tuple[str, ...]) -> None:
    """Give a session another title."""
    session = await store.find(reference)
    renamed = await store.ledger.rename_session(session.id, " ".join(title))
    store.say(f"Session {session.id} is now called “{renamed.title}”.")


@command.command("delete")
@click.argument("references", metavar="ID|TITLE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@deleting
async def delete_command(
    store: HomeLedger, references: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Delete sessions with everything in them."""
    found = {session.id: session for session in [await store.find(r) for r in references]}
    for session in found.values():
        await store.check_not_live(session)
        store.say(session_line(session))
    if dry_run or not _confirmed(len(found), yes=yes):
        return
    for session in found.values():
        # Asking took time: a turn may have begun meanwhile.
        await store.check_not_live(session)
        await store.ledger.delete_session(session.id)
    store.say(f"Deleted {count(len(found), 'session')}.")


@command.command("prune")
@filter_options
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@deleting
async def prune_command(store: HomeLedger, /, dry_run: bool, yes: bool, **filters: Any) -> None:
    """Delete the sessions that match all filters; those in the middle of a turn are kept."""
    if all(value is None or value is False for value in filters.values()):
        raise UsageError(
            "Name the sessions to prune with at least one filter.",
            hint="For example: hermes sessions prune --older-than 90d",
        )
    query = query_from(filters, limit=None)
    busy = {turn.session_id for turn in await store.ledger.open_turns()}
    found = 0
    async for session in store.matching(query):
        if session.id not in busy:
            found += 1
            store.say(session_line(session))
    if not found:
        store.say("There are no such sessions.")
    elif not dry_run and _confirmed(found, yes=yes):
        store.say(f"Deleted {count(await store.ledger.prune_sessions(query), 'session')}.")


@command.command("stats")
@json_option
@with_ledger
async def stats_command(store: HomeLedger, as_json: bool) -> None:
    """Show how many sessions, messages and turns there are."""
    stats = await store.ledger.stats()
    if as_json:
        store.say_json(stats)
        return
    for line in stats_lines(stats):
        store.say(line)


@command.command("repair")
@with_ledger
async def repair_command(store: HomeLedger) -> None:
    """Build the search index anew; the messages are only read."""
    found = await store.ledger.rebuild_search()
    store.say(f"The search index is new: {count(found, 'message')}.")


async def _one_session(store: HomeLedger, session: Session, *, full: bool) -> AsyncIterator[str]:
    for message in await _messages(store, session, full=full):
        yield store.json_text(message)


async def _whole_sessions(
    store: HomeLedger, query: SessionQuery, *, full: bool
) -> AsyncIterator[str]:
    async for session in store.matching(query):
        facts = session_facts(session)
        yield store.json_text(facts | {"messages": await _messages(store, session, full=full)})


async def _messages(store: HomeLedger, session: Session, *, full: bool) -> list[dict[str, Any]]:
    stored = await store.messages(session, full=full)
    prompt = session.system_prompt
    system = [] if prompt is None else [{"role": "system", "content": prompt}]
    return system + [openai_message(item.message) for item in stored]


@contextmanager
def _sink(output: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Yield what writes to a new private file, or to standard output."""
    if output is None:
        yield sys.stdout.buffer.write
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(output, flags, 0o600), "wb") as file:
            yield file.write
    except OSError as error:
        raise StoreError(
            f"{output} cannot be written ({error.strerror}).",
            hint="Choose another file with -o.",
        ) from error


def _confirmed(number: int, *, yes: bool) -> bool:
    return yes or click.confirm(f"Delete {count(number, 'session')} for good?", err=True)


@command.command("recover")
@click.argument("reference", metavar="[ID|TITLE]", required=False)
def recover_command(reference: str | None) -> None:
    """Finish turns that a crash interrupted, and answer what is still unanswered.

    Without an argument: all sessions of the terminal. The gateway recovers chats itself.
    """
    run(_recover(reference))


async def _recover(reference: str | None) -> None:
    async with open_app(app_options(platform=PLATFORM)) as app:
        ids = await _sessions(app, reference)
        streams: list[TurnStream] = []
        with app.gateway.doors.watching(lambda job: streams.append(job.stream)):
            for session_id in ids:
                try:
                    await app.gateway.recover(session_id)
                    await app.gateway.idle(session_id)
                except SessionBusy:
                    if reference is not None:
                        raise
        for stream in streams:
            finished = await stream.wait()
            answer = one_line(finished.text, 80)
            click.echo(f"{stream.session_id}\t{finished.outcome.value}\t{answer}")
        if not streams:
            click.echo("No turn was interrupted.", err=True)


async def _sessions(app: App, reference: str | None) -> list[str]:
    if reference is not None:
        return [(await session_called(app.ledger, reference)).id]
    found = [turn.session_id for turn in await app.ledger.open_turns()]
    found += await app.ledger.sessions_waiting()
    sessions = [await app.ledger.session(session_id) for session_id in dict.fromkeys(found)]
    return [session.id for session in sessions if session and session.source == PLATFORM]
