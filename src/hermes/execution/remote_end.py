"""The end of a program on another machine, which no signal of this one tells."""

import asyncio
from collections.abc import Callable

__all__ = ["RemoteEnd"]


class RemoteEnd:
    """The part of a `ChildProcess` that is about its end."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._callback: Callable[[], None] | None = None

    @property
    def running(self) -> bool:
        """True until `_finish` was called."""
        return not self._ended.is_set()

    def when_exited(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end."""
        if self.running:
            self._callback = callback
        else:
            callback()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if `timeout` passes first."""
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def _finish(self) -> None:
        if self.running:
            self._ended.set()
            if self._callback is not None:
                self._callback()
