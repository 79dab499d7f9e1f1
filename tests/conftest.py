"""What all tests share.

Property tests try the same examples every time, so that a red run means a
change for the worse. `make soak` looks for new ones.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from fakes import docker_engine
from hermes.domain.ports.ledger import Ledger
from hermes.testing import temporary_ledger

settings.register_profile("steady", derandomize=True, deadline=None)
if not os.environ.get("EXPLORE"):
    settings.load_profile("steady")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """An empty ledger on disk."""
    async with temporary_ledger(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a Docker engine; tests that use it belong to xdist_group("docker")."""
    reason = docker_engine.missing()
    if reason:
        pytest.skip(reason)
    with docker_engine.docker_engine() as address:
        yield address
