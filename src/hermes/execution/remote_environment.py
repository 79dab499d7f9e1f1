"""An environment whose commands run in a place that is not this machine's own.

A `Place` knows how to reach the other side: it turns a bash script into the
argv that runs it there, and hands out its files. Everything else is the same
for all such backends and lives here: shell state, background processes,
idleness, parking. The place is opened with the first use and closed with the
environment; a later call opens it anew.
"""

import asyncio
import contextlib
import posixpath
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import (
    Command,
    CommandResult,
    DirEntry,
    FileStat,
    ProcessInfo,
)
from hermes.execution.background import BackgroundProcesses
from hermes.execution.process import KILL_GRACE, Launch, Startable, run
from hermes.execution.shell import MAX_INLINE, Generation, ShellSession

__all__ = ["Place", "PlaceFiles", "RemoteEnvironment"]


class PlaceFiles(Protocol):
    """The files of a place; paths are absolute and mean what they mean there."""

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        ...

    async def read(self, path: str, offset: int, limit: int | None) -> bytes:
        """Read bytes of a regular file."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file in one step, making parent directories."""
        ...

    async def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    async def list_dir(self, path: str) -> list[DirEntry]:
        """List a directory, sorted by name."""
        ...


class Place(Protocol):
    """Where the commands of one session run."""

    @property
    def isolated(self) -> bool:
        """True when commands there cannot reach the host's files."""
        ...

    @property
    def home(self) -> str:
        """What `~` means there."""
        ...

    @property
    def start(self) -> str:
        """Where the first command starts."""
        ...

    @property
    def state_dir(self) -> str:
        """A directory there for the shell state; exists once the place is open."""
        ...

    @property
    def files(self) -> PlaceFiles:
        """Its files."""
        ...

    async def open(self) -> None:
        """Bring it up; does nothing when it is up."""
        ...

    def launch(self, script: str, command: Command, *, background: bool) -> Launch:
        """Return what runs the bash text `script` there."""
        ...

    async def collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        """Return the directory a command ended in, and clear away what is not needed."""
        ...

    async def settle(self) -> str:
        """Look after the place when a command has ended; return what to tell about it."""
        ...

    async def close(self) -> None:
        """Stop everything in it."""
        ...


