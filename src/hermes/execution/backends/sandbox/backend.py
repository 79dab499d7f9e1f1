"""The `sandbox` backend: bubblewrap, without a daemon and without root.

Each session has a sandbox of its own with a private workspace, or the project
directory when it works on one. What a sandbox contains is in `mounts`, how it
is held and entered in `holder`, how its files are read from outside in `view`.
"""

import asyncio
import contextlib
import logging
import os
import posixpath
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from hermes.domain.errors import HermesError, UsageError
from hermes.domain.ports.execution import CommandResult, ProcessInfo, ShellRun
from hermes.execution.backend import (
    Backend,
    EnvironmentRequest,
    PooledEnvironment,
    load_backend,
    repository_above,
)
from hermes.execution.backends.sandbox import walls
from hermes.execution.backends.sandbox.again import is_one_command
from hermes.execution.backends.sandbox.footprint import Footprint
from hermes.execution.backends.sandbox.held import Copies, Held, listed
from hermes.execution.backends.sandbox.holder import SYSTEM_PATH, Holder, missing_tools
from hermes.execution.backends.sandbox.mounts import (
    STATE_DIR,
    WORKSPACE,
    SandboxLayout,
    claim,
    lay_out,
    prepare,
)
from hermes.execution.backends.sandbox.patrol import Patrol
from hermes.execution.backends.sandbox.standstill import is_file_work
from hermes.execution.backends.sandbox.view import View
from hermes.execution.host.files import HostFiles, ThreadedFiles
from hermes.execution.host.process import Launch, remove_trees
from hermes.execution.host.shell import (
    Generation,
    RenderedCommand,
    ShellEnvironment,
    ShellSession,
    collect_state,
)

log = logging.getLogger(__name__)

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KEPT = frozenset({"LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR"})
_OF_THE_HOST = """
    DISPLAY WAYLAND_DISPLAY XAUTHORITY DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK SSH_CONNECTION
    SSH_TTY GPG_TTY TMPDIR TMP TEMP XDG_RUNTIME_DIR BROWSER DOCKER_HOST DOCKER_CONTEXT KUBECONFIG
"""
"""Variables that name what is not inside."""
_LOADS = re.compile(
    r"LD_.+|.*(?:PATH|LIB|OPTS?|OPTIONS|STARTUP|PRELOAD|_ENV|_HOME|FLAGS|RC)|ENV", re.ASCII
)
"""Names of variables that make programs load or run something."""
_DISPUTED = (
    "\n[Another session has something running in a sandbox on this project: what this has changed"
    " of what tools of the user obey (.git/config, .envrc, .github) may be put back by it. Look"
    " whether it is there; if not, tell the user to end what runs in the other session first.]"
)
_NAMED = 20
"""Things that a note names."""
_ROOM = 12
"""Tasks that must be free inside for a command to start and do something."""


