"""The `sandbox` backend: bubblewrap, without a daemon and without root.

Each session has a sandbox of its own with a private workspace, or the project
directory when it works on one. What a sandbox contains is in `mounts`, how it
is held and entered in `holder`, how its files are read from outside in `view`.
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
from hermes.execution.backend import Backend, EnvironmentRequest
from hermes.execution.backends.sandbox.holder import Holder, missing_tools
from hermes.execution.backends.sandbox.mounts import (
    HOME,
    STATE_DIR,
    SandboxLayout,
    lay_out,
    prepare,
)
from hermes.execution.backends.sandbox.view import View
from hermes.execution.host.files import ThreadedFiles
from hermes.execution.host.process import Launch
from hermes.execution.host.shell import (
    Generation,
    RenderedCommand,
    ShellEnvironment,
    ShellSession,
    collect_state,
)

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KEPT = frozenset({"LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR"})
_ROOM = 12
"""Tasks that must be free inside for a command to start and do something."""


class SandboxEnvironment(ShellEnvironment):
    _home = HOME

    def __init__(self, request: EnvironmentRequest, layout: SandboxLayout) -> None:
        super().__init__(
            cwd=_inside(request.cwd, layout),
            clock=request.clock,
            notify=request.notify,
            kill_grace=request.terminal.daemon_term_grace_seconds,
        )
        self._layout = layout
        self._env = _environment(request.env, request.terminal.env_passthrough)
        self._holder: Holder | None = None
        self._files = ThreadedFiles(self._view)

    async def _open(self) -> ShellSession:
        """Bring it up, or up again if it has ended or has no room for a command."""
        if self._holder is None or not self._holder.running or await self._crowded(self._holder):
            await self._stop()
            await asyncio.to_thread(prepare, self._layout)
            self._holder = await Holder.start(self._layout)
        return self._shell or ShellSession(STATE_DIR, self._cwd)

    async def _shut(self) -> None:
        await self._stop()
        await asyncio.to_thread(_tidy, self._layout.base)

    def _start(self, rendered: RenderedCommand) -> Launch:
        if self._holder is None:
            raise _not_running()
        command = rendered.command
        interactive = rendered.background and command.stdin is None
        return Launch(
            argv=self._holder.command(rendered.script, pty=command.pty),
            env=self._env,
            cwd="/",
            # Never the host's /dev/null: who can open a file can also change its mode.
            stdin=None if interactive else command.stdin or b"",
            interactive=interactive,
            pty=command.pty,
        )

    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        if self._holder is None:  # another command of the session filled it
            return None
        return await asyncio.to_thread(collect_state, self._view(), generation, outdated)

    async def _settle(self) -> str:
        """End what a command left behind if it leaves no room for the next."""
        if self._holder is None or not await self._crowded(self._holder):
            return ""
        await self._stop()
        return (
            f"\n[The sandbox was full: {self._layout.options.max_processes} processes."
            " Everything that ran in it has been ended.]"
        )

    async def _stop(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            await holder.stop()

    def _view(self) -> View:
        if self._holder is None:
            raise _not_running()
        return View(self._holder.root, self._layout.writable)

    async def _crowded(self, holder: Holder) -> bool:
        return await asyncio.to_thread(holder.tasks) > self._layout.options.max_processes - _ROOM


def unavailable() -> str:
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


def _environment(env: Mapping[str, str], passthrough: tuple[str, ...]) -> dict[str, str]:
    """Return what commands start with: nothing of the host's but the language."""
    kept = {
        name: value
        for name, value in env.items()
        if name in _KEPT or name in passthrough or name.startswith("LC_")
    }
    own = {"PATH": _PATH, "HOME": HOME, "USER": "hermes", "LOGNAME": "hermes", "SHELL": "/bin/bash"}
    return {**kept, **own}


def _inside(cwd: str, layout: SandboxLayout) -> str:
    inside = posixpath.normpath(cwd)
    return inside if f"{inside}/".startswith(f"{layout.start}/") else layout.start


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


async def _open_environment(request: EnvironmentRequest) -> SandboxEnvironment:
    reason = unavailable()
    if reason:
        raise HermesError(
            f"The `sandbox` backend cannot run here: {reason}.",
            hint="Or set `terminal.backend` to another backend.",
        )
    return SandboxEnvironment(request, await asyncio.to_thread(lay_out, request))


BACKEND = Backend(open=_open_environment, unavailable=unavailable, private_workspace=True)
