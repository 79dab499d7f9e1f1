"""The `local` backend: commands and files of this machine.

Nothing is held while the session is idle except a private directory with the
shell state, and that is made on first use.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping

from hermes.domain.ports.clock import Clock
from hermes.execution.backend import Backend, EnvironmentRequest
from hermes.execution.host.files import Files, HostFiles, ThreadedFiles
from hermes.execution.host.process import KILL_GRACE, Launch, remove_trees
from hermes.execution.host.shell import (
    Generation,
    RenderedCommand,
    ShellEnvironment,
    ShellSession,
    collect_state,
)

_BASH = ("bash", "--noprofile", "--norc", "-c")


class LocalEnvironment(ShellEnvironment):
    exposed: tuple[str, ...] = ("/",)
    # Opening the terminal by name makes it the controlling one.
    _terminal_prelude = "exec <>/dev/fd/0 >&0 2>&0\n"
    _before_restore = ""

    def __init__(
        self,
        *,
        cwd: str,
        env: Mapping[str, str],
        clock: Clock,
        notify: Callable[[str, str, int | None], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        absolute = os.path.abspath(cwd)  # noqa: PTH100 - links stay as the user wrote them
        super().__init__(cwd=absolute, clock=clock, notify=notify, kill_grace=kill_grace)
        self._env = env
        self._state_dir: str | None = None
        self._host = HostFiles()
        self._files = ThreadedFiles(lambda: self._host)

    @property
    def _home(self) -> str:
        return self._env.get("HOME", "/")

    async def _open(self) -> ShellSession:
        if self._shell is not None:
            return self._shell
        prefix = f"hermes-shell-{os.getpid()}-"  # `sweep_leftovers` goes by it
        self._state_dir = await asyncio.to_thread(tempfile.mkdtemp, prefix=prefix)
        return ShellSession(self._state_dir, self._cwd)

    async def _shut(self) -> None:
        directory, self._state_dir = self._state_dir, None
        if directory is not None:
            await remove_trees(directory)

    def _start(self, rendered: RenderedCommand) -> Launch:
        command = rendered.command
        return Launch(
            argv=(*_BASH, rendered.script),
            env=_bare(self._env) if rendered.restores else self._env,
            stdin=command.stdin,
            interactive=rendered.interactive,
            pty=command.pty,
        )

    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        return await asyncio.to_thread(collect_state, self._host, generation, outdated)

    @contextlib.asynccontextmanager
    async def _reached(self) -> AsyncIterator[Files]:
        with self._in_use():  # files are there without a shell
            yield self._files


def _bare(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in ("PATH", "LANG", "LC_ALL") if name in env}


async def _open_environment(request: EnvironmentRequest) -> LocalEnvironment:
    return LocalEnvironment(
        cwd=request.cwd,
        env=request.env,
        clock=request.clock,
        notify=request.notify,
        kill_grace=request.terminal.daemon_term_grace_seconds,
    )


BACKEND = Backend(open=_open_environment)
