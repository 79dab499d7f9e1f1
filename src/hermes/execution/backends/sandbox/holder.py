"""A running sandbox: namespaces held by one bubblewrap, entered per command.

bubblewrap makes the namespaces and mounts, forbids further user namespaces,
gives up its capabilities and sleeps. Each command enters with `nsenter`,
where it has no capability either and can gain none, so all commands of a
session share processes, network and mounts and a server started by one is
reachable by the next. When the holder dies, by `stop` or because Hermes died,
the kernel kills everything inside.

The holder is named by an open `/proc/<pid>` directory, never by its number: a
number may come to mean another process, and entering that would be an escape.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import resource
import secrets
import shlex
import shutil
import signal
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.execution.backends.sandbox import cover
from hermes.execution.backends.sandbox.mounts import (
    SandboxLayout,
    bwrap_arguments,
    clear_ways,
    misplaced,
    mount_points,
    overlay_script,
)
from hermes.execution.backends.sandbox.seccomp import confiner, filter_program
from hermes.execution.host.process import Child, Launch, run

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hermes-sandbox"
TOOLS = ("bwrap", "nsenter", "setpriv")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What the holder was started from and with must not stay reachable through its
# entries in /proc: it becomes a program of the sandbox with files of the sandbox.
# As process 1 that ignores its children it makes the kernel clear them away. Not every shell
# hands that on: bash does. It keeps its one capability: nobody without it may write to its memory.
_HOLD = (
    'trap "" CHLD; cd /proc/sys/user; for each in *_namespaces *_groups *_marks; do'
    " echo 0 >$each 2>/dev/null; done; echo {watches} >max_inotify_watches;"
    " echo 128 >max_inotify_instances; cd /; echo 0 >/proc/sys/user/max_user_namespaces"
    " && echo ready"
    " && exec </dev/null >/dev/null 2>&1"
    " && exec setpriv --no-new-privs sleep infinity"
)
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
_START_SECONDS = 15.0
_ENTERED = re.compile(rb"--pid=/proc/(\d+)/fd/\d+/ns/pid")
_NS_GET_PARENT = 0xB702
_NAMESPACES = {"user": "user", "mount": "mnt"}
_NAMESPACES |= {name: name for name in ("pid", "ipc", "uts", "net", "cgroup")}


class Cgroup(Struct, frozen=True, kw_only=True):
    """Groups, one for each controller, that limit all processes of a sandbox together.

    Needed above all when Hermes runs as root, whom process limits do not bind.
    A group is called after the process that made it, so that a later one can
    clear away what a killed one left. Where no group can be made there are
    none, and the limits of each single process remain.
    """

    directories: tuple[Path, ...]

    @property
    def join(self) -> str:
        """Shell text that moves the running shell into the groups.

        A thread that moves itself need not wait until the kernel has stopped all forks, which
        takes longer than all else; only the older kind of groups takes threads.
        """
        lists = (
            directory / ("tasks" if (directory / "tasks").exists() else "cgroup.procs")
            for directory in self.directories
        )
        return "".join(f"echo 0 >{file} || exit 125; " for file in lists)

    def remove(self) -> None:
        """Give the groups back; their processes must have ended."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.rmdir()


def make_cgroup(max_processes: int, max_memory: int) -> Cgroup:
    """Make groups with these limits; a `max_memory` of 0 is none."""
    made: list[Path] = []
    memory = {"memory.max": max_memory, "memory.swap.max": 0, "memory.limit_in_bytes": max_memory}
    limits = {"pids": {"pids.max": max_processes}, **({"memory": memory} if max_memory else {})}
    for controller, settings in limits.items():
        if any((directory / next(iter(settings))).exists() for directory in made):
            _apply(made[0], settings)  # one hierarchy for all
            continue
        for parent in _parents(controller):
            directory = _make(parent, settings)
            if directory is not None:
                made.append(directory)
                break
    return Cgroup(directories=tuple(made))


def _make(parent: Path, settings: dict[str, int]) -> Path | None:
    _sweep(parent)
    directory = parent / f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir()
    except OSError:
        return None
    if not _apply(directory, settings):
        directory.rmdir()
        return None
    return directory


