"""What every `hermes sessions` command needs: the ledger, and a safe way to print.

Nothing is made by looking: without a database there are no sessions. What is
printed is free of secrets and control characters and fits the encoding of the
terminal or pipe it goes to.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from hermes.config.environment import process_environ
from hermes.config.loader import inspect_config, read_env
from hermes.config.paths import HermesHome
from hermes.config.secrets import Redactor, secrets_in_variables
from hermes.domain.errors import NotFound, SessionBusy
from hermes.domain.ports.ledger import Ledger, SessionQuery
from hermes.domain.session import Session, StoredMessage
from hermes.state.ownership import owner_alive
from hermes.state.sqlite.ledger import existing_ledger

T = TypeVar("T")

PAGE = 200
"""How many sessions are in memory at a time: each carries its prompt."""


class Desk:
    """The ledger of a home, and the person's screen."""

    def __init__(self, ledger: Ledger, home: HermesHome, redactor: Redactor) -> None:
        self.ledger = ledger
        self._home = home
        self._redactor = redactor

    def say(self, text: str) -> None:
        shown = "".join(c for c in self._redactor.redact(text) if c.isprintable() or c in "\n\t")
        encoding = sys.stdout.encoding or "utf-8"
        click.echo(shown.encode(encoding, "backslashreplace").decode(encoding))

    def json_text(self, value: Any) -> str:
        """Return `value` as JSON without secrets, one line."""
        return msgspec.json.encode(self._without_secrets(msgspec.to_builtins(value))).decode()

    def say_json(self, value: Any) -> None:
        """Print `value` as one line of JSON, always as UTF-8."""
        sys.stdout.flush()
        sys.stdout.buffer.write(self.json_text(value).encode() + b"\n")

    async def find(self, reference: str) -> Session:
        found = await self.ledger.find_session(reference)
        if found is None:
            raise NotFound(
                f"There is no session with the id or title “{reference}”.",
                hint="List the sessions with: hermes sessions list",
            )
        return found

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

    async def is_live(self, session: Session) -> bool:
        """Tell whether a running process is in the middle of a turn of the session."""
        turns = await self.ledger.open_turns(session.id)
        return any(owner_alive(turn.owner, self._home.run_dir) for turn in turns)

    async def check_not_live(self, session: Session) -> None:
        """Refuse to touch a session that a running process works on."""
        if await self.is_live(session):
            raise SessionBusy(
                f"Session {session.id} is in the middle of a turn.",
                hint="Wait until it has ended, or stop the Hermes that runs it.",
            )

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.redact(value)
        if isinstance(value, dict):
            return {key: self._without_secrets(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_secrets(item) for item in value]
        return value


def at_desk(work: Callable[[Desk], Awaitable[T]]) -> T:
    """Open the ledger of the home, do `work` and close it."""
    environ = process_environ()
    home = HermesHome.from_environ(environ)
    redactor = _redactor(home)

    async def main() -> T:
        async with existing_ledger(home) as ledger:
            return await work(Desk(ledger, home, redactor))

    return asyncio.run(main())


def _redactor(home: HermesHome) -> Redactor:
    """Know the secrets even if the configuration has mistakes."""
    environ = process_environ()
    loaded = inspect_config(home, environ).loaded
    if loaded is not None:
        return loaded.redactor()
    return Redactor(secrets_in_variables(read_env(home).values, environ))
