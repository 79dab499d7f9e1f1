"""The one path on which child processes are started, read and ended.

A child runs in a session of its own, so that it and its children can be
signalled as one group and never reach our terminal. Its output comes through
a pipe of its own: the exit of the main process is seen at once even when a
grandchild keeps the pipe open.

Nothing runs between fork and exec, so that the kernel need not copy our memory
first: what confines a child is put on the thread that starts it, and inherited.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor
from pathlib import Path
from typing import Protocol, Self

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.execution.host.output import HeadTail, OutputFilter
from hermes.execution.host.pipes import OutputPipe, close, pipes, terminal, writable

TIMED_OUT = 124
KILL_GRACE = 2.0
"""Seconds between asking a process group to end and making it end."""

_LINGER = 0.1
"""How long output may still arrive after the main process has ended."""
_POLL = 0.02
_MAX_AT_ONCE = 65_536
"""Bytes of input that are written without a thread."""
_RM_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class ChildProcess(Protocol):
    """A process that was started, here or on another machine."""

    @property
    def exit_code(self) -> int | None:
        """As a shell reports it; None while the process runs."""

    @property
    def running(self) -> bool:
        """True until the main process has ended."""

    def when_exited(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the main process has ended."""

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the main process; False if `timeout` passes first."""

    def drain(self) -> None:
        """Take the output that is there now."""

    async def finish_reading(self) -> None:
        """Take what the ended process left; never wait for its heirs."""

    async def stop(self, grace: float = KILL_GRACE) -> None:
        """Ask the group to end, and make it end when `grace` has passed."""

    async def close(self, grace: float = KILL_GRACE) -> None:
        """End the process if it still runs and give back what was held."""

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""

    def close_stdin(self) -> None:
        """Let it read the end of its input."""


class ExitWatch:
    """The end of a process: the part of a `ChildProcess` that is the same for all."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._callback: Callable[[], None] | None = None

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def when_exited(self, callback: Callable[[], None]) -> None:
        if self.running:
            self._callback = callback
        else:
            callback()

    async def wait(self, timeout: float | None = None) -> bool:
        if self._ended.is_set():
            return True
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


class Startable(Protocol):
    """What `run` and `BackgroundProcesses` can start."""

    async def start(self, sink: Callable[[bytes], None]) -> ChildProcess: ...


