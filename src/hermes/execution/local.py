"""The `local` backend: commands and files of this machine.

Nothing is held while the session is idle except a private directory with the
shell state, and that is made on first use.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import (
    Command,
    CommandResult,
    DirEntry,
    FileStat,
    ProcessInfo,
)
from hermes.execution import files
from hermes.execution.background import BackgroundProcesses
from hermes.execution.contract import EnvironmentRequest
from hermes.execution.process import KILL_GRACE, Launch, run
from hermes.execution.shell import MAX_INLINE, Generation, ShellSession

__all__ = ["LocalEnvironment", "open_environment"]

P = ParamSpec("P")
T = TypeVar("T")

_BASH = ("bash", "--noprofile", "--norc", "-c")


async def open_environment(request: EnvironmentRequest) -> "LocalEnvironment":
    """Make the environment of one session."""
    return LocalEnvironment(
        cwd=request.cwd,
        env=request.env,
        clock=request.clock,
        notify=request.notify,
        kill_grace=float(request.settings.options.get("kill_grace", KILL_GRACE)),
    )


class LocalEnvironment:
    """The hands of one session on this machine."""

    def __init__(
        self,
        *,
        cwd: str,
        env: Mapping[str, str],
        clock: Clock,
        notify: Callable[[str, str], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        self._cwd = os.path.abspath(cwd)  # noqa: PTH100 - links stay as the user wrote them
        self._env = env
        self._clock = clock
        self._grace = kill_grace
        self._shell: ShellSession | None = None
        self._state_dir: str | None = None
        self._opening = asyncio.Lock()
        self._background = BackgroundProcesses(clock, notify)
        self._active = 0
        self._last_used = clock.monotonic()

    @property
    def isolated(self) -> bool:
        """Never: these are the host's files."""
        return False

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
            reported = await asyncio.to_thread(_collect, generation, shell.outdated(generation))
            shell.adopt(
                generation,
                reported,
                keep_env=bool(command.env),
                keep_cwd=command.cwd is not None,
            )
        return CommandResult(
            exit_code=finished.exit_code,
            output=finished.output,
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
            path = self._env.get("HOME", "/") + path[1:]
        return os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 - text, not files

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        return await self._in_thread(files.describe, self.resolve(path))

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read bytes of a regular file."""
        return await self._in_thread(files.read_bytes, self.resolve(path), offset, limit)

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file atomically, making parent directories."""
        await self._in_thread(files.write_bytes, self.resolve(path), data)

    async def remove(self, path: str) -> None:
        """Delete a file."""
        await self._in_thread(files.remove_file, self.resolve(path))

    async def list_dir(self, path: str) -> list[DirEntry]:
        """List a directory, sorted by name."""
        return await self._in_thread(files.list_directory, self.resolve(path))

    async def close(self) -> None:
        """Stop everything that still runs; a later call starts anew where this one was."""
        await self._background.close(self._grace)
        async with self._opening:
            self._cwd = self.cwd
            self._shell = None
            directory, self._state_dir = self._state_dir, None
        if directory is not None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _opened(self) -> ShellSession:
        if self._shell is not None:
            return self._shell
        async with self._opening:
            if self._shell is None:
                self._state_dir = await asyncio.to_thread(tempfile.mkdtemp, prefix="hermes-shell-")
                self._shell = ShellSession(self._state_dir, self._cwd)
        return self._shell

    async def _launch(
        self,
        shell: ShellSession,
        generation: Generation,
        command: Command,
        *,
        background: bool = False,
    ) -> Launch:
        script = command.script
        if len(script) > MAX_INLINE // 4:
            await asyncio.to_thread(_write_script, generation.script, script)
            path = shlex.quote(generation.script)
            script = f"IFS= read -rd '' __hermes_script <{path}; eval -- \"$__hermes_script\""
        if command.pty:
            # Opening the terminal by name makes it the controlling one.
            script = f"exec <>/dev/fd/0 >&0 2>&0\n{script}"
        rendered = shell.render(
            script,
            save=None if background else generation,
            cwd=self.resolve(command.cwd) if command.cwd is not None else None,
            exports=command.env,
        )
        # Once there is a snapshot it is the whole truth: a variable that the
        # session unset must not come back from the base environment.
        return Launch(
            argv=(*_BASH, rendered),
            env=self._env if shell.current is None else _bare(self._env),
            stdin=command.stdin,
            interactive=background and command.stdin is None,
            pty=command.pty,
        )

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._last_used = self._clock.monotonic()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._in_use():
            return await asyncio.to_thread(function, *args, **kwargs)


def _collect(generation: Generation, outdated: Generation | None) -> str | None:
    """Read the directory a command ended in, and clear away what is not needed."""
    for path in (generation.script, *((outdated.env, outdated.cwd) if outdated else ())):
        Path(path).unlink(missing_ok=True)
    try:
        return os.fsdecode(Path(generation.cwd).read_bytes())
    except OSError:
        return None


def _write_script(path: str, script: str) -> None:
    Path(path).write_bytes(script.encode("utf-8", "surrogateescape"))


def _bare(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in ("PATH", "LANG", "LC_ALL") if name in env}
