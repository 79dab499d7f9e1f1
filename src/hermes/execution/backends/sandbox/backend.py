"""The `sandbox` backend: bubblewrap, without a daemon and without root.

Each session has a sandbox of its own with a private workspace, or the project
directory when it works on one. What a sandbox contains is in
`sandbox_mounts`, how it is held and entered in `sandbox_holder`, how its
files are read from outside in `remote_view`.
"""

import asyncio
import contextlib
import os
import posixpath
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import Command
from hermes.execution.backend import EnvironmentRequest, decode_options, task_directory
from hermes.execution.backends.sandbox.holder import Holder, missing_tools
from hermes.execution.backends.sandbox.mounts import (
    HOME,
    STATE_DIR,
    WORKSPACE,
    Layout,
    SandboxOptions,
    prepare,
)
from hermes.execution.host.contained import View, ViewFiles
from hermes.execution.host.process import Launch
from hermes.execution.host.shell import Generation
from hermes.execution.remote.environment import RemoteEnvironment

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KEPT = frozenset({"LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR"})
_ROOM = 12
"""Tasks that must be free inside for a command to start and do something."""
_MAX_CWD = 8192


async def open_environment(request: EnvironmentRequest) -> RemoteEnvironment:
    """Make the environment of one session."""
    reason = available()
    if reason:
        raise HermesError(
            f"The `sandbox` backend cannot run here: {reason}.",
            hint="Or set `terminal.backend` to another backend.",
        )
    options = decode_options(SandboxOptions, request.settings.options, "The sandbox")
    base = task_directory(options.sandbox_dir, "sandbox", request.agent_id, request.session_id)
    layout = await asyncio.to_thread(prepare, options, base)
    place = SandboxPlace(
        options,
        layout,
        env=_environment(request.env, request.settings.env_passthrough),
        start=_start(request.cwd, layout),
    )
    return RemoteEnvironment(
        place, clock=request.clock, notify=request.notify, kill_grace=options.kill_grace
    )


def available() -> str:
    """Return why sandboxes cannot run on this machine; empty if they can."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux"
    missing = missing_tools()
    if "bwrap" in missing:
        return "bubblewrap is not installed (apt install bubblewrap, dnf install bubblewrap)"
    if missing:
        return f"{' and '.join(missing)} is not installed (package util-linux)"
    if _setting("user/max_user_namespaces") == "0":
        return "user namespaces are off (sysctl user.max_user_namespaces)"
    if os.geteuid() == 0:
        return ""
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "user namespaces are off (sysctl kernel.unprivileged_userns_clone=1)"
    if (
        _setting("kernel/apparmor_restrict_unprivileged_userns") == "1"
        and not Path("/etc/apparmor.d/bwrap-userns-restrict").exists()
        and not Path("/etc/apparmor.d/bwrap").exists()
    ):
        return "AppArmor keeps bubblewrap from user namespaces (add a profile for bwrap)"
    return ""


class SandboxPlace:
    """The sandbox of one session."""

    isolated = True
    home = HOME
    state_dir = STATE_DIR

    def __init__(
        self, options: SandboxOptions, layout: Layout, *, env: Mapping[str, str], start: str
    ) -> None:
        self._options = options
        self._layout = layout
        self._env = env
        self.start = start
        self._holder: Holder | None = None
        self.files = ViewFiles(self._view)

    async def open(self) -> None:
        """Bring it up, or up again if it has ended or has no room for a command."""
        if self._holder is not None:
            if self._holder.running and not await self._crowded(self._holder):
                return
            await self._stop()
        await asyncio.to_thread(prepare, self._options, self._layout.base)
        self._holder = await Holder.start(self._options, self._layout)

    def launch(self, script: str, command: Command, *, background: bool) -> Launch:
        """Return what runs bash text inside."""
        if self._holder is None:
            raise _not_running()
        interactive = background and command.stdin is None
        return Launch(
            argv=self._holder.command(script, pty=command.pty),
            env=self._env,
            cwd="/",
            # Never the host's /dev/null: who can open a file can also change its mode.
            stdin=None if interactive else command.stdin or b"",
            interactive=interactive,
            pty=command.pty,
        )

    async def collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        """Return the directory a command ended in, and clear away what is not needed."""
        if self._holder is None:  # another command of the session filled it
            return None
        return await asyncio.to_thread(_collect, self._view(), generation, outdated)

    async def settle(self) -> str:
        """End what a command left behind if it leaves no room for the next."""
        if self._holder is None or not await self._crowded(self._holder):
            return ""
        await self._stop()
        return (
            f"\n[The sandbox was full: {self._options.max_processes} processes."
            " Everything that ran in it has been ended.]"
        )

    async def close(self) -> None:
        """Stop everything in it; its files stay."""
        await self._stop()
        await asyncio.to_thread(_tidy, self._layout.base)

    async def _stop(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            await holder.stop()

    def _view(self) -> View:
        if self._holder is None:
            raise _not_running()
        return View(self._holder.root, self._layout.writable)

    async def _crowded(self, holder: Holder) -> bool:
        return await asyncio.to_thread(holder.tasks) > self._options.max_processes - _ROOM


def _collect(view: View, generation: Generation, outdated: Generation | None) -> str | None:
    for path in (generation.script, *((outdated.env, outdated.cwd) if outdated else ())):
        with contextlib.suppress(HermesError):
            view.remove(path)
    try:
        return os.fsdecode(view.read(generation.cwd, 0, _MAX_CWD))
    except HermesError:
        return None


def _environment(env: Mapping[str, str], passthrough: frozenset[str]) -> dict[str, str]:
    """Return what commands start with: nothing of the host's but the language."""
    kept = {
        name: value
        for name, value in env.items()
        if name in _KEPT or name in passthrough or name.startswith("LC_")
    }
    own = {"PATH": _PATH, "HOME": HOME, "USER": "hermes", "LOGNAME": "hermes", "SHELL": "/bin/bash"}
    return {**kept, **own}


def _start(cwd: str, layout: Layout) -> str:
    inside = posixpath.normpath(cwd)
    roots = {layout.start, WORKSPACE} if layout.start == WORKSPACE else {layout.start}
    if any(inside == root or inside.startswith(f"{root}/") for root in roots):
        return inside
    return layout.start


def _tidy(base: Path) -> None:
    """Remove what can be made again, and directories that nothing was put into."""
    for name in ("state", "etc"):
        shutil.rmtree(base / name, ignore_errors=True)
    for directory in (base / "workspace", base / "tmp", base / "home", base):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _not_running() -> HermesError:
    return HermesError("The sandbox is not running.", hint="Run a command to start it.")


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
