"""Links: what a backend on another machine has to provide.

A link starts a program there and carries bytes to and from it. It need not
tell reliably when or how the program ended, nor be able to kill it: both are
done with bash on the other side (`supervisor`), in the same way for every
link. Scripts and data travel on standard input, so nothing secret is ever part
of a command line and no length limit applies.

A link through a program of this machine (`ssh`, `docker exec`) starts that with
`carry`; one through an API is a `CloudLink` and wraps the two directions of a
program as an `ApiStream` in a `StreamChild`.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.execution.host.process import KILL_GRACE, Child, ChildProcess, ExitWatch, Launch

_LOOK_AGAIN = 30.0
"""Seconds after which an unused sandbox is asked whether it still lives."""
_NO_BASH = ("bash: not found", "command not found: bash")


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
    exposed: tuple[str, ...]
    """Places there that are the person's own, as in `Environment.exposed`."""
    has_terminal: bool
    """True when `RemoteCall.pty` is understood."""
    text_only: bool
    """True when output is carried by lines of text instead of byte for byte."""

    async def open(self) -> int:
        """Make the machine reachable; the number changes when it is a new or restarted one."""

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> ChildProcess:
        """Start a program there; its output goes to `sink`."""

    def explain(self, exit_code: int | None, output: str) -> str:
        """Say why a program ended without a word; called only then."""

    async def close(self) -> None:
        """Let the machine go; `open` may be called again."""


async def carry(
    argv: tuple[str, ...],
    call: RemoteCall,
    sink: Callable[[bytes], None],
    env: Mapping[str, str],
    errors: int | None = None,
) -> Child:
    """Start the program of this machine that carries a call."""
    interactive = call.interactive and not call.pty
    launch = Launch(
        argv=argv,
        env=env,
        stdin=None if interactive or call.pty else call.stdin,
        interactive=interactive,
        pty=call.pty,
        errors=errors,
    )
    child = await Child.start(launch, sink)
    if interactive:
        await child.write(call.stdin)
    return child


class CloudLink(ABC):
    """The part of a `Link` that is the same for sandboxes of a provider.

    A sandbox is made with the first use, and asked whether it still lives when it
    was unused for a while or a command's end was not seen.
    """

    exposed: tuple[str, ...] = ()
    has_terminal = False
    text_only = False

    def __init__(self, name: str, image: str, clock: Clock) -> None:
        self.name = name
        self._image = image
        self._clock = clock
        self._up = False
        self._seen = 0.0
        self._starts = 0

    async def open(self) -> int:
        if self._up and self._clock.monotonic() - self._seen > _LOOK_AGAIN:
            self._up = await self._alive()
            self._seen = self._clock.monotonic()
        if not self._up:
            await self._create()
            self._up = True
            self._starts += 1
            self._seen = self._clock.monotonic()
        return self._starts

    def explain(self, exit_code: int | None, output: str) -> str:
        self._seen = float("-inf")
        said = exit_code is None and any(text in output for text in _NO_BASH)
        if said or exit_code in {126, 127}:
            return f"There is no bash in the image `{self._image}`; nothing was run"
        return f"{self.name} stopped answering; whether the command took effect is unknown"

    @abstractmethod
    async def _alive(self) -> bool: ...

    @abstractmethod
    async def _create(self) -> None: ...


class ApiStream(Protocol):
    """The two directions of one remote program. Failures are `HermesError`s."""

    async def follow(self, sink: Callable[[bytes], None]) -> int | None:
        """Pass output on until there is no more; return the exit code if it is known."""

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def release(self) -> None:
        """Give back what it held; called once, whatever happened before."""


class StreamChild(ExitWatch):
    """A child process whose bytes come through an API; ends when its output does.

    One task reads the output for as long as the child lives; it belongs to the
    child and is always waited for in `close`.
    """

    def __init__(self, stream: ApiStream, sink: Callable[[bytes], None]) -> None:
        super().__init__()
        self._stream = stream
        self._sink = sink
        self._input_open = True
        self._asked_to_end = asyncio.Event()
        self._released = False
        self.exit_code: int | None = None
        self._task = asyncio.get_running_loop().create_task(self._work())

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
        await self.stop(grace)
        if not self._released:
            self._released = True
            with contextlib.suppress(HermesError, TimeoutError):
                await self._stream.release()

    async def write(self, data: bytes) -> None:
        if not self._input_open or not self.running:
            raise HermesError(
                "The standard input of this process is closed.",
                hint="Start the process again to talk to it.",
            )
        await self._stream.write(data)

    def close_stdin(self) -> None:
        self._input_open = False
        self._asked_to_end.set()

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(self._end_input())
                self.exit_code = await self._stream.follow(self._sink)
                ending.cancel()
        except* HermesError as failed:
            said = "; ".join(str(error) for error in failed.exceptions)
            self._sink(f"\n{said}\n".encode())
        finally:
            self._finish()

    async def _end_input(self) -> None:
        await self._asked_to_end.wait()
        await self._stream.end_input()
