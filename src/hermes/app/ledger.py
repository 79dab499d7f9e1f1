"""Opening the ledger of a home."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hermes.config.paths import HermesHome
from hermes.domain.ports.ledger import Ledger
from hermes.state.sqlite.ledger import SqliteLedger


@asynccontextmanager
async def open_ledger(home: HermesHome) -> AsyncIterator[Ledger]:
    """Open the ledger for the body of the `with`."""
    async with _opened(home.database, home.backups_dir) as ledger:
        yield ledger


@asynccontextmanager
async def existing_ledger(home: HermesHome) -> AsyncIterator[Ledger]:
    """Open the ledger of a home, or an empty one elsewhere if it has none.

    For commands that only look: they leave no database behind.
    """
    if home.database.exists():
        async with open_ledger(home) as ledger:
            yield ledger
        return
    with TemporaryDirectory(prefix="hermes-") as folder:
        async with _opened(Path(folder) / "state.db", Path(folder)) as ledger:
            yield ledger


@asynccontextmanager
async def _opened(path: Path, backups: Path) -> AsyncIterator[Ledger]:
    ledger = await SqliteLedger.open(path, backups=backups)
    try:
        yield ledger
    finally:
        await ledger.close()
