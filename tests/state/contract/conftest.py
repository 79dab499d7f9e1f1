from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.domain.ports.ledger import Ledger
from hermes.testing import temporary_ledger

ENGINES = {"sqlite": temporary_ledger}
"""Every engine keeps the same contract: another one is one more entry here."""


@pytest.fixture(params=ENGINES)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    async with ENGINES[request.param](tmp_path) as opened:
        yield opened
