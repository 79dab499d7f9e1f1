"""An environment whose commands run in a place that is not this machine's own.

A `Place` knows how to reach the other side: it turns a bash script into the
argv that runs it there, and hands out its files. It is opened with the first
use and closed with the environment; a later call opens it anew.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Command, DirEntry, FileStat
from hermes.execution.host.process import KILL_GRACE, Launch, Startable
from hermes.execution.host.shell import Generation, ShellSession
from hermes.execution.host.shell_environment import Rendered, ShellEnvironment


class PlaceFiles(Protocol):
    """The files of a place; paths are absolute and mean what they mean there."""

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        ...

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` where there is something."""
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


class RemoteEnvironment(ShellEnvironment):
    """The hands of one session in a place."""

    _before_restore = "unset $(compgen -e) 2>/dev/null; "

    def __init__(
        self,
        place: Place,
        *,
        clock: Clock,
        notify: Callable[[str, str], None] = lambda *_: None,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        super().__init__(cwd=place.start, clock=clock, notify=notify, kill_grace=kill_grace)
        self._place = place

    @property
    def isolated(self) -> bool:
        """True when commands cannot reach the host's files."""
        return self._place.isolated

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""
        async with self._files() as files:
            return await files.stat(self.resolve(path))

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` where there is something."""
        full = {path: self.resolve(path) for path in paths}
        async with self._files() as files:
            found = await files.present(tuple(full.values()))
        return frozenset(path for path, resolved in full.items() if resolved in found)

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

    @property
    def _home(self) -> str:
        return self._place.home

    async def _keep_script(self, path: str, data: bytes) -> None:
        await self._place.files.write(path, data)

    def _start(self, rendered: Rendered) -> Startable:
        return self._place.launch(rendered.script, rendered.command, background=rendered.background)

    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        return await self._place.collect(generation, outdated)

    async def _settle(self) -> str:
        return await self._place.settle()

    @contextlib.asynccontextmanager
    async def _files(self) -> AsyncIterator[PlaceFiles]:
        with self._in_use():
            await self._opened()
            yield self._place.files
