"""What a backend on another machine has to provide: a `Link`.

A link starts a program there and carries bytes to and from it. It need not
tell reliably when or how the program ended, nor be able to kill it: both are
done with bash on the other side (`remote_supervisor`), in the same way for
every link. Scripts and data travel on standard input, so nothing secret is
ever part of a command line and no length limit applies.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.execution.host.process import KILL_GRACE, ChildProcess


class RemoteCall(Struct, frozen=True, kw_only=True):
    """A program to start over a link."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    interactive: bool = False
    """Keep standard input open after `stdin`."""
    pty: bool = False
    """Give it a terminal there."""


class Link(Protocol):
    """The way to one machine, for one session."""

    name: str
    """For messages, as in "the connection to {name} was lost"."""
    isolated: bool
    """True when commands there cannot reach the host's files."""
    has_terminal: bool
    """True when `RemoteCall.pty` is understood."""
    text_only: bool
    """True when output is carried by lines of text instead of byte for byte."""

    async def open(self) -> int:
        """Make the machine reachable; the number changes when it is a new or restarted one."""
        ...

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> ChildProcess:
        """Start a program there; its output goes to `sink`."""
        ...

    def explain(self, exit_code: int | None, output: str) -> str:
        """Say why a program ended without a word; called only then."""
        ...

    async def close(self) -> None:
        """Let the machine go; `open` may be called again."""
        ...


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
