"""Opening the ledger of a home."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.config.paths import HermesHome
from hermes.domain.ports.state import Ledger
from hermes.state.sqlite.ledger import SqliteLedger

__all__ = ["open_ledger"]


@asynccontextmanager
async def open_ledger(home: HermesHome) -> AsyncIterator[Ledger]:
    """Open the ledger for the body of the `with`."""
    ledger = await SqliteLedger.open(home.database, backups=home.backups_dir)
    try:
        yield ledger
    finally:
        await ledger.close()