class Launch(Struct, frozen=True, kw_only=True):
    """What to start on this machine."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes | None = None
    """None: nothing to read."""
    interactive: bool = False
    """Keep standard input open for `Child.write`."""
    pty: bool = False
    """Give it a terminal; what is written to its input is then typed there."""
    errors: int | None = None
    """A descriptor for its standard error; None: it goes where the output goes."""
    launcher: Executor | None = None
    """Starts it from a thread whose confinement it inherits."""

    async def start(self, sink: Callable[[bytes], None]) -> "Child":
        return await Child.start(self, sink)


class ChildResult(Struct, frozen=True, kw_only=True):
    exit_code: int
    output: str
    timed_out: bool
    truncated_bytes: int


async def run(
    launch: Startable,
    *,
    timeout: float,
    max_output: int,
    on_output: Callable[[str], None] | None = None,
    grace: float = KILL_GRACE,
) -> ChildResult:
    """Run a child to its end; on timeout or cancellation end its whole group."""
    text = OutputFilter()
    capture = HeadTail(max_output)

    def take(piece: str) -> None:
        if piece:
            capture.add(piece)
            if on_output is not None:
                on_output(piece)

    child = await launch.start(lambda data: take(text.feed(data)))
    timed_out = False
    try:
        timed_out = not await child.wait(timeout)
        if timed_out:
            await child.stop(grace)
        await child.finish_reading()
    finally:
        await child.close(grace)
    take(text.finish())
    output, missing = capture.result()
    return ChildResult(
        exit_code=TIMED_OUT if timed_out else child.exit_code or 0,
        output=output,
        timed_out=timed_out,
        truncated_bytes=missing,
    )


async def remove_trees(*paths: str | Path) -> None:
    """Delete directories that others have filled: `rm` does not mind how deep they are."""
    if paths:
        remove = Launch(argv=("rm", "-rf", "--", *map(str, paths)), env=_RM_ENVIRONMENT)
        await run(remove, timeout=300.0, max_output=4096)


class Child(ExitWatch):
    """A running child process and its group."""

    def __init__(
        self, process: subprocess.Popen[bytes], output: OutputPipe, stdin: int | None
    ) -> None:
        super().__init__()
        self._process = process
        self.pid = process.pid
        self._output = output
        self._stdin = stdin
        self._watch()

    @classmethod
    async def start(cls, launch: Launch, sink: Callable[[bytes], None]) -> Self:
        if launch.pty:
            ends = terminal()
        elif len(launch.stdin or b"") > _MAX_AT_ONCE:
            ends = await asyncio.to_thread(pipes, launch.stdin, interactive=False)
        else:
            ends = pipes(launch.stdin, interactive=launch.interactive)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                launch.argv,
                stdin=ends.child_in,
                stdout=ends.child_out,
                stderr=ends.child_out if launch.errors is None else launch.errors,
                env=launch.env,
                cwd=launch.cwd,
                start_new_session=True,
            )

        output = OutputPipe(ends.output, sink)
        try:
            # Not awaited: it takes no time, and nobody else would end a process that was started.
            process = launch.launcher.submit(start).result() if launch.launcher else start()
            return cls(process, output, ends.input)
        except BaseException as error:
            output.close()
            close(ends.input)
            if isinstance(error, (OSError, ValueError, BrokenExecutor)):
                raise HermesError(
                    f"Cannot start `{launch.argv[0]}`: {error}.",
                    hint="Check that the program is installed and the directory exists.",
                ) from error
            raise
        finally:
            close(ends.child_in, ends.child_out)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(self.pid)
                loop.add_reader(fd, self._exited, loop, fd)
                return

        def wait() -> None:
            self._process.wait()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._finish)

        threading.Thread(target=wait, daemon=True).start()

    def _exited(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        loop.remove_reader(fd)
        os.close(fd)
        self._process.wait()
        self._finish()

    @property
    def exit_code(self) -> int | None:
        code = self._process.returncode
        return 128 - code if code is not None and code < 0 else code

    def drain(self) -> None:
        self._output.drain()

    async def finish_reading(self) -> None:
        self.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await self._output.ended.wait()

    async def stop(self, grace: float = KILL_GRACE) -> None:
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self._group_gone()
        except TimeoutError:
            self._signal(signal.SIGKILL)
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise
        await self._ended.wait()

    async def close(self, grace: float = KILL_GRACE) -> None:
        try:
            if self.running:
                await self.stop(grace)
        finally:
            self._output.close()
            self.close_stdin()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._stdin is None:
                raise HermesError(
                    "The standard input of this process is closed.",
                    hint="Start the process again to talk to it.",
                )
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await writable(self._stdin)
            except BrokenPipeError:
                self.close_stdin()

    def close_stdin(self) -> None:
        if self._stdin is None:
            return
        if os.isatty(self._stdin):
            with contextlib.suppress(OSError):
                os.write(self._stdin, b"\x04")
        os.close(self._stdin)
        self._stdin = None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _group_gone(self) -> None:
        await self._ended.wait()
        while True:
            if not await asyncio.to_thread(_group_alive, self.pid):
                return
            await asyncio.sleep(_POLL)


def _group_alive(group: int) -> bool:
    """Tell whether a process of the group still runs; one that waits to be reaped does not."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    statuses = list(Path("/proc").glob("[0-9]*/stat"))
    return not statuses or any(_runs_in(group, status) for status in statuses)


def _runs_in(group: int, status: Path) -> bool:
    try:
        # The name, in brackets, may hold anything: read from behind it.
        state, _, member_of = status.read_bytes().rpartition(b") ")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(member_of) == group and state not in (b"Z", b"X")