def _apply(directory: Path, settings: dict[str, int]) -> bool:
    done = False
    for name, value in settings.items():
        with contextlib.suppress(OSError):
            if (directory / name).exists():
                (directory / name).write_text(str(value), encoding="ascii")
                done = True
    return done


def _parents(controller: str) -> Iterator[Path]:
    """Name the groups below which ours may be made, nearest first."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        if controller in controllers.split(","):
            yield _ROOT / controllers / own.lstrip("/")
            return
    unified = next((path for path in (_ROOT / "unified", _ROOT) if _is_unified(path)), None)
    if unified is None:
        return
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::")[2].strip()
    # A group with processes of its own gives controllers to no child: try the one above.
    for path in (own, os.path.dirname(own), "/"):  # noqa: PTH120 - text
        yield unified / path.lstrip("/")


def _is_unified(path: Path) -> bool:
    return (path / "cgroup.controllers").exists()


def _sweep(parent: Path) -> None:
    """Remove what processes that are gone have left."""
    with contextlib.suppress(OSError):
        for directory in parent.glob(f"{_PREFIX}-*"):
            owner = directory.name.removeprefix(f"{_PREFIX}-").partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                with contextlib.suppress(OSError):
                    directory.rmdir()


def end_left() -> None:
    """End what waits for a command inside and was stopped when its Hermes was killed."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if status.read_bytes().rpartition(b") ")[2][:1] != b"T":
                continue
            entered = _ENTERED.search(status.with_name("cmdline").read_bytes())
            if entered and not Path("/proc", os.fsdecode(entered[1])).exists():
                os.kill(int(status.parent.name), signal.SIGKILL)


