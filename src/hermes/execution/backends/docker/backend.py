"""The `docker` backend: one container per session, through docker or podman.

The container is made with the first use and removed with the environment;
what the session keeps is in directories of the host that are mounted into it.
Commands come in with `exec`. The command lines are in `docker_command`, the
life of containers in `docker_engine`.
"""

import asyncio
import itertools
import posixpath
import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import Command
from hermes.execution.backend import EnvironmentRequest, checked_project, decode_options, task_id
from hermes.execution.backends.docker.command import (
    HOME,
    STATE_DIR,
    TASKS,
    WORKSPACE,
    ContainerSpec,
    DockerOptions,
    container_spec,
    exec_arguments,
    guarded,
    room_in,
)
from hermes.execution.backends.docker.engine import Engine, capture, disown, find_binary
from hermes.execution.host.contained import View
from hermes.execution.host.process import Launch
from hermes.execution.host.shell import Generation
from hermes.execution.remote.environment import RemoteEnvironment
from hermes.execution.remote.files import RemoteFiles

_MAX_CWD = 8192
_CLIENT_SECONDS = 3.0
"""What ending a command takes beyond the grace it is given inside."""
_NEVER_RAN = frozenset({1, 125, 126, 127, 128, 255})


async def open_environment(request: EnvironmentRequest) -> RemoteEnvironment:
    """Make the environment of one session."""
    options = decode_options(DockerOptions, request.settings.options, "Containers")
    if options.project:
        checked_project(options.project, options.hermes_home)
    task = task_id(request.agent_id, request.session_id)
    base = Path(options.sandbox_dir, "docker", task)
    values = request.settings.base_env
    spec = container_spec(
        options,
        base,
        task,
        {name: values[name] for name in options.forward_env if name in values},
    )
    place = DockerPlace(options, base, spec, env=request.env, start=_start(request.cwd))
    return RemoteEnvironment(
        place,
        clock=request.clock,
        notify=request.notify,
        kill_grace=options.kill_grace + _CLIENT_SECONDS,
    )


def available(binary: str = "") -> str:
    """Return why containers cannot run on this machine; empty if they may."""
    if find_binary(binary, None):
        return ""
    return f"{binary or 'docker or podman'} is not installed (apt install docker.io)"


class DockerPlace:
    """The container of one session."""

    isolated = True
    home = HOME
    state_dir = STATE_DIR

    def __init__(
        self,
        options: DockerOptions,
        base: Path,
        spec: ContainerSpec,
        *,
        env: Mapping[str, str],
        start: str,
    ) -> None:
        self._options = options
        self._base = base
        self._spec = spec
        self._env = env
        self.start = start
        self._engine = Engine(options, env)
        self._numbers = itertools.count(1)
        self._up = False
        self._lost = False
        """The last command did not report its end, if it ran at all."""
        self._crowded = False
        self._room = room_in(options)
        self.files = RemoteFiles(self._call)

    async def open(self) -> None:
        """Bring the container up."""
        if not self._up:
            await asyncio.to_thread(_prepare, self._options, self._base)
            await self._engine.up(self._spec, self._base)
            self._up = True

    def launch(self, script: str, command: Command, *, background: bool) -> Launch:
        """Return what runs bash text inside."""
        pidfile = f"{STATE_DIR}/pid.{next(self._numbers) % 1000}"
        return Launch(
            argv=guarded(
                (self._engine.binary, self._spec.name),
                script,
                pidfile,
                room=self._room,
                pty=command.pty,
                grace=self._options.kill_grace,
            ),
            env=self._env,
            cwd="/",
            stdin=command.stdin,
            interactive=background and command.stdin is None,
            pty=command.pty,
        )

    async def collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        """Return the directory a command ended in, and clear away what is not needed."""
        state = self._base / "state"
        reported = await asyncio.to_thread(_collect, state, generation, outdated)
        self._lost = reported is None
        self._crowded = await asyncio.to_thread(_tasks, state) > self._room
        return reported

    async def settle(self) -> str:
        """Remove the container if no command can be started in it any more."""
        if not self._crowded and not (
            self._lost and not await self._engine.has_room(self._spec.name)
        ):
            return ""
        await self._engine.remove(self._spec.name)
        self._up = self._crowded = False
        return (
            "\n[The container had stopped or had no room for another process."
            " It has been removed; the next command starts a new one.]"
        )

    async def close(self) -> None:
        """Remove the container; what it keeps stays on disk."""
        was_up, self._up = self._up, False
        if was_up:
            await self._engine.remove(self._spec.name)
            await asyncio.to_thread(_clear, self._base, keep=self._options.persistent)

    async def _call(
        self, script: str, stdin: bytes = b"", *, timeout: float = 60.0
    ) -> tuple[int, bytes]:
        inside = exec_arguments(self._spec.name, f"exec 2>&1; {script}")
        # What the client itself has to say must not get between the bytes.
        argv = ("sh", "-c", 'exec "$@" 2>/dev/null', "sh", self._engine.binary, *inside)
        launch = Launch(argv=argv, env=self._env, cwd="/", stdin=stdin)
        status, output = await capture(launch, timeout=timeout)
        if status in _NEVER_RAN:
            self._lost = True
            note = await self.settle()
            if note:
                raise HermesError(note.strip().strip("[]"))
        return status, output


def _prepare(options: DockerOptions, base: Path) -> None:
    """Make the directories that are mounted; whoever runs inside may write there."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ("state", "results", *(("home", "workspace") if options.persistent else ()))
    for name in names:
        directory = base / name
        directory.mkdir(exist_ok=True)
        if not options.run_as_host_user:
            directory.chmod(0o777)


def _clear(base: Path, *, keep: bool) -> None:
    disown(base)
    shutil.rmtree(base / "state", ignore_errors=True)
    if not keep:
        shutil.rmtree(base, ignore_errors=True)


def _collect(state: Path, generation: Generation, outdated: Generation | None) -> str | None:
    view = View(str(state), ("/",))
    for path in (generation.script, *((outdated.env, outdated.cwd) if outdated else ())):
        _quietly_remove(view, path)
    try:
        data = view.read(posixpath.basename(generation.cwd), 0, _MAX_CWD)
    except HermesError:
        return None
    return data.decode("utf-8", "surrogateescape")


def _tasks(state: Path) -> int:
    """Return how many processes there were when the last command started."""
    try:
        return int(View(str(state), ()).read(TASKS, 0, 20))
    except (HermesError, ValueError):
        return 0


def _quietly_remove(view: View, path: str) -> None:
    try:
        view.remove(posixpath.basename(path))
    except HermesError:
        return  # not there, or it belongs to whoever runs inside


def _start(cwd: str) -> str:
    inside = posixpath.normpath(cwd)
    return inside if inside == WORKSPACE or inside.startswith(f"{WORKSPACE}/") else WORKSPACE
