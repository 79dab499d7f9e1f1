"""What every environment does with bash, wherever it runs.

Shell state carried from command to command, background processes and the
bookkeeping of idleness are the same everywhere. A backend adds where the
state is kept, what starts a rendered script, and its files.
"""

import asyncio
import contextlib
import posixpath
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from msgspec import Struct

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Command, CommandResult, ProcessInfo
from hermes.execution.host.background import BackgroundProcesses
from hermes.execution.host.process import Startable, run
from hermes.execution.host.shell import MAX_INLINE, Generation, ShellSession


class Rendered(Struct, frozen=True, kw_only=True):
    """A command as bash text that restores and saves the state of the shell."""

    script: str
    command: Command
    generation: Generation
    """Where it leaves its state."""
    outdated: Generation | None
    restores: bool
    """True when variables of the session come back from a snapshot."""
    background: bool


class ShellEnvironment(ABC):
    """The commands and background processes of one session."""

    _terminal_prelude = ""
    """What goes before a script that is given a terminal."""
    _before_restore = ""
    """What takes away the variables of the place before those of the session come back."""

    def __init__(
        self, *, cwd: str, clock: Clock, notify: Callable[[str, str], None], kill_grace: float
    ) -> None:
        self._cwd = cwd
        self._clock = clock
        self._grace = kill_grace
        self._shell: ShellSession | None = None
        self._opening = asyncio.Lock()
        self._background = BackgroundProcesses(clock, notify)
        self._active = 0
        self._last_used = clock.monotonic()

    @property
    def cwd(self) -> str:
        """Where relative paths and the next command start."""
        return self._shell.cwd if self._shell else self._cwd

    @property
    def idle_since(self) -> float | None:
        """Monotonic time of the last use; None while something runs in it."""
        return None if self._active or self._background.running else self._last_used

    @property
    def background_since(self) -> float | None:
        """When the oldest background process that still runs was started."""
        return self._background.running_since

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
            reported = await self._collect(generation, shell.outdated(generation))
            shell.adopt(
                generation,
                reported,
                keep_env=bool(command.env),
                keep_cwd=command.cwd is not None,
            )
            note = await self._settle()
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
            path = self._home + path[1:]
        return posixpath.normpath(posixpath.join(self.cwd, path))

    @property
    @abstractmethod
    def _home(self) -> str:
        """What `~` means where the commands run."""

    @abstractmethod
    async def _opened(self) -> ShellSession:
        """Return the shell state, made ready if it is not."""

    @abstractmethod
    async def _keep_script(self, path: str, data: bytes) -> None:
        """Write a script that is too long for the command line."""

    @abstractmethod
    def _start(self, rendered: Rendered) -> Startable:
        """Return what runs a rendered command."""

    @abstractmethod
    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        """Return the directory a command ended in, and clear away what is not needed."""

    async def _settle(self) -> str:
        """Look after the backend when a command has ended; return what to tell about it."""
        return ""

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
            await self._keep_script(generation.script, script.encode("utf-8", "surrogateescape"))
            path = shlex.quote(generation.script)
            script = f"IFS= read -rd '' __hermes_script <{path}; eval -- \"$__hermes_script\""
        if command.pty:
            script = f"{self._terminal_prelude}{script}"
        text = shell.render(
            script,
            save=None if background else generation,
            cwd=self.resolve(command.cwd) if command.cwd is not None else None,
            exports=command.env,
        )
        # Once there is a snapshot it is the whole truth: a variable that the
        # session unset must not come back from where the command runs.
        restores = shell.current is not None
        return self._start(
            Rendered(
                script=f"{self._before_restore}{text}" if restores else text,
                command=command,
                generation=generation,
                outdated=shell.outdated(generation),
                restores=restores,
                background=background,
            )
        )

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._last_used = self._clock.monotonic()
