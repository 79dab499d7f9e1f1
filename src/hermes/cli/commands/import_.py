"""`hermes import`: bring the conversations of an earlier Hermes."""

import asyncio
from pathlib import Path

import click

from hermes.cli.home import say, this_home
from hermes.control.commands.wording import count
from hermes.state.sqlite.earlier import import_earlier

NOT_BROUGHT = (
    "Not brought: frozen system prompts (a session that goes on gets one of today), signed thoughts"
    " of providers, which chat goes on in which session, costs by model, scheduled jobs."
    " Configuration, .env, SOUL.md and memories are read where they are."
)


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be brought.")
def command(path: Path | None, dry_run: bool) -> None:
    """Bring the sessions and messages of an earlier Hermes; its state.db is only read.

    PATH is its state.db or its home; without it, the state.db of this home. What was
    brought before is not brought again.
    """
    home = this_home()
    source = path or home.database
    source = source / "state.db" if source.is_dir() else source
    report = asyncio.run(import_earlier(home, source, dry_run=dry_run))
    verb = "Would bring" if dry_run else "Brought"
    sessions, messages = count(report.sessions, "session"), count(report.messages, "message")
    say(f"{verb} {sessions} with {messages} from {source}.")
    if report.known:
        say(f"{count(report.known, 'session')} had been brought before.")
    if report.went_on:
        say(f"{count(report.went_on, 'session')} went on in both places and stay as they are here.")
    for role, number in report.skipped.items():
        say(f"Not brought: {count(number, 'message')} of the role {role}.")
    say(NOT_BROUGHT)
