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


WAITING = ("tests/journeys/", "tests/entry/chat/test_conformance.py", "examples/")
"""Tests that mostly wait for processes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread what waits over what computes, the longest first, so that no core is idle.

    What shares something for its module is run by one process, which then makes it once.
    """
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        shared = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - private
        if not item.get_closest_marker("xdist_group") and any(
            definition.scope == "module" for definitions in shared for definition in definitions
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    waiting = [item for item in items if item.nodeid.startswith(WAITING)]
    others = [item for item in items if not item.nodeid.startswith(WAITING)]
    waiting.sort(key=lambda item: -max(m.args[0] for m in [*item.iter_markers("timeout"), _USUAL]))
    # None of them near the end, where the other processes would wait for it.
    places = [0.9 * len(others) * number / len(waiting) for number in range(len(waiting))]
    ranked = [*zip(places, waiting, strict=True), *enumerate(others)]
    items[:] = [item for _, item in sorted(ranked, key=lambda each: each[0])]


_USUAL = pytest.mark.timeout(60).mark


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
