"""`hermes sessions recover`: finish what a crash cut off."""

from pathlib import Path

import click

from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.app.runtime import run
from hermes.config.environment import process_environ
from hermes.config.paths import HermesHome
from hermes.domain.errors import NotFound, SessionBusy
from hermes.domain.events import TurnStream
from hermes.entry.terminal.oneshot import PLATFORM

__all__ = ["recover"]


@click.command()
@click.argument("reference", metavar="[ID|TITLE]", required=False)
def recover(reference: str | None) -> None:
    """Finish turns that a crash cut off, and answer what was never answered.

    Without an argument: all sessions of the terminal. Chats are the gateway's to recover.
    """
    environ = process_environ()
    options = AppOptions(
        home=HermesHome.from_environ(environ), environ=environ, cwd=Path.cwd(), platform=PLATFORM
    )
    run(_recover(options, reference))


async def _recover(options: AppOptions, reference: str | None) -> None:
    async with open_app(options) as app:
        ids = await _sessions(app, reference)
        streams: list[TurnStream] = []

        with app.gateway.doors.watching(lambda job: streams.append(job.stream)):
            for session_id in ids:
                await _recover_one(app, session_id, explicit=reference is not None)
        for stream in streams:
            finished = await stream.wait()
            click.echo(f"{stream.session_id}\t{finished.outcome.value}\t{_line(finished.text)}")
        if not streams:
            click.echo("Nothing was cut off.", err=True)


async def _recover_one(app: App, session_id: str, *, explicit: bool) -> None:
    try:
        await app.gateway.recover(session_id)
    except SessionBusy:
        if explicit:
            raise
        return
    await app.gateway.idle(session_id)


async def _sessions(app: App, reference: str | None) -> list[str]:
    if reference is not None:
        session = await app.ledger.find_session(reference)
        if session is None:
            raise NotFound(
                f"There is no session `{reference}`.", hint="List them with: hermes sessions list"
            )
        return [session.id]
    found = [turn.session_id for turn in await app.ledger.open_turns()]
    found += await app.ledger.sessions_waiting()
    sessions = [await app.ledger.session(session_id) for session_id in dict.fromkeys(found)]
    return [session.id for session in sessions if session and session.source == PLATFORM]


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"
