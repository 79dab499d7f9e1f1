"""The `singularity` backend: an instance of Apptainer or Singularity per session.

The instance is started with everything of the host contained away; commands
are executed in it through the command line. A directory per session, laid
over the image, keeps what was changed; without persistence changes live in
memory. `apptainer` and `singularity` understand the same words.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.execution.backend import Backend, EnvironmentRequest, exposed_by
from hermes.execution.host.process import Child, Launch, run
from hermes.execution.remote.environment import LinkedEnvironment, open_linked
from hermes.execution.remote.link import RemoteCall, carry

_PROGRAMS = ("apptainer", "singularity")
_STOP_TIMEOUT = 30.0


class SingularityOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    binds: tuple[str, ...] = ()
    """`source:destination[:ro]`, as the command line takes them."""
    start_timeout: float = 900.0
    """Seconds for fetching the image and starting; the first time takes long."""
    program: str = ""
    """Path of the program; empty to look for apptainer, then singularity."""


class SingularityLink:
    has_terminal = True
    text_only = False

    def __init__(self, request: EnvironmentRequest) -> None:
        self._options = request.options(SingularityOptions)
        self._terminal = request.terminal
        self.exposed = exposed_by(self._options.binds)
        self._image = request.terminal.singularity_image
        self._env = request.env
        self._program = self._options.program or _installed(request.env.get("PATH", ""))
        # Instance names are short and plain, so the task goes in as a digest.
        self._instance = f"hermes-{hashlib.sha256(request.task.encode()).hexdigest()[:16]}"
        kept = request.terminal.container_persistent
        self._overlay = request.directory("singularity") / "overlay" if kept else None
        self._up = False
        self._starts = 0
        self.name = f"the {Path(self._program).name} instance `{self._instance}`"

    async def open(self) -> int:
        if not self._up:
            await self._start_instance()
        return self._starts

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> Child:
        argv = (self._program, "exec", f"instance://{self._instance}", *call.argv)
        return await carry(argv, call, sink, self._env)

    def explain(self, exit_code: int | None, output: str) -> str:
        """Say why a command's end was not seen, and start anew the next time."""
        self._up = False
        if exit_code in {126, 127} or '"bash": executable file not found' in output:
            return f"There is no bash in the image `{self._image}`; nothing was run"
        if "no instance found" in output:
            return f"{self.name} is gone; the command was not started"
        return f"{self.name} ended; whether the command took effect is unknown"

    async def close(self) -> None:
        """Stop the instance; its overlay stays."""
        if self._up:
            self._up = False
            with contextlib.suppress(HermesError):
                await self._instance_command("stop", self._instance, timeout=_STOP_TIMEOUT)

    async def _start_instance(self) -> None:
        if self._overlay is not None:
            overlay = self._overlay
            await asyncio.to_thread(overlay.mkdir, parents=True, exist_ok=True, mode=0o700)
        # One that an earlier, killed Hermes left behind holds the overlay.
        await self._instance_command("stop", self._instance, timeout=_STOP_TIMEOUT)
        code, said = await self._instance_command(
            "start",
            *self._flags(),
            self._image,
            self._instance,
            timeout=self._options.start_timeout,
        )
        if code:
            raise _start_error(self._image, said)
        self._up = True
        self._starts += 1

    def _flags(self) -> tuple[str, ...]:
        terminal = self._terminal
        flags = ["--containall", "--no-home"]
        flags += ["--overlay", str(self._overlay)] if self._overlay else ["--writable-tmpfs"]
        for bind in self._options.binds:
            flags += ["--bind", bind]
        if terminal.container_memory:
            flags += ["--memory", f"{terminal.container_memory}M"]
        if terminal.container_cpu:
            flags += ["--cpus", f"{terminal.container_cpu:g}"]
        if not terminal.docker_network:
            flags += ["--net", "--network", "none"]
        return tuple(flags)

    async def _instance_command(self, *words: str, timeout: float) -> tuple[int, str]:
        launch = Launch(argv=(self._program, "instance", *words), env=self._env)
        finished = await run(launch, timeout=timeout, max_output=10_000)
        said = "It took too long." if finished.timed_out else finished.output.strip()
        return finished.exit_code, said


def _installed(path: str) -> str:
    for name in _PROGRAMS:
        if (found := shutil.which(name, path=path or None)) is not None:
            return found
    raise ConfigError(
        "The singularity backend needs the program `apptainer` (or `singularity`).",
        hint="Install Apptainer (apptainer.org), or choose another `terminal.backend`.",
    )


def _start_error(image: str, said: str) -> HermesError:
    last = said.rpartition("\n")[2] or "no reason given"
    if "cgroup" in said:
        return ConfigError(
            f"The instance cannot be limited here: {last}",
            hint="Set `terminal.container_cpu` and `terminal.container_memory` to 0.",
        )
    return HermesError(
        f"No instance of `{image}` could be started: {last}",
        hint="Check `terminal.singularity_image` and that user namespaces are allowed.",
    )


async def _open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    if not request.terminal.singularity_image:
        raise ConfigError(
            "The singularity backend has no image.", hint="Set `terminal.singularity_image`."
        )
    return await open_linked(SingularityLink(request), request, sync=False)


BACKEND = Backend(open=_open_environment)
