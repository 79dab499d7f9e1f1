"""A child process whose bytes come through an API instead of a local pipe.

One task per child reads its output for as long as it lives; it belongs to the
child and is always waited for in `close`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from hermes.domain.errors import HermesError
from hermes.execution.process import KILL_GRACE
from hermes.execution.remote_end import RemoteEnd

__all__ = ["ApiStream", "StreamChild"]


class ApiStream(Protocol):
    """The two directions of one remote program. Failures are `HermesError`s."""

    async def follow(self, sink: Callable[[bytes], None]) -> int | None:
        """Pass output on until there is no more; return the exit code if it is known."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        ...

    async def end_input(self) -> None:
        """Let it read the end of its input."""
        ...

    async def release(self) -> None:
        """Give back what it held; called once, whatever happened before."""
        ...


class StreamChild(RemoteEnd):
    """Runs an `ApiStream` and ends when its output does."""

    def __init__(self, stream: ApiStream, sink: Callable[[bytes], None]) -> None:
        super().__init__()
        self._stream = stream
        self._sink = sink
        self._input_open = True
        self._asked_to_end = asyncio.Event()
        self._code: int | None = None
        self._released = False
        self._task = asyncio.get_running_loop().create_task(self._work())

    @property
    def exit_code(self) -> int | None:
        """What the API reported, if anything."""
        return self._code

    def drain(self) -> None:
        """Do nothing: output is passed on as it comes."""

    async def finish_reading(self) -> None:
        """Do nothing: output is passed on as it comes."""

    async def stop(self, grace: float = KILL_GRACE) -> None:  # noqa: ARG002 - a ChildProcess has it
        """Stop listening; killing is the supervisor's business."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.wait({self._task}))

    async def close(self, grace: float = KILL_GRACE) -> None:
        """Stop listening and give back what was held."""
        await self.stop(grace)
        if not self._released:
            self._released = True
            with contextlib.suppress(HermesError, TimeoutError):
                await self._stream.release()

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        if not self._input_open or not self.running:
            raise HermesError(
                "The standard input of this process is closed.",
                hint="Start the process again to talk to it.",
            )
        await self._stream.write(data)

    def close_stdin(self) -> None:
        """Let it read the end of its input."""
        self._input_open = False
        self._asked_to_end.set()

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(self._end_input())
                self._code = await self._stream.follow(self._sink)
                ending.cancel()
        except* HermesError as failed:
            said = "; ".join(str(error) for error in failed.exceptions)
            self._sink(f"\n{said}\n".encode())
        finally:
            self._finish()

    async def _end_input(self) -> None:
        await self._asked_to_end.wait()
        await self._stream.end_input()
