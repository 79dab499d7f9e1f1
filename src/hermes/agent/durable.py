"""Commits that a cancellation cannot tear.

Cancelling a task while it awaits a commit would leave it not knowing whether
the commit happened. `durable` always waits for the answer and only then lets
the cancellation through, so an interrupted turn knows exactly what is in the
ledger.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["durable"]

T = TypeVar("T")


async def durable(commit: Coroutine[Any, Any, T]) -> T:
    """Await `commit` to its end even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(commit)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001, S110 - raised again by task.result() below
            pass
    if cancelled is not None:
        task.exception()
        raise cancelled
    return task.result()
