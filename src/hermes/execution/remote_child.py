"""A supervised command on another machine, seen as a child process."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from hermes.domain.errors import HermesError
from hermes.execution.process import KILL_GRACE, ChildProcess
from hermes.execution.remote_end import RemoteEnd
from hermes.execution.remote_link import Link, RemoteCall
from hermes.execution.remote_supervisor import MarkReader

__all__ = ["LOST", "RemoteChild"]

LOST = 255
"""Exit code of a command of which nothing more is known."""
_LINGER = 0.1
"""How long the carrier may take to end by itself after the mark."""
_SETTLE = 5.0
"""How long the mark may take to arrive after a kill."""
START_TIMEOUT = 60.0


class RemoteChild(RemoteEnd):
    """Ends when its mark arrives, or when what carried it ends."""

    def __init__(self, link: Link, mark: str, sink: Callable[[bytes], None]) -> None:
        super().__init__()
        self._link = link
        self._sink = sink
        self._reader = MarkReader(mark, sink)
        self._carrier: ChildProcess | None = None
        self._end: Callable[[float], Awaitable[None]] | None = None
        self.lost = False
        """True when it ended without telling how."""

    async def begin(self, call: RemoteCall, end: Callable[[float], Awaitable[None]] | None) -> None:
        """Start it; `end` is how it is killed, None to let it go with its carrier."""
        self._end = end
        try:
            async with asyncio.timeout(START_TIMEOUT):
                self._carrier = await self._link.start(call, self._feed)
        except (asyncio.CancelledError, TimeoutError) as error:
            # It may have begun, or be about to.
            await self._try_to_end(0.0)
            if isinstance(error, TimeoutError):
                raise HermesError(f"Nothing could be started on {self._link.name}.") from error
            raise
        self._carrier.when_exited(self._carrier_ended)

    @property
    def exit_code(self) -> int | None:
        """As a shell reports it; None while the command runs."""
        if self.running:
            return None
        return LOST if self._reader.status is None else self._reader.status

    @property
    def cwd(self) -> str:
        """What the command left in its directory file."""
        return self._reader.cwd

    def drain(self) -> None:
        """Take the output that is there now."""
        if self._carrier is not None and self.running:
            self._carrier.drain()

    async def finish_reading(self) -> None:
        """Do nothing: the mark comes after all output."""

    async def stop(self, grace: float = KILL_GRACE) -> None:
        """Ask the group to end, and make it end when `grace` has passed."""
        if self.running and await self._try_to_end(grace) and await self.wait(_SETTLE):
            return
        if self._carrier is not None:
            await self._carrier.close(_LINGER)
        self._finish()

    async def close(self, grace: float = KILL_GRACE) -> None:
        """End the command if it still runs and let its carrier go."""
        try:
            if self.running:
                await self.stop(grace)
            elif self._carrier is not None:
                await self._carrier.wait(_LINGER)
        finally:
            if self._carrier is not None:
                await self._carrier.close(_LINGER)
            self._finish()

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        if self._carrier is None or not self.running:
            raise HermesError("The standard input of this process is closed.")
        await self._carrier.write(data)

    def close_stdin(self) -> None:
        """Let it read the end of its input."""
        if self._carrier is not None:
            self._carrier.close_stdin()

    async def _try_to_end(self, grace: float) -> bool:
        if self._end is None:
            return False
        with contextlib.suppress(HermesError):
            await self._end(grace)
        return True

    def _feed(self, data: bytes) -> None:
        if self.running and self._reader.feed(data):
            self._finish()

    def _carrier_ended(self) -> None:
        carrier = self._carrier
        if not self.running or carrier is None:
            return
        carrier.drain()
        if self.running:
            self.lost = True
            self._reader.finish()
            tail = self._reader.tail.decode("utf-8", "replace")
            said = self._link.explain(carrier.exit_code, tail)
            self._sink(f"\n[{said}]\n".encode())
            self._finish()
