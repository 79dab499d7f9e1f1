"""A ledger for tests: the real one, on a file of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.domain.ports.ledger import Ledger
from hermes.state.sqlite.ledger import SqliteLedger


@asynccontextmanager
async def temporary_ledger(folder: Path) -> AsyncIterator[Ledger]:
    """Open a SQLite ledger in `folder` for the body of the `with`; about ten milliseconds."""
    ledger = await SqliteLedger.open(folder / "state.db", backups=folder / "backups")
    try:
        yield ledger
    finally:
        await ledger.close()