class SandboxEnvironment(ShellEnvironment):
    _before_restore = "unset PATH PWD OLDPWD SHLVL; "

    def __init__(
        self,
        request: EnvironmentRequest,
        layout: SandboxLayout,
        outside: PooledEnvironment | None,
    ) -> None:
        super().__init__(
            cwd=_inside(request.cwd, layout),
            clock=request.clock,
            notify=request.notify,
            kill_grace=request.terminal.daemon_term_grace_seconds,
        )
        self._layout = layout
        self._outside = outside
        """Where a command runs that a person lets out."""
        self.can_leave = outside is not None
        self.own = (layout.start, layout.home, "/tmp")  # noqa: S108 - the sandbox's own
        self.about = _about(layout, can_leave=self.can_leave)
        self.exposed = (layout.start, *layout.repositories) if layout.project else ()
        self._env = _environment(request, layout.home)
        self._holder: Holder | None = None
        self._unclaimed = layout
        self._lock: int | None = None
        self._notify = request.notify
        self._patrol = Patrol(layout, self._tell_of)
        self._started: set[str] = set()
        """Background processes inside."""
        self._footprint: Footprint | None = None
        self._watching: asyncio.Future[None] | None = None
        self._files = ThreadedFiles(self._view)

    @property
    def _home(self) -> str:
        return self._layout.home

    def hides(self, path: str) -> bool:
        full = self.resolve(path)
        # Of `/etc` a few files show: what is missing there may be on the machine.
        return walls.is_outside(full, self._layout) or f"{full}/".startswith("/etc/")

    def received(self, path: str, name: str) -> str:
        seen = any(map(Path(path).is_relative_to, self.exposed))
        return path if seen else super().received(path, name)

    def _inbox(self) -> str:
        return "/tmp/inbox" if self._layout.project else f"{WORKSPACE}/inbox"  # noqa: S108 - its own

    async def run(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        if command.outside:
            with self._in_use():
                work = partial(self._host().run, self._at_home(command), on_output)
                brief = is_file_work(command.script)
                result, disputed = await self._patrol.outside(self._busy, work, briefly=brief)
            note = _DISPUTED if disputed else ""
            return replace(result, cwd=self.cwd, output=f"{result.output}{note}")
        cwd = self.resolve(command.cwd or ".")
        with self._in_use():
            async with self._inside():
                before = await asyncio.to_thread(walls.beside, self._layout)
                result = await super().run(command, on_output)
        if self._outside is None:
            return result
        if not result.exit_code:
            beside = await asyncio.to_thread(walls.beside, self._layout) - before
            notes = f"{walls.left_out(result.output)}{walls.unseen(beside)}"
            return replace(result, output=f"{result.output}{notes}")
        stop = await asyncio.to_thread(walls.stopped_by, result.output, self._layout, cwd)
        once = bool(stop.reason) and await asyncio.to_thread(is_one_command, command.script)
        return replace(result, walled=stop.reason, evidence=stop.line, repeatable=once)

    async def spawn(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> ProcessInfo:
        if not command.outside:
            with self._in_use():
                async with self._inside():
                    process = await super().spawn(command, on_output)
                    self._started.add(process.id)
            return process
        with self._in_use():
            host = self._host()
            assert isinstance(host, ShellEnvironment)
            launch = await host.prepared(self._at_home(command))
            return await self._background.spawn(launch, command, on_output)

    @contextlib.asynccontextmanager
    async def _inside(self) -> AsyncIterator[None]:
        """Be about to run something inside: the walls are as they should be."""
        await self._opened()
        async with self._patrol.inside(self._busy):
            yield

    async def _busy(self) -> bool:
        """Tell whether a background process that was started inside may be there."""
        running = {process.id for process in await self._background.list() if process.running}
        self._started &= running
        return bool(self._started)

    async def settle_left(self) -> None:
        """Put away what a Hermes that was killed has left, before anything is started."""
        await asyncio.to_thread(self._patrol.settle_left)

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        """Look without starting anything while nothing runs: most projects have no notes."""
        if self._holder is not None or not self._layout.project:
            return await super().present(paths)
        within = {path: self.resolve(path) for path in paths}
        project = f"{self._layout.start}/"
        full = {path: at for path, at in within.items() if at.startswith(project)}
        there = await asyncio.to_thread(HostFiles().present, tuple(full.values()))
        return frozenset(path for path, at in full.items() if at in there)

    def _host(self) -> PooledEnvironment:
        if self._outside is None:
            raise UsageError("Commands cannot leave the sandbox here.")
        return self._outside

    def _at_home(self, command: ShellRun) -> ShellRun:
        """Return a command as it starts on the host: where the session stands, if that is there."""
        cwd = self.resolve(command.cwd or ".")
        # `/tmp` and the home are others there, and a link may have been put in the way.
        real = Path(os.path.realpath(cwd))
        there = command.cwd is not None or any(map(real.is_relative_to, self.exposed))
        return replace(
            command,
            cwd=cwd if there and real.is_dir() else next(iter(self.exposed), self._layout.home),
            env={"PATH": _path_outside(self._env["PATH"], self._layout), **command.env},
            outside=False,
        )

    async def _open(self) -> ShellSession:
        """Bring it up, or up again if it has ended or has no room for a command."""
        if not await asyncio.to_thread(self._layout.is_there):
            await self._stop()
            raise HermesError(
                f"{self._layout.start} is another directory than when this session began.",
                hint="Start a new session there.",
            )
        if self._holder is None or not self._holder.running or self._crowded(self._holder):
            await self._stop()
            reason = unavailable()
            if reason:
                raise HermesError(
                    f"Commands and files need the sandbox, and it cannot run here: {reason}.",
                    hint="Tell the user; `terminal.backend` chooses another place.",
                )
            await asyncio.to_thread(self._prepare)
            self._holder = await Holder.start(self._layout)
            await self._patrol.start(self._holder)
            self._footprint = Footprint(self._layout)
            self._watching = asyncio.ensure_future(self._watch(self._holder, self._footprint))
        if self._shell is None:
            # Variables come in as those of an earlier command do: what leads into the sandbox is
            # the system's, and must not load what a command has put where one of them points.
            lines = (
                f"export {name}={shlex.quote(value)}\n"
                for name, value in self._env.items()
                if name.isidentifier()
            )
            begun = "".join(lines).encode("utf-8", "surrogateescape")
            await asyncio.to_thread(self._view().write, f"{STATE_DIR}/env.0", begun)
        return self._shell or ShellSession(STATE_DIR, self._cwd, begun=True)

    def _prepare(self) -> None:
        if self._lock is None:
            self._layout, self._lock = claim(self._unclaimed)
            self._patrol.take_over(self._layout)
        prepare(self._layout)
        self._patrol.survey()

    async def _shut(self) -> None:
        if self._lock is None and self._holder is None and not self._layout.base.exists():
            return
        await self._stop()
        if self._outside is not None:
            await self._outside.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
        await _tidy(self._layout.base)

    def _start(self, rendered: RenderedCommand) -> Launch:
        if self._holder is None:
            raise _not_running()
        command = rendered.command
        return Launch(
            argv=self._holder.command(f"{rendered.no_input}{rendered.script}", pty=command.pty),
            env={"PATH": SYSTEM_PATH},
            launcher=self._holder.launcher,
            cwd="/",
            # Never the host's /dev/null: who can open a file can also change its mode.
            stdin=None if rendered.interactive else command.stdin or b"",
            interactive=rendered.interactive,
            pty=command.pty,
        )

    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        if self._holder is None:  # another command of the session filled it
            return None
        return await asyncio.to_thread(collect_state, self._view(), generation, outdated)

    async def _settle(self) -> str:
        """Undo what must not stay; end what leaves no room for the next command."""
        note = ""
        if away := await self._patrol.settle(self._busy):
            note = self._note_of(away)
        note += await self._used_too_much()
        if self._holder is not None and self._crowded(self._holder):
            await self._stop()
            note += (
                f"\n[The sandbox was full: {self._layout.options.max_processes} processes."
                " Everything that ran in it has been ended.]"
            )
        return note

    def _note_of(self, away: list[Held]) -> str:
        copies = (
            f" Copies are in {self._layout.held}/<number>: tell the user where, if they may"
            " have saved one of these meanwhile; `cp` with `escalate` puts it back."
        )
        note = (
            f"\n[Renamed to *.held: {listed(away, _NAMED)}."
            " What would run on the host later cannot be made or changed in the sandbox;"
            " a command with `escalate` can ask for it, `git` and `cp` at any time, others while no"
            " process runs there."
            f"{copies if any(held.kept for held in away) else ''}]"
        )
        if any(held.again for held in away):
            note += "\n[It came back at once: everything that ran in the sandbox was ended.]"
        return note

    def _tell_of(self, away: list[Held], aloud: bool) -> None:  # noqa: FBT001
        """Tell the session now, or the person alone: they may have made it."""
        why = (
            "Something in the sandbox put it back at once, so all processes there were ended:"
            " it can be saved or put back now."
            if any(held.again for held in away)
            else "It was made or changed while something runs in the sandbox: nobody knows by whom."
            " If it was you, ask for it to be put back."
        )
        copies = f" Copies are in {self._layout.held}/<number>." * any(held.kept for held in away)
        text = f"Renamed to *.held: {listed(away, _NAMED)}. {why}{copies}"
        advice = (
            "Tools of the user would have obeyed it. Tell the user briefly, and offer to put back"
            " what they made themselves: `cp` with `escalate` does."
        )
        admitted = partial(Copies(self._layout.held).forget, away)
        self._notify("sandbox", f"{text}\n{advice}", None, aside=not aloud, admitted=admitted)

    async def _used_too_much(self) -> str:
        holder, footprint = self._holder, self._footprint
        if footprint is None:
            return ""
        running = holder is not None and holder.running
        if holder is not None and running:
            await footprint.settle(holder)
        ended = " Delete something." if running else " Everything that ran in it was ended."
        return f"\n[{footprint.note}{ended}]" if footprint.note else ""

    async def _watch(self, holder: Holder, footprint: Footprint) -> None:
        """Guard the project for as long as anything runs; end what has outgrown its share.

        Where a look fails nothing runs on unseen.
        """
        try:
            async with asyncio.TaskGroup() as group:
                patrol = group.create_task(self._patrol.watch(self._busy))
                await footprint.watch(holder)
                patrol.cancel()
            log.warning("a sandbox was ended: %s", footprint.note)
        except* Exception:  # the boundary of a background service: unwatched nothing runs
            log.exception("a sandbox was ended: it could not be watched")
        await holder.end()
        await self._patrol.finish()

    async def _stop(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        holder, self._holder = self._holder, None
        if holder is not None:
            await self._patrol.survey_mounts()
            await holder.stop()
            await self._patrol.finish()

    def _view(self) -> View:
        if self._holder is None:
            raise _not_running()
        layout = self._layout
        project = layout.start if layout.project else ""
        holder = self._holder
        return View(holder.root, layout.writable, layout.closed, project, keeps=holder)

    def _crowded(self, holder: Holder) -> bool:
        return holder.tasks() > self._layout.options.max_processes - _ROOM


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


def _environment(request: EnvironmentRequest, home: str) -> dict[str, str]:
    """Return what commands start with: of the host only the language, or a person's toolchains."""
    env, named = request.env, request.terminal.env_passthrough
    own = {"HOME": home, "USER": "hermes", "LOGNAME": "hermes", "SHELL": "/bin/bash"}
    if request.settings.project:
        kept = {name: value for name, value in env.items() if name not in _OF_THE_HOST.split()}
        return {**kept, "PATH": f"{env.get('PATH') or ''}:{_PATH}".lstrip(":"), **own}
    kept = {
        name: value
        for name, value in env.items()
        if name in _KEPT or name in named or name.startswith("LC_")
    }
    return {**kept, "PATH": _PATH, **own}


def _path_outside(path: str, layout: SandboxLayout) -> str:
    """Leave out what is in the project.

    A person allows `git push`, not the `git` or `bash` that a command has put there.
    """
    own = (Path(layout.start), *map(Path, layout.repositories))
    return ":".join(
        place
        for place in path.split(":")
        if place.startswith("/")
        and not any(
            Path(way).is_relative_to(o) for way in (place, os.path.realpath(place)) for o in own
        )
    )


def _variables_outside(env: Mapping[str, str], layout: SandboxLayout) -> dict[str, str]:
    """Leave out what makes programs of the person load something of the project."""
    own = tuple(f"{place}/" for place in (layout.start, *layout.repositories))

    def leads_in(value: str) -> bool:
        ways = (way for way in re.split(r"[\s:;,=]+", value) if way.startswith("/"))
        return any(f"{p}/".startswith(own) for way in ways for p in (way, os.path.realpath(way)))

    return {n: v for n, v in env.items() if not (_LOADS.fullmatch(n) and leads_in(v))}


def _inside(cwd: str, layout: SandboxLayout) -> str:
    inside = posixpath.normpath(cwd)
    return inside if f"{inside}/".startswith(f"{layout.start}/") else layout.start


def _about(layout: SandboxLayout, *, can_leave: bool) -> str:
    if layout.project:
        place = (
            f"The sandbox shows {layout.start}, where you may write. What git, editors"
            " or CI of the user would run later (hooks, .github, .vscode) is read-only there."
            f" The home {layout.home} and /tmp are the sandbox's own, with toolchains and caches of"
            " the real ones: the user sees nothing that you write to them, and the user's"
            " other files, keys and services are not there."
        )
        if repository_above(layout.workspace) is not None:
            place += (
                " It is a folder of a git repository: git works outside only, and modules in the"
                " folders above are not found."
            )
    else:
        place = (
            f"A sandbox of this conversation alone. You may write in {WORKSPACE}, where you begin,"
            f" in your home {layout.home} and in /tmp; that is kept. Programs of the machine are"
            " there, its other files, keys and services are not."
        )
    network = "The network is the machine's." if layout.network else "There is no network."
    leave = " `escalate` asks the user to run a command outside." if can_leave else ""
    return f"{place} {network}{leave}"


async def _tidy(base: Path) -> None:
    """Remove what can be made again, and directories that nothing was put into."""
    await remove_trees(base / "state", base / "etc", base / "aside")
    for directory in (base / "workspace", base / "tmp", base / "home", base):
        with contextlib.suppress(OSError):
            await asyncio.to_thread(directory.rmdir)


def _not_running() -> HermesError:
    return HermesError("The sandbox is not running.", hint="Run a command to start it.")


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return ""


async def _open_environment(request: EnvironmentRequest) -> SandboxEnvironment:
    layout = await asyncio.to_thread(lay_out, request)
    outside = None
    if request.settings.project:
        path = _path_outside(f"{request.env.get('PATH') or ''}:{_PATH}", layout)
        host = replace(request, env={**_variables_outside(request.env, layout), "PATH": path})
        outside = await load_backend("local").open(host)
    environment = SandboxEnvironment(request, layout, outside)
    await environment.settle_left()
    return environment


BACKEND = Backend(open=_open_environment, unavailable=unavailable, private_workspace=True)
