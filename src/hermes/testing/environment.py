"""FakeEnvironment: a session's hands without a machine.

Files are a dict, commands are answered from a script and recorded, and
background processes end when the test says so.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence

from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.ports.execution import (
    NOTHING,
    CommandResult,
    DirEntry,
    Environment,
    FileStat,
    ProcessInfo,
    ShellRun,
    digest,
)

Answer = str | CommandResult


class FakeEnvironment:
    """An environment in memory."""

    def __init__(
        self,
        *,
        cwd: str = "/work",
        files: Mapping[str, bytes | str] | None = None,
        answers: Mapping[str, Answer] | Callable[[ShellRun], Answer] | None = None,
        exposed: tuple[str, ...] = (),
        can_leave: bool = False,
    ) -> None:
        """Begin with `files`; `answers` maps scripts to outputs, or makes them."""
        self.files: dict[str, bytes] = {}
        self.commands: list[ShellRun] = []
        self.typed: dict[str, str] = {}
        self.closed = False
        self.about = ""
        self.own: tuple[str, ...] = ()
        self._cwd = cwd
        self.exposed = exposed
        self.can_leave = can_leave
        self._answers = answers or {}
        self._processes: dict[str, ProcessInfo] = {}
        self._outputs: dict[str, str] = {}
        for path, data in (files or {}).items():
            content = data.encode() if isinstance(data, str) else data
            self.files[self.resolve(path)] = content

    @property
    def cwd(self) -> str:
        return self._cwd

    async def run(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Record the command and return its scripted answer; unknown ones exit with 127."""
        self.commands.append(command)
        answer = self._answer(command)
        if isinstance(answer, str):
            answer = CommandResult(exit_code=0, output=answer, cwd=self._cwd)
        self._cwd = answer.cwd
        if on_output is not None and answer.output:
            on_output(answer.output)
        return answer

    async def spawn(
        self,
        command: ShellRun,
        on_output: Callable[[str], None] | None = None,  # noqa: ARG002
    ) -> ProcessInfo:
        self.commands.append(command)
        info = ProcessInfo(
            id=f"proc_{len(self._processes) + 1}",
            command=command.script,
            started_at=0.0,
            running=True,
            cwd=self.resolve(command.cwd or "."),
        )
        self._processes[info.id] = info
        return info

    def end(self, process_id: str, exit_code: int = 0, output: str = "") -> None:
        info = self._process(process_id)
        self._outputs[process_id] = self._outputs.get(process_id, "") + output
        self._processes[process_id] = ProcessInfo(
            id=info.id,
            command=info.command,
            started_at=info.started_at,
            running=False,
            exit_code=exit_code,
        )

    async def processes(self) -> list[ProcessInfo]:
        return list(self._processes.values())

    async def process_output(self, process_id: str, offset: int = 0) -> tuple[str, int]:
        self._process(process_id)
        output = self._outputs.get(process_id, "")
        return output[offset:], len(output)

    async def write_stdin(self, process_id: str, data: str) -> None:
        self._process(process_id)
        self.typed[process_id] = self.typed.get(process_id, "") + data

    async def close_stdin(self, process_id: str) -> None:
        self._process(process_id)

    async def wait(self, process_id: str, timeout: float) -> ProcessInfo:  # noqa: ARG002 - a port
        """Return the process as it is: time does not pass here."""
        return self._process(process_id)

    async def kill(self, process_id: str) -> ProcessInfo:
        if self._process(process_id).running:
            self.end(process_id, exit_code=143)
        return self._process(process_id)

    def resolve(self, path: str) -> str:
        """Return `path` absolute; `~` is `/home`."""
        if path == "~" or path.startswith("~/"):
            path = "/home" + path[1:]
        return posixpath.normpath(posixpath.join(self._cwd, path))

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        return frozenset([path for path in paths if await self.stat(path) is not None])

    def hides(self, path: str) -> bool:  # noqa: ARG002 - there are no walls
        return False

    def received(self, path: str, name: str) -> str:  # noqa: ARG002 - all files are here
        return path

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; directories exist while files are in them."""
        full = self.resolve(path)
        data = self.files.get(full)
        if data is None and not self._is_dir(full):
            return None
        return FileStat(
            path=full,
            is_dir=data is None,
            is_file=data is not None,
            size=len(data or b""),
            modified_at=0.0,
        )

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        full = self.resolve(path)
        if full not in self.files:
            if self._is_dir(full):
                raise UsageError(f"{path} is a directory, not a file.")
            raise NotFound(f"There is no file at {path}.")
        end = None if limit is None else offset + limit
        return self.files[full][offset:end]

    async def write(self, path: str, data: bytes, was: str = "") -> None:
        full = self.resolve(path)
        if was and was != (digest(self.files[full]) if full in self.files else NOTHING):
            raise Conflict(f"{path} was changed meanwhile; nothing was written.")
        self.files[full] = data

    async def remove(self, path: str) -> None:
        if self.files.pop(self.resolve(path), None) is None:
            raise NotFound(f"There is no file at {path}.")

    async def list_dir(self, path: str) -> list[DirEntry]:
        base = self.resolve(path).rstrip("/") + "/"
        entries: dict[str, DirEntry] = {}
        for name, data in self.files.items():
            if name.startswith(base):
                first, _, deeper = name.removeprefix(base).partition("/")
                size = 0 if deeper else len(data)
                entries[first] = DirEntry(name=first, is_dir=bool(deeper), size=size)
        if not entries and base != "/":
            raise NotFound(f"There is no file at {path}.")
        return [entries[name] for name in sorted(entries)]

    async def close(self) -> None:
        self.closed = True

    def _answer(self, command: ShellRun) -> Answer:
        if callable(self._answers):
            return self._answers(command)
        unknown = CommandResult(
            exit_code=127, output=f"bash: {command.script}: command not found\n", cwd=self._cwd
        )
        return self._answers.get(command.script, unknown)

    def _process(self, process_id: str) -> ProcessInfo:
        if process_id not in self._processes:
            raise NotFound(f"There is no background process `{process_id}`.")
        return self._processes[process_id]

    def _is_dir(self, full: str) -> bool:
        return any(name.startswith(full.rstrip("/") + "/") for name in self.files)


class FakeEnvironments:
    """Hands out one environment per agent and session, made by `make`."""

    def __init__(self, make: Callable[[], Environment] = FakeEnvironment) -> None:
        self._make = make
        self.made: dict[tuple[str, str], Environment] = {}

    async def get(
        self,
        agent_id: str,
        session_id: str,
        cwd: str | None,  # noqa: ARG002 - a port
    ) -> Environment:
        key = (agent_id, session_id)
        if key not in self.made:
            self.made[key] = self._make()
        return self.made[key]

    async def running(self) -> list[ProcessInfo]:
        return []

    async def release(self, session_id: str) -> list[ProcessInfo]:
        for key in [key for key in self.made if key[1] == session_id]:
            await self.made.pop(key).close()
        return []

    async def close(self) -> None:
        for environment in self.made.values():
            await environment.close()
