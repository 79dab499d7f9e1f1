"""The home that commands work on: its configuration, its ledger, and safe ways to print.

Nothing is made by looking: without a database there are no sessions. What is
printed is free of control characters and fits the encoding of the terminal or
pipe it goes to; what comes from the ledger is free of secrets too.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec

from hermes.app.options import AppOptions
from hermes.config.environment import process_environ
from hermes.config.loader import LoadedConfig, inspect_config, load_config, read_env
from hermes.config.paths import HermesHome
from hermes.config.secrets import Redactor
from hermes.domain.errors import NotFound, SessionBusy
from hermes.domain.ports.ledger import Ledger, SessionQuery
from hermes.domain.session import Session, StoredMessage
from hermes.state.ownership import owner_alive
from hermes.state.sqlite.database import IMPORTED, not_imported
from hermes.state.sqlite.ledger import existing_ledger

T = TypeVar("T")
P = ParamSpec("P")

PAGE = 200
"""How many sessions are in memory at a time: each carries its prompt."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def this_home() -> HermesHome:
    return HermesHome.from_environ(process_environ())


def loaded_config(home: HermesHome | None = None) -> LoadedConfig:
    return load_config(home or this_home(), process_environ())


def app_options(**given: Any) -> AppOptions:
    return AppOptions(home=this_home(), environ=process_environ(), **({"cwd": Path.cwd()} | given))


def known_secrets(home: HermesHome) -> Redactor:
    """Return a redactor that knows the secrets even if the configuration has mistakes."""
    read_env(home)  # raises if it cannot be read: unknown secrets cannot be hidden
    return inspect_config(home, process_environ()).redactor()


def say(text: str) -> None:
    """Print lines; names in them were chosen by strangers and may hold anything."""
    shown = "".join(c for c in text if c.isprintable() or c in "\n\t")
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(shown.encode(encoding, "backslashreplace").decode(encoding).rstrip())


def say_json(data: Any) -> None:
    """Print plain data as JSON that people can read too."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def age(text: str) -> float:
    """Read a length of time such as `30d`, in seconds; days if there is no unit."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*([smhdwy]?)", text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a length of time such as 30d, 12h, 2w or 45m.")
    return float(found[1]) * _SECONDS[found[2] or "d"]


def date(text: str) -> float:
    """Read ISO 8601, with or without a time, as a timestamp; local time if there is no zone."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r} is not a date such as 2026-01-31.") from None


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def given(
    opened: Callable[[], AbstractAsyncContextManager[T]],
) -> Callable[[Callable[Concatenate[T, P], Awaitable[None]]], Callable[P, None]]:
    """Make a command of an async function, which gets what `opened` opens as its first argument."""

    def decorate(command: Callable[Concatenate[T, P], Awaitable[None]]) -> Callable[P, None]:
        @wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def main() -> None:
                async with opened() as thing:
                    await command(thing, *args, **kwargs)

            asyncio.run(main())

        return run

    return decorate


async def session_called(ledger: Ledger, reference: str) -> Session:
    found = await ledger.find_session(reference)
    if found is None:
        raise NotFound(
            f"There is no session with the id or title “{reference}”.",
            hint="List the sessions with: hermes sessions list",
        )
    return found


class HomeLedger:
    def __init__(self, ledger: Ledger, home: HermesHome, redactor: Redactor) -> None:
        self.ledger = ledger
        self._home = home
        self._redactor = redactor

    async def note_earlier(self) -> None:
        """Say that conversations of an earlier Hermes wait to be imported, if they do."""
        if await self.ledger.kept(IMPORTED) is None and (note := not_imported(self._home)):
            self.say(note)

    def say(self, text: str) -> None:
        say(self._redactor.redact(text))

    def json_text(self, value: Any) -> str:
        """Return `value` as JSON without secrets, one line."""
        data = self._redactor.redact_value(msgspec.to_builtins(value))
        return msgspec.json.encode(data).decode()

    def say_json(self, value: Any) -> None:
        """Print `value` as one line of JSON, always as UTF-8."""
        sys.stdout.flush()
        sys.stdout.buffer.write(self.json_text(value).encode() + b"\n")

    def show(self, facts: Any, line: str, *, as_json: bool) -> None:
        if as_json:
            self.say_json(facts)
        else:
            self.say(line)

    async def find(self, reference: str) -> Session:
        return await session_called(self.ledger, reference)

    async def matching(self, query: SessionQuery) -> AsyncIterator[Session]:
        """Yield the sessions that match, a page at a time."""
        offset = query.offset
        left = query.limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = msgspec.structs.replace(query, limit=size, offset=offset)
            found = await self.ledger.sessions(page)
            for session in found:
                yield session
            if len(found) < size:
                return
            offset += size
            left = None if left is None else left - size

    async def messages(self, session: Session, *, full: bool) -> list[StoredMessage]:
        """Return what the model would be shown, or all that was ever said."""
        if full:
            return await self.ledger.transcript(session.id)
        return await self.ledger.history(session.id)

    async def check_not_live(self, session: Session) -> None:
        """Refuse to touch a session in the middle of a turn of a running process."""
        turns = await self.ledger.open_turns(session.id)
        if any(owner_alive(turn.owner, self._home.run_dir) for turn in turns):
            raise SessionBusy(
                f"Session {session.id} is in the middle of a turn.",
                hint="Wait until it has ended, or stop the Hermes that runs it.",
            )


@asynccontextmanager
async def _home_ledger(*, deletes: bool = False) -> AsyncIterator[HomeLedger]:
    home = this_home()
    redactor = known_secrets(home)
    async with existing_ledger(home, deletes=deletes) as ledger:
        yield HomeLedger(ledger, home, redactor)


with_ledger = given(_home_ledger)
deleting = given(partial(_home_ledger, deletes=True))
