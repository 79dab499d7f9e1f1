"""The `local` backend: commands and files of this machine.

Nothing is held while the session is idle except a private directory with the
shell state, and that is made on first use.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import DirEntry, FileStat
from hermes.execution.backend import EnvironmentRequest
from hermes.execution.host import files
from hermes.execution.host.process import KILL_GRACE, Launch
from hermes.execution.host.shell import Generation, ShellSession
from hermes.execution.host.shell_environment import Rendered, ShellEnvironment

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


class LocalEnvironment(ShellEnvironment):
    """The hands of one session on this machine."""

    # Opening the terminal by name makes it the controlling one.
    _terminal_prelude = "exec <>/dev/fd/0 >&0 2>&0\n"

    def __init__(
        self,
        *,
        cwd: str,
        env: Mapping[str, str],
        clock: Clock,
        notify: Callable[[str, str], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        absolute = os.path.abspath(cwd)  # noqa: PTH100 - links stay as the user wrote them
        super().__init__(cwd=absolute, clock=clock, notify=notify, kill_grace=kill_grace)
        self._env = env
        self._state_dir: str | None = None

    @property
    def isolated(self) -> bool:
        """Never: these are the host's files."""
        return False

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        return await self._in_thread(files.describe, self.resolve(path))

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` where there is something."""
        return await self._in_thread(files.present, {path: self.resolve(path) for path in paths})

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

    @property
    def _home(self) -> str:
        return self._env.get("HOME", "/")

    async def _keep_script(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(Path(path).write_bytes, data)

    def _start(self, rendered: Rendered) -> Launch:
        command = rendered.command
        return Launch(
            argv=(*_BASH, rendered.script),
            env=_bare(self._env) if rendered.restores else self._env,
            stdin=command.stdin,
            interactive=rendered.background and command.stdin is None,
            pty=command.pty,
        )

    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        return await asyncio.to_thread(_collect, generation, outdated)

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


def _bare(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in ("PATH", "LANG", "LC_ALL") if name in env}
