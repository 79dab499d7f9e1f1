"""What the tests of the sandbox share: it has to work here, and somebody with a project uses it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.person import Person


@pytest.fixture
async def person(tmp_path: Path) -> AsyncIterator[Person]:
    async with asyncio.timeout(55):
        made = Person(tmp_path)
        yield made
        await made.boxes.pool.close()
