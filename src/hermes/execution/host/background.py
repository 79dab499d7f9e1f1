"""Background processes of one session.

Output is read as it comes into a rolling buffer whose offsets count from the
start of the process. A finished process stays listed for half an hour. There
are at most 64: the longest finished makes room, a running one never does.
"""

import asyncio
import secrets
from collections.abc import Callable

from msgspec import Struct

from hermes.domain.errors import Conflict, NotFound
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import ProcessInfo, ShellRun
from hermes.domain.wording import one_line
from hermes.execution.host.output import OutputFilter, Rolling
from hermes.execution.host.process import ChildProcess, Startable
from hermes.execution.host.watch import OutputWatch, read_patterns

MAX_PROCESSES = 64
BUFFER_CHARS = 200_000
NOTICE_CHARS = 1500
NAMED_CHARS = 300
KEEP_FINISHED = 30 * 60.0


class _Process(Struct, kw_only=True):
    id: str
    command: str
    started_at: float
    text: OutputFilter
    output: Rolling
    child: ChildProcess
    watch: OutputWatch
    cwd: str = ""
    outside: bool = False
    listed: bool = True
    ended_at: float | None = None

    def info(self) -> ProcessInfo:
        return ProcessInfo(
            id=self.id,
            command=self.command,
            started_at=self.started_at,
            running=self.child.running,
            cwd=self.cwd,
            exit_code=self.child.exit_code,
            outside=self.outside,
        )


class BackgroundProcesses:
    """Starts, feeds, watches and ends processes that outlive their command."""

    def __init__(self, clock: Clock, notify: Callable[[str, str, int | None], None]) -> None:
        self._clock = clock
        self._notify = notify
        self._processes: dict[str, _Process] = {}

    @property
    def running(self) -> int:
        return sum(process.child.running for process in self._processes.values())

    @property
    def running_since(self) -> float | None:
        """When the oldest that has not ended was started; None when all have."""
        running = (p.started_at for p in self._processes.values() if p.child.running)
        return min(running, default=None)

    @property
    def _watched(self) -> int:
        return sum(p.watch.patterns for p in self._processes.values() if p.child.running)

    async def spawn(
        self,
        launch: Startable,
        command: ShellRun,
        on_output: Callable[[str], None] | None = None,
    ) -> ProcessInfo:
        await self._make_room()
        process_id = f"proc_{secrets.token_hex(4)}"
        text, output = OutputFilter(), Rolling(BUFFER_CHARS)
        watch = OutputWatch(
            await read_patterns(command.watch_patterns, self._watched),
            self._clock,
            lambda what: self._notify(process_id, f"Background process {process_id} {what}", None),
        )

        def take(data: bytes) -> None:
            piece = text.feed(data)
            output.add(piece)
            watch.feed(piece)
            if on_output is not None:
                on_output(piece)

        process = _Process(
            id=process_id,
            command=command.script,
            started_at=self._clock.now(),
            text=text,
            output=output,
            child=await launch.start(take),
            watch=watch,
            cwd=command.cwd or "",
            outside=command.outside,
            listed=command.listed,
        )
        self._processes[process.id] = process
        if command.listed:
            process.child.when_exited(
                lambda: self._ended(process, aloud=command.notify_on_complete)
            )
        return process.info()

    def _ended(self, process: _Process, *, aloud: bool) -> None:
        if process.id not in self._processes:
            return  # ended because the session did
        if not aloud:
            self._notify(process.id, "", process.child.exit_code)
            return
        process.child.drain()
        process.watch.then(lambda: self._tell_end(process))

    def _tell_end(self, process: _Process) -> None:
        output, _ = process.output.since(process.output.end - NOTICE_CHARS)
        self._notify(
            process.id,
            f"Background process {process.id} ended with exit code {process.child.exit_code}:"
            f" {one_line(process.command, NAMED_CHARS)}\n{output.strip() or '[no output]'}",
            process.child.exit_code,
        )

    async def list(self) -> list[ProcessInfo]:
        await self._settle()
        return [process.info() for process in self._processes.values() if process.listed]

    async def output(self, process_id: str, offset: int) -> tuple[str, int]:
        process = self._get(process_id)
        await self._settle()
        return process.output.since(offset)

    async def write(self, process_id: str, data: str) -> None:
        await self._get(process_id).child.write(data.encode())

    async def close_stdin(self, process_id: str) -> None:
        self._get(process_id).child.close_stdin()

    async def wait(self, process_id: str, timeout: float) -> ProcessInfo:
        process = self._get(process_id)
        await process.child.wait(timeout)
        await self._settle()
        return process.info()

    async def kill(self, process_id: str, grace: float) -> ProcessInfo:
        process = self._get(process_id)
        await process.child.stop(grace)
        await self._settle()
        return process.info()

    async def close(self, grace: float) -> None:
        processes, self._processes = list(self._processes.values()), {}
        for process in processes:
            process.watch.close()
        async with asyncio.TaskGroup() as group:
            for process in processes:
                group.create_task(process.child.close(grace))

    def _get(self, process_id: str) -> _Process:
        process = self._processes.get(process_id)
        if process is None:
            known = ", ".join(self._processes) or "none"
            raise NotFound(f"There is no background process `{process_id}` (known: {known}).")
        return process

    async def _settle(self) -> None:
        """Give back what ended processes hold, and forget the long finished."""
        now = self._clock.now()
        for process in list(self._processes.values()):
            if process.child.running:
                continue
            if process.ended_at is None:
                process.ended_at = now
                await process.child.finish_reading()
                process.output.add(process.text.finish())
                await process.child.close()
                if not process.listed:
                    del self._processes[process.id]
            elif now - process.ended_at > KEEP_FINISHED:
                del self._processes[process.id]

    async def _make_room(self) -> None:
        await self._settle()
        while len(self._processes) >= MAX_PROCESSES:
            finished = [p for p in self._processes.values() if p.ended_at is not None]
            if not finished:
                raise Conflict(
                    f"{MAX_PROCESSES} background processes are running already.",
                    hint="Kill one of them first.",
                )
            del self._processes[min(finished, key=lambda p: p.ended_at or 0.0).id]