class RemoteEnvironment:
    """The hands of one session in a place."""

    def __init__(
        self,
        place: Place,
        *,
        clock: Clock,
        notify: Callable[[str, str], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        self._place = place
        self._clock = clock
        self._grace = kill_grace
        self._cwd = place.start
        self._shell: ShellSession | None = None
        self._opening = asyncio.Lock()
        self._background = BackgroundProcesses(clock, notify)
        self._active = 0
        self._last_used = clock.monotonic()

    @property
    def isolated(self) -> bool:
        """True when commands cannot reach the host's files."""
        return self._place.isolated

    @property
    def cwd(self) -> str:
        """Where relative paths and the next command start."""
        return self._shell.cwd if self._shell else self._cwd

    @property
    def idle_since(self) -> float | None:
        """Monotonic time of the last use; None while something runs in it."""
        return None if self._active or self._background.running else self._last_used

    async def run(
        self, command: Command, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Run a command to its end; cancelling the task kills its process group."""
        with self._in_use():
            shell = await self._opened()
            generation = shell.next_generation()
            finished = await run(
                await self._launch(shell, generation, command),
                timeout=command.timeout,
                max_output=command.max_output,
                on_output=on_output,
                grace=self._grace,
            )
            reported = await self._place.collect(generation, shell.outdated(generation))
            shell.adopt(
                generation,
                reported,
                keep_env=bool(command.env),
                keep_cwd=command.cwd is not None,
            )
            note = await self._place.settle()
        return CommandResult(
            exit_code=finished.exit_code,
            output=f"{finished.output}{note}",
            cwd=shell.cwd,
            timed_out=finished.timed_out,
            truncated_bytes=finished.truncated_bytes,
        )

    async def spawn(self, command: Command) -> ProcessInfo:
        """Start a background process and return at once."""
        with self._in_use():
            shell = await self._opened()
            launch = await self._launch(shell, shell.next_generation(), command, background=True)
            return await self._background.spawn(launch, command)

    async def processes(self) -> list[ProcessInfo]:
        """List the session's background processes."""
        return await self._background.list()

    async def process_output(self, process_id: str, offset: int = 0) -> tuple[str, int]:
        """Return output from `offset` on, and the offset to ask for next."""
        return await self._background.output(process_id, offset)

    async def write_stdin(self, process_id: str, data: str) -> None:
        """Send text to a background process."""
        await self._background.write(process_id, data)

    async def close_stdin(self, process_id: str) -> None:
        """Let a background process read the end of its input."""
        await self._background.close_stdin(process_id)

    async def wait(self, process_id: str, timeout: float) -> ProcessInfo:
        """Wait until the process ends or `timeout` passes."""
        with self._in_use():
            return await self._background.wait(process_id, timeout)

    async def kill(self, process_id: str) -> ProcessInfo:
        """End a background process and its children."""
        with self._in_use():
            return await self._background.kill(process_id, self._grace)

    def resolve(self, path: str) -> str:
        """Return `path` absolute, with `~` and the working directory applied."""
        if path == "~" or path.startswith("~/"):
            path = self._place.home + path[1:]
        return posixpath.normpath(posixpath.join(self.cwd, path))

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        async with self._files() as files:
            return await files.stat(self.resolve(path))

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read bytes of a regular file."""
        async with self._files() as files:
            return await files.read(self.resolve(path), offset, limit)

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file atomically, making parent directories."""
        async with self._files() as files:
            await files.write(self.resolve(path), data)

    async def remove(self, path: str) -> None:
        """Delete a file."""
        async with self._files() as files:
            await files.remove(self.resolve(path))

    async def list_dir(self, path: str) -> list[DirEntry]:
        """List a directory, sorted by name."""
        async with self._files() as files:
            return await files.list_dir(self.resolve(path))

    async def close(self) -> None:
        """Stop everything that still runs; a later call starts anew where this one was."""
        async with self._opening:
            self._cwd = self.cwd
            self._shell = None
            try:
                await self._background.close(self._grace)
            finally:
                await self._place.close()

    async def _opened(self) -> ShellSession:
        async with self._opening:
            await self._place.open()
            if self._shell is None:
                self._shell = ShellSession(self._place.state_dir, self._cwd)
            return self._shell

    async def _launch(
        self,
        shell: ShellSession,
        generation: Generation,
        command: Command,
        *,
        background: bool = False,
    ) -> Startable:
        script = command.script
        if len(script) > MAX_INLINE // 4:
            data = script.encode("utf-8", "surrogateescape")
            await self._place.files.write(generation.script, data)
            path = shlex.quote(generation.script)
            script = f"IFS= read -rd '' __hermes_script <{path}; eval -- \"$__hermes_script\""
        rendered = shell.render(
            script,
            save=None if background else generation,
            cwd=self.resolve(command.cwd) if command.cwd is not None else None,
            exports=command.env,
        )
        if shell.current is not None:
            # Once there is a snapshot it is the whole truth: a variable that the
            # session unset must not come back from where the command runs.
            rendered = f"unset $(compgen -e) 2>/dev/null; {rendered}"
        return self._start(rendered, command, generation, background=background)

    def _start(
        self,
        rendered: str,
        command: Command,
        generation: Generation,  # noqa: ARG002 - for places that keep state elsewhere
        *,
        background: bool,
    ) -> Startable:
        """Return what runs `rendered`; `generation` says where it leaves its state."""
        return self._place.launch(rendered, command, background=background)

    @contextlib.asynccontextmanager
    async def _files(self) -> AsyncIterator[PlaceFiles]:
        with self._in_use():
            await self._opened()
            yield self._place.files

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._last_used = self._clock.monotonic()
