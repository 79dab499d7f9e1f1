"""Containers of sessions: found again, started, and removed when nobody owns them.

A container belongs to the process that is named in the `owner` file of its
session's directory. One whose owner is gone is taken over by the next process
that needs it, and removed by the next one that looks around.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from hermes.domain.errors import ConfigError, HermesError
from hermes.execution.backends.docker.command import (
    ContainerSpec,
    DockerOptions,
    counted,
    exec_arguments,
    list_arguments,
    room_in,
)
from hermes.execution.host.process import Child, Launch

_SEARCH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin"
_PULL_SECONDS = 600.0


def find_binary(wanted: str, path: str | None) -> str:
    """Return the container program to use; empty if there is none."""
    names = (wanted,) if wanted else ("docker", "podman")
    for name in names:
        found = shutil.which(name, path=path or _SEARCH) or shutil.which(name, path=_SEARCH)
        if found:
            return found
    return ""


async def capture(launch: Launch, *, timeout: float) -> tuple[int, bytes]:
    """Run a child to its end; return its exit code and its output as bytes."""
    output = bytearray()
    child = await Child.start(launch, output.extend)
    try:
        if not await child.wait(timeout):
            raise HermesError(
                f"`{launch.argv[0]}` did not answer within {timeout:g} s.",
                hint="Check that the container engine is up.",
            )
        await child.finish_reading()
    finally:
        await child.close(0.5)
    return child.exit_code or 0, bytes(output)


class Engine:
    """A container engine behind its command line."""

    def __init__(self, options: DockerOptions, env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        self.binary = find_binary(options.binary, env.get("PATH"))
        if not self.binary:
            raise ConfigError(
                "The `docker` backend needs docker or podman, and neither is installed.",
                hint="Install one (apt install docker.io) or set `terminal.backend`.",
            )

    async def up(self, spec: ContainerSpec, base: Path) -> None:
        """Make sure that the container of a session runs and is ours."""
        await asyncio.to_thread(_own, base)
        state = await self._survey(spec, base)
        if state == "running":
            return
        if state:
            await self._must("start", spec.name)
            return
        run = ("run", "-d", "--name", spec.name, *spec.arguments)
        await self._must(*run, env=spec.environment, timeout=_PULL_SECONDS)

    async def has_room(self, name: str) -> bool:
        """Tell whether a container runs and one more command can be started in it."""
        probe = exec_arguments(name, f"{counted(room_in(self._options))}exit 0")
        with contextlib.suppress(HermesError):
            return (await self._ask(*probe, timeout=5.0))[0] == 0
        return False

    async def remove(self, *names: str) -> None:
        """Remove containers with everything that runs in them."""
        if names:
            await self._ask("rm", "-f", "-v", *names, timeout=60.0)

    async def _survey(self, spec: ContainerSpec, base: Path) -> str:
        """Remove what nobody owns and what is outdated; return the state of this one."""
        listed = await self._must(*list_arguments(self._options))
        state, unwanted = "", []
        for line in listed.splitlines():
            name, _, rest = line.partition("|")
            status, _, directory = rest.partition("|")
            if name == spec.name and status.lower() in {"running", "exited", "created"}:
                state = status.lower()
            elif directory == str(base) or not await asyncio.to_thread(_owned, Path(directory)):
                unwanted.append(name)
        await self.remove(*unwanted)
        return state

    async def _must(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> str:
        status, output = await self._ask(*arguments, env=env, timeout=timeout)
        text = output.decode("utf-8", "replace")
        if status != 0:
            program = os.path.basename(self.binary)  # noqa: PTH119 - text
            raise HermesError(
                f"`{program} {arguments[0]}` failed: {text.strip()[-400:]}.",
                hint=f"Check that `{program} version` works and that the image can be pulled.",
            )
        return text

    async def _ask(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float
    ) -> tuple[int, bytes]:
        launch = Launch(argv=(self.binary, *arguments), env={**self._env, **(env or {})}, cwd="/")
        return await capture(launch, timeout=timeout)


def disown(base: Path) -> None:
    """Take our name off a session's container."""
    (base / "owner").unlink(missing_ok=True)


def _own(base: Path) -> None:
    (base / "owner").write_text(f"{os.getpid()} {_started(os.getpid())}", encoding="ascii")


def _owned(base: Path) -> bool:
    try:
        pid, _, started = (base / "owner").read_text(encoding="ascii").partition(" ")
    except OSError:
        return False
    return pid.isdigit() and _started(int(pid)) == started


def _started(pid: int) -> str:
    """Return when a process was started, to tell it from a later one of that number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(") ")[2].split()[19]
