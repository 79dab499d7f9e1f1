from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.domain.ports.state import Ledger
from hermes.state.memory.ledger import MemoryLedger
from hermes.state.sqlite.ledger import SqliteLedger


@pytest.fixture(params=["memory", "sqlite"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    opened: Ledger
    if request.param == "memory":
        opened = MemoryLedger()
    else:
        opened = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    yield opened
    await opened.close()