class Holder:
    """One sandbox that is up."""

    def __init__(self, child: Child, directory: int, layout: SandboxLayout, cgroup: Cgroup) -> None:
        self._child = child
        self._directory = directory
        self._cgroup = cgroup
        self._limits = _limits(layout, together=self.limits_memory)
        self.launcher = ThreadPoolExecutor(1, initializer=confiner())
        """The thread that starts every command, confined as they are to be."""
        self._outer = _outer_user_namespace(directory)
        # Closed with the last reference: a file call under way must not meet another sandbox there.
        for descriptor in (directory, self._outer):
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)
        ours = f"/proc/{os.getpid()}/fd"
        self._enter = _enter(
            f"{ours}/{directory}",
            f"{ours}/{self._outer}" if self._outer is not None else "",
            network=layout.network,
        )

    @classmethod
    async def start(cls, layout: SandboxLayout) -> Self:
        cgroup = await asyncio.to_thread(
            make_cgroup, layout.options.max_processes, layout.terminal.container_memory << 20
        )
        try:
            await asyncio.to_thread(end_left)
            arguments = await asyncio.to_thread(_arguments, layout)
            child, pid, mount_namespace = await _held(layout, cgroup, arguments)
        except BaseException:
            cgroup.remove()
            raise
        try:
            holder = cls(child, _pinned(pid, mount_namespace), layout, cgroup)
            await asyncio.to_thread(holder._verify, layout, arguments)
            if layout.tools:
                await holder._lay_over(overlay_script(layout))
        except BaseException as error:
            await child.close(0.0)
            await _removed(cgroup)
            if isinstance(error, OSError):
                raise _did_not_start(str(error)) from error
            raise
        return holder

    @property
    def running(self) -> bool:
        """False once it has ended, with everything inside."""
        return self._child.running

    @property
    def limits_memory(self) -> bool:
        """True where the kernel limits all processes inside together."""
        return any((d / m).exists() for d in self._cgroup.directories for m in _MEMORY_LIMITS)

    @property
    def root(self) -> str:
        return f"/proc/self/fd/{self._directory}/root"

    def waiting(self) -> list[int]:
        """Return our processes that have entered it with a command, or are about to.

        What it is stopped by stops them as well, and what lets it go on does not reach them.
        """
        ours = f"--pid=/proc/{os.getpid()}/fd/{self._directory}/".encode()
        found = []
        for listed in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in listed.read_text(encoding="ascii").split():
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        if ours in Path("/proc", child, "cmdline").read_bytes():
                            found.append(int(child))
        return found

    def tasks(self) -> int:
        """Count processes and threads inside."""
        count = 0
        with contextlib.suppress(OSError), os.scandir(f"{self.root}/proc") as entries:
            for entry in entries:
                if entry.name.isdigit():
                    try:
                        count += Path(entry.path, "task").stat().st_nlink - 2
                    except OSError:
                        count += 1  # it has ended, and may have left another one
        return count

    def mounted(self) -> Mapping[str, bool]:
        """Return where something is mounted inside, read-only or not; nothing if it has ended."""
        try:
            text = Path(f"/proc/self/fd/{self._directory}/mountinfo").read_bytes()
        except OSError:
            return {}
        return mount_points(text)

    def _verify(self, layout: SandboxLayout, arguments: Sequence[str]) -> None:
        """Make sure, before anything runs, that all is mounted where it was meant to be."""
        wrong = misplaced(layout, arguments, self.root, frozenset(self.mounted()))
        if wrong:
            raise OSError(wrong)

    async def cover(self, mounts: Iterable[tuple[str, bool]]) -> None:
        """Mount things over themselves, read-only unless they are to be writable."""
        words = (f"{'w' if writable else 'r'}{path}" for path, writable in mounts)
        user, mount = self._namespaces()
        await _done(_helper(sys.executable, "-I", "-S", cover.__file__, user, mount, *words))

    async def _lay_over(self, script: str) -> None:
        """Mount more inside, with the rights over the sandbox that only its maker has."""
        user, mount = self._namespaces()
        spaces = (f"--user={user}", f"--mount={mount}", "--preserve-credentials")
        await _done(_helper("nsenter", *spaces, "--", "sh", "-c", script))

    def _namespaces(self) -> tuple[str, str]:
        outer = self._outer if self._outer is not None else f"{self._directory}/ns/user"
        ours = f"/proc/{os.getpid()}/fd"
        return f"{ours}/{outer}", f"{ours}/{self._directory}/ns/mnt"

    def command(self, script: str, *, pty: bool) -> tuple[str, ...]:
        # Opening the terminal by name makes it the controlling one.
        terminal = "exec <>/dev/fd/0 >&0 2>&0; " if pty else ""
        enter = f"{terminal}{self._cgroup.join}{self._enter}"
        return ("sh", "-c", enter, "sh", f"{self._limits}{script}")

    async def ours(self, script: str) -> str:
        """Run a short script of Hermes itself inside; return what it says."""
        argv, env = self.command(script, pty=False), {"PATH": SYSTEM_PATH}
        launch = Launch(argv=argv, env=env, launcher=self.launcher, cwd="/", stdin=b"")
        return await _done(launch)

    async def end(self) -> None:
        """End everything inside; what the host holds of it stays until `stop`."""
        await self._child.close(0.0)

    async def stop(self) -> None:
        try:
            # Nothing in it needs warning: its own processes got theirs before.
            await self.end()
        finally:
            self.launcher.shutdown(wait=False)
            await _removed(self._cgroup)


def _helper(*argv: str) -> Launch:
    return Launch(argv=argv, env={"PATH": SYSTEM_PATH}, cwd="/")


async def _done(launch: Launch) -> str:
    done = await run(launch, timeout=_START_SECONDS, max_output=4096)
    if done.exit_code:
        raise OSError(done.output.strip())
    return done.output


def _arguments(layout: SandboxLayout) -> list[str]:
    arguments = bwrap_arguments(layout)
    clear_ways(layout, arguments)
    return arguments


async def _held(
    layout: SandboxLayout, cgroup: Cgroup, arguments: Sequence[str]
) -> tuple[Child, int, int]:
    """Start the holder; return it, its process number and its mount namespace."""
    said = bytearray()
    changed = asyncio.Event()

    def take(data: bytes) -> None:
        said.extend(data)
        changed.set()

    # Arguments go through a descriptor: paths of the host are nobody's business inside.
    hold = _HOLD.format(watches=layout.options.max_watches)
    filtered = layout.base / "etc/filter"
    seccomp = f"--seccomp 5 5<{shlex.quote(str(filtered))}" if filter_program() else ""
    bwrap = f"exec bwrap --args 4 --info-fd 3 {seccomp} -- bash -c '{hold}' 3>&1 4<&0 0</dev/null"
    launch = Launch(
        argv=("sh", "-c", f"{cgroup.join}{bwrap}"),
        env={"PATH": SYSTEM_PATH},
        stdin=b"".join(os.fsencode(argument) + b"\0" for argument in arguments),
    )
    child = await Child.start(launch, take)
    child.when_exited(changed.set)
    try:
        async with asyncio.timeout(_START_SECONDS):
            while b"\nready\n" not in said and child.running:
                changed.clear()
                await changed.wait()
    except BaseException:
        await child.close(0.0)
        raise
    text = said.decode("utf-8", "replace")
    if not child.running:
        await child.close(0.0)
        raise _did_not_start(text)
    info, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return child, int(info["child-pid"]), int(info.get("mnt-namespace", 0))


