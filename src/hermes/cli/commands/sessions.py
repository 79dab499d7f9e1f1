"""`hermes sessions`: list, show, search, export and tidy up conversations."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from hermes.cli.sessions_recover import recover
from hermes.cli.sessions_store import Desk, at_desk
from hermes.cli.sessions_view import (
    filter_options,
    hit_line,
    query_from,
    session_facts,
    session_header,
    session_line,
    stats_lines,
    transcript_text,
)
from hermes.domain.errors import StoreError, UsageError
from hermes.domain.ports.ledger import SearchQuery, SessionQuery
from hermes.domain.session import Session
from hermes.state.transcripts import openai_message

__all__ = ["command"]


@click.group("sessions")
def command() -> None:
    """List, show, search, export and tidy up conversations."""


command.add_command(recover)


@command.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(0), default=20, help="How many; 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(limit: int, as_json: bool, **filters: Any) -> None:
    """List sessions, most recently used first."""
    query = query_from(filters, limit=limit or None)

    async def work(desk: Desk) -> None:
        shown = 0
        async for session in desk.matching(query):
            shown += 1
            if as_json:
                desk.say_json(session_facts(session))
            else:
                desk.say(session_line(session))
        if not shown and not as_json:
            desk.say("There are no such sessions.")

    at_desk(work)


@command.command("show")
@click.argument("reference", metavar="ID|TITLE")
@click.option("--full", is_flag=True, help="Also what was undone or compacted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show_command(reference: str, full: bool, as_json: bool) -> None:
    """Print a conversation."""

    async def work(desk: Desk) -> None:
        session = await desk.find(reference)
        messages = await desk.messages(session, full=full)
        if as_json:
            said = [openai_message(stored.message) for stored in messages]
            desk.say_json(session_facts(session) | {"messages": said})
            return
        for line in (*session_header(session), *transcript_text(messages)):
            desk.say(line)

    at_desk(work)


@command.command("search")
@click.argument("text", nargs=-1, required=True)
@click.option("--session", "reference", metavar="ID|TITLE", help="Only in this session.")
@click.option("--agent", "agent_id", help="Only sessions of this agent.")
@click.option("--role", "roles", multiple=True, type=click.Choice(["user", "assistant", "tool"]))
@click.option("--newest", is_flag=True, help="Newest first instead of best first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def search_command(
    *,
    text: tuple[str, ...],
    reference: str | None,
    agent_id: str | None,
    roles: tuple[str, ...],
    newest: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Find messages by words, "a phrase", begin* or a part of a word."""

    async def work(desk: Desk) -> None:
        inside = None if reference is None else (await desk.find(reference)).id
        query = SearchQuery(
            text=" ".join(text),
            session_id=inside,
            agent_id=agent_id,
            roles=roles,
            newest_first=newest,
            limit=limit,
        )
        hits = await desk.ledger.search(query)
        for hit in hits:
            if as_json:
                desk.say_json(hit)
            else:
                desk.say(hit_line(hit))
        if not hits and not as_json:
            desk.say("Nothing found.")

    at_desk(work)


@command.command("export")
@click.argument("reference", metavar="[ID|TITLE]", required=False)
@click.option("--all", "everything", is_flag=True, help="All sessions that the filters leave.")
@click.option("--full", is_flag=True, help="Also what was undone or compacted.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@filter_options
def export_command(
    reference: str | None, everything: bool, full: bool, output: Path | None, **filters: Any
) -> None:
    """Export as JSON Lines in the OpenAI chat format.

    One session gives a message a line; --all gives a session a line, with its
    messages inside. Secrets known to Hermes are taken out.
    """
    if (reference is None) == (not everything):
        raise UsageError(
            "Say which session to export, or --all.",
            hint="For example: hermes sessions export --all -o sessions.jsonl",
        )
    query = query_from(filters, limit=None)

    async def work(desk: Desk) -> None:
        lines = (
            _whole_sessions(desk, query, full=full)
            if reference is None
            else _one_session(desk, await desk.find(reference), full=full)
        )
        count = 0
        with _sink(output) as write:
            async for line in lines:
                count += 1
                write(line.encode() + b"\n")
        if output is not None:
            click.echo(f"{count} lines written to {output}", err=True)

    at_desk(work)


@command.command("rename")
@click.argument("reference", metavar="ID|TITLE")
@click.argument("title", nargs=-1, required=True)
def rename_command(reference: str, title: tuple[str, ...]) -> None:
    """Give a session another title."""

    async def work(desk: Desk) -> None:
        session = await desk.find(reference)
        renamed = await desk.ledger.rename_session(session.id, " ".join(title))
        desk.say(f"Session {session.id} is now called “{renamed.title}”.")

    at_desk(work)


@command.command("delete")
@click.argument("references", metavar="ID|TITLE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete_command(references: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete sessions with everything in them."""

    async def work(desk: Desk) -> None:
        found = {session.id: session for session in [await desk.find(r) for r in references]}
        for session in found.values():
            await desk.check_not_live(session)
            desk.say(session_line(session))
        if dry_run or not _confirmed(len(found), yes=yes):
            return
        for session in found.values():
            # Asking took time: a turn may have begun meanwhile.
            await desk.check_not_live(session)
            await desk.ledger.delete_session(session.id)
        desk.say(f"Deleted {_count(len(found))}.")

    at_desk(work)


@command.command("prune")
@filter_options
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def prune_command(dry_run: bool, yes: bool, **filters: Any) -> None:
    """Delete the sessions that match all filters; those in a turn are spared."""
    if all(value is None or value is False for value in filters.values()):
        raise UsageError(
            "Say which sessions to prune.",
            hint="For example: hermes sessions prune --older-than 90d",
        )
    query = query_from(filters, limit=None)

    async def work(desk: Desk) -> None:
        busy = {turn.session_id for turn in await desk.ledger.open_turns()}
        count = 0
        async for session in desk.matching(query):
            if session.id not in busy:
                count += 1
                desk.say(session_line(session))
        if count == 0:
            desk.say("There are no such sessions.")
        elif not dry_run and _confirmed(count, yes=yes):
            desk.say(f"Deleted {_count(await desk.ledger.prune_sessions(query))}.")

    at_desk(work)


@command.command("stats")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stats_command(as_json: bool) -> None:
    """Say how much there is."""

    async def work(desk: Desk) -> None:
        stats = await desk.ledger.stats()
        if as_json:
            desk.say_json(stats)
            return
        for line in stats_lines(stats):
            desk.say(line)

    at_desk(work)


async def _one_session(desk: Desk, session: Session, *, full: bool) -> AsyncIterator[str]:
    for message in await _messages(desk, session, full=full):
        yield desk.json_text(message)


async def _whole_sessions(desk: Desk, query: SessionQuery, *, full: bool) -> AsyncIterator[str]:
    async for session in desk.matching(query):
        facts = session_facts(session)
        yield desk.json_text(facts | {"messages": await _messages(desk, session, full=full)})


async def _messages(desk: Desk, session: Session, *, full: bool) -> list[dict[str, Any]]:
    stored = await desk.messages(session, full=full)
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


def _confirmed(count: int, *, yes: bool) -> bool:
    return yes or click.confirm(f"Delete {_count(count)} for good?", err=True)


def _count(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"
