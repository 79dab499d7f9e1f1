"""Background services: what fails is logged and begun again."""

import asyncio
import logging

import pytest

from hermes.control.supervision.services import keep_running
from hermes.domain.errors import StoreError
from hermes.testing import FakeClock


async def test_a_service_that_fails_is_logged_and_begun_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    troubles: list[Exception] = [RecursionError("too deep"), StoreError("The disk is full.")]
    begun = 0

    async def reaper() -> None:
        nonlocal begun
        begun += 1
        if troubles:
            raise troubles.pop(0)

    with caplog.at_level(logging.WARNING):
        task = asyncio.ensure_future(keep_running(reaper, clock))
        for _ in (1, 2):
            await asyncio.wait_for(clock.until_sleeping(), 10)
            clock.advance(60.0)
        await asyncio.wait_for(task, 10)
    assert begun == 3
    assert "reaper failed" in caplog.text
    assert "too deep" in caplog.text
    assert "The disk is full." in caplog.text


async def test_a_service_that_is_cancelled_stays_ended() -> None:
    started = asyncio.Event()

    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(keep_running(waits, FakeClock()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