def _pinned(pid: int, mount_namespace: int) -> int:
    """Open the holder's directory in /proc and make sure that it is the holder's."""
    directory = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = Path(f"/proc/self/fd/{directory}/ns/mnt").stat().st_ino
        own = Path("/proc/self/ns/mnt").stat().st_ino
    except OSError:
        os.close(directory)
        raise
    if found == own or mount_namespace not in {0, found}:
        os.close(directory)
        raise OSError("the sandbox ended while it was started")
    return directory


def _outer_user_namespace(directory: int) -> int | None:
    """Open the user namespace between ours and the holder's, if there is one.

    Without root bubblewrap makes two: the outer one owns all other namespaces.
    """
    inner = os.open(f"/proc/self/fd/{directory}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        outer = fcntl.ioctl(inner, _NS_GET_PARENT)
    finally:
        os.close(inner)
    if os.fstat(outer).st_ino == Path("/proc/self/ns/user").stat().st_ino:
        os.close(outer)
        return None
    return outer


def _enter(holder: str, outer: str, *, network: bool) -> str:
    """Return shell text that enters the sandbox and runs `$1` there."""
    wanted = [name for name in _NAMESPACES if name != "net" or not network]
    paths = {name: f"{holder}/ns/{_NAMESPACES[name]}" for name in wanted}
    further = ""
    if outer:
        paths["user"] = outer
        further = "nsenter --user=/proc/1/ns/user --preserve-credentials -- "
    spaces = " ".join(f"--{name}={path}" for name, path in paths.items())
    return (
        f"exec nsenter {spaces} --preserve-credentials -- {further}"
        "setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all --"
        ' bash --noprofile --norc -c "$1"'
    )


def _limits(layout: SandboxLayout, *, together: bool) -> str:
    """Return shell text that limits a command and its children, for good.

    Where the kernel limits the memory of all of them `together`, one may reserve as much as it
    likes: sanitizers do.
    """
    options = layout.options
    wanted: Mapping[str, tuple[int, int, int]] = {
        "u": (resource.RLIMIT_NPROC, options.max_processes + _counted_elsewhere(), 1),
        "d": (resource.RLIMIT_DATA, layout.terminal.container_memory << 20, 1024),
        "f": (resource.RLIMIT_FSIZE, options.max_file_mb << 20, 1024),
        "c": (resource.RLIMIT_CORE, 0, 1024),
    }
    without = together or not layout.terminal.container_memory
    wanted = {flag: limit for flag, limit in wanted.items() if flag != "d" or not without}
    flags = " ".join(
        f"-{flag} {_at_most(kind, value) // unit}" for flag, (kind, value, unit) in wanted.items()
    )
    # If memory gets short on the host, these go first.
    return f"ulimit {flags} || exit 125; echo 1000 >/proc/self/oom_score_adj 2>/dev/null; "


def _counted_elsewhere() -> int:
    """Leave room for the user's other processes where the kernel counts them too."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return 0 if version and (int(version[1]), int(version[2])) >= (5, 14) else 4096


def _at_most(kind: int, value: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


async def _removed(cgroup: Cgroup) -> None:
    """Remove the group as soon as the kernel has taken the last process out."""
    for _ in range(50):
        await asyncio.to_thread(cgroup.remove)
        if not any(directory.exists() for directory in cgroup.directories):
            return
        await asyncio.sleep(0.02)


def _did_not_start(said: str) -> HermesError:
    return HermesError(
        f"The sandbox did not start: {said.strip()[-400:] or 'bubblewrap ended at once'}.",
        hint="User namespaces must be allowed on this machine; see docs/how-to/backends.md.",
    )


def missing_tools(path: str = SYSTEM_PATH) -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
