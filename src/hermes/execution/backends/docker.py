"""The `docker` backend: one container per session, through docker or podman.

The container is made with the first use and removed with the environment;
what the session keeps is in directories of the host that are mounted into it,
the state of its shell too. Commands come in with `exec`.

A container belongs to the process that is named in the `owner` file of its
session's directory. One whose owner is gone is taken over by the next process
that needs it, and removed by the next one that looks around.
"""

import asyncio
import contextlib
import hashlib
import os
import posixpath
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import Backend, EnvironmentRequest, exposed_by
from hermes.execution.host.process import Child, Launch, remove_trees, run
from hermes.execution.remote.environment import LinkedEnvironment, MachineSetup
from hermes.execution.remote.link import RemoteCall, carry

WORKSPACE = "/workspace"
HOME = "/root"
STATE_DIR = "/run/hermes"
_RESULTS = "/tmp/hermes-results"  # noqa: S108 - the container's own
_SEARCH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin"
_PULL_SECONDS = 600.0
_NEVER_RAN = frozenset({1, 125, 126, 127, 128, 255})
_ROOM = 12
"""Processes that must be free inside for a command to start and do something."""
# Bash counts the processes by itself: when there is no room, starting one to
# count them would not work, and neither would the command.
_COUNTED = '__n=(/proc/[0-9]*); (( ${{#__n[@]}} <= {limit} )) || exit 125; exec "$@"'


class DockerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    binary: str = ""
    """`docker` or `podman`, or a path; empty for the first that is there."""
    max_processes: int = 256


class DockerLink:
    """The container of one session."""

    has_terminal = True
    text_only = False

    def __init__(self, request: EnvironmentRequest) -> None:
        self._options = request.options(DockerOptions)
        self._keep = request.terminal.container_persistent
        self._host_user = request.terminal.docker_run_as_host_user
        self._env = request.env
        self._base = request.sandbox_dir / "docker" / request.task
        self._binary = find_binary(self._options.binary, request.env.get("PATH"))
        if not self._binary:
            raise ConfigError(
                "The `docker` backend needs docker or podman, and neither is installed.",
                hint="Install one (apt install docker.io) or set `terminal.backend`.",
            )
        self.exposed = _exposed(request)
        self._container = container(request, self._base, self._options.max_processes)
        self._up = False
        self._doubtful = False
        """The last command did not report its end, if it ran at all."""
        self._starts = 0
        self.name = f"the container `{self._container.name}`"

    async def open(self) -> int:
        """Bring the container up, or a new one if no command can be started in it any more."""
        if self._up and self._doubtful and not await self._has_room():
            await self._remove(self._container.name)
            self._up = False
        self._doubtful = False
        if not self._up:
            await asyncio.to_thread(self._prepare)
            await self._bring_up()
            self._up = True
            self._starts += 1
        return self._starts

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> Child:
        argv = (self._binary, "exec", "-it" if call.pty else "-i", *self._inside(*call.argv))
        if not call.pty:
            # What the client itself has to say must not get between the bytes.
            argv = ("sh", "-c", 'exec "$@" 2>/dev/null', "sh", *argv)
        return await carry(argv, call, sink, self._env)

    def explain(self, exit_code: int | None, output: str) -> str:  # noqa: ARG002 - a Link has it
        """Say why a command's end was not seen; look at the container before the next."""
        self._doubtful = True
        if exit_code in _NEVER_RAN:
            return (
                "The container had stopped or had no room for another process; nothing was run."
                " The next command starts a new one."
            )
        return f"{self.name} ended; whether the command took effect is unknown"

    async def close(self) -> None:
        """Remove the container; what it keeps stays on disk."""
        was_up, self._up = self._up, False
        if was_up:
            await self._remove(self._container.name)
            await self._clear()

    def _inside(self, *argv: str) -> tuple[str, ...]:
        """Return what runs a program in the container, if there is room for it."""
        counted = _COUNTED.format(limit=self._options.max_processes - _ROOM)
        bash = ("bash", "--noprofile", "--norc", "-c", counted, "bash")
        return (self._container.name, *bash, *argv)

    async def _has_room(self) -> bool:
        with contextlib.suppress(HermesError):
            status, _ = await self._ask("exec", *self._inside("true"), timeout=5.0)
            return status == 0
        return False

    def _prepare(self) -> None:
        """Make the directories that are mounted; whoever runs inside may write there."""
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("state", "results", *(("home", "workspace") if self._keep else ())):
            directory = self._base / name
            directory.mkdir(exist_ok=True)
            if not self._host_user:
                directory.chmod(0o777)
        ours = f"{os.getpid()} {_started(os.getpid())}"
        (self._base / "owner").write_text(ours, encoding="ascii")

    async def _clear(self) -> None:
        await asyncio.to_thread((self._base / "owner").unlink, missing_ok=True)
        await remove_trees(self._base / "state" if self._keep else self._base)

    async def _bring_up(self) -> None:
        """Find, start or make the container; remove what nobody owns and what is outdated."""
        wanted = self._container
        listed = await self._must(
            *("ps", "-a", "--no-trunc", "--filter", f"label=hermes.home={wanted.home}"),
            *("--format", '{{.Names}}|{{.State}}|{{.Label "hermes.directory"}}'),
        )
        state, unwanted = "", []
        for line in listed.splitlines():
            name, _, rest = line.partition("|")
            status, _, directory = rest.partition("|")
            if name == wanted.name and status.lower() in {"running", "exited", "created"}:
                state = status.lower()
            elif directory == str(self._base) or not await asyncio.to_thread(_owned, directory):
                unwanted.append(name)
        await self._remove(*unwanted)
        if not state:
            run_it = ("run", "-d", "--name", wanted.name, *wanted.arguments)
            await self._must(*run_it, env=wanted.environment, timeout=_PULL_SECONDS)
        elif state != "running":
            await self._must("start", wanted.name)

    async def _remove(self, *names: str) -> None:
        if names:
            await self._ask("rm", "-f", "-v", *names, timeout=60.0)

    async def _must(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> str:
        status, text = await self._ask(*arguments, env=env, timeout=timeout)
        if status != 0:
            program = os.path.basename(self._binary)  # noqa: PTH119 - text
            raise HermesError(
                f"`{program} {arguments[0]}` failed: {text.strip()[-400:]}.",
                hint=f"Check that `{program} version` works and that the image can be pulled.",
            )
        return text

    async def _ask(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float
    ) -> tuple[int, str]:
        launch = Launch(argv=(self._binary, *arguments), env={**self._env, **(env or {})}, cwd="/")
        finished = await run(launch, timeout=timeout, max_output=1 << 20, grace=0.5)
        if finished.timed_out:
            raise HermesError(
                f"`{self._binary}` did not answer within {timeout:g} s.",
                hint="Check that the container engine is up.",
            )
        return finished.exit_code, finished.output


class Container(Struct, frozen=True, kw_only=True):
    name: str
    """Says which session it belongs to and what it is made with."""
    home: str
    """Stands for the Hermes home it belongs to."""
    arguments: tuple[str, ...]
    """Of `run`, after the name."""
    environment: dict[str, str]
    """What the client needs in its own environment for that."""


def container(request: EnvironmentRequest, base: Path, max_processes: int) -> Container:
    settings, terminal = request.settings, request.terminal
    home = _digest(str(settings.home.root))
    values = settings.base_env
    forwarded = {name: values[name] for name in terminal.docker_forward_env if name in values}
    given = {**terminal.docker_env, **forwarded}
    labels = {"": "1", ".home": home, ".task": request.task, ".directory": str(base)}
    arguments = (
        *(part for key, value in labels.items() for part in ("--label", f"hermes{key}={value}")),
        *_confinement(terminal, max_processes),
        *_mounts(request, base),
        *("-e", f"HOME={HOME}", "-e", "TERM=dumb"),
        # Values travel in the client's environment, because arguments are for everybody to
        # read; except under names that the client itself goes by.
        *(
            part
            for name, value in given.items()
            for part in ("-e", f"{name}={value}" if name in request.env else name)
        ),
        *(("--user", f"{os.geteuid()}:{os.getegid()}") if terminal.docker_run_as_host_user else ()),
        *terminal.docker_extra_args,
        *("--entrypoint", "sh", terminal.docker_image, "-c", "while :; do sleep 86400; done"),
    )
    made_with = "\0".join((*arguments, *(f"{k}={v}" for k, v in sorted(given.items()))))
    session = _digest(f"{settings.home.root}|{request.task}")
    return Container(
        name=f"hermes-{session}-{_digest(made_with)[:8]}",
        home=home,
        arguments=arguments,
        environment=given,
    )


def find_binary(wanted: str, path: str | None) -> str:
    for name in (wanted,) if wanted else ("docker", "podman"):
        found = shutil.which(name, path=path or _SEARCH) or shutil.which(name, path=_SEARCH)
        if found:
            return found
    return ""


def _confinement(terminal: Terminal, max_processes: int) -> list[str]:
    memory = f"{terminal.container_memory}m"
    return [
        *("--init", "--hostname", "sandbox", "--workdir", WORKSPACE),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--pids-limit", str(max_processes)),
        *("--memory", memory, "--memory-swap", memory, "--cpus", f"{terminal.container_cpu:g}"),
        *("--shm-size", "64m", "--ulimit", "core=0"),
        *("--network", "bridge" if terminal.docker_network else "none"),
        *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=512m,mode=1777"),  # noqa: S108
        *("--tmpfs", "/var/tmp:rw,noexec,nosuid,nodev,size=256m,mode=1777"),  # noqa: S108
        *("--tmpfs", "/run:rw,noexec,nosuid,nodev,size=64m,mode=755"),
    ]


def _mounts(request: EnvironmentRequest, base: Path) -> list[str]:
    terminal = request.terminal
    given = request.settings.project if terminal.docker_mount_cwd_to_workspace else ""
    kept = terminal.container_persistent
    mounts = ["-v", f"{base / 'state'}:{STATE_DIR}", "-v", f"{base / 'results'}:{_RESULTS}"]
    for source, target in (
        (given or (str(base / "workspace") if kept else ""), WORKSPACE),
        (str(base / "home") if kept else "", HOME),
    ):
        if source:
            mounts += ["-v", f"{source}:{target}"]
        else:
            mounts += ["--tmpfs", f"{target}:rw,exec,nosuid,nodev,size=1g,mode=1777"]
    return [*mounts, *(part for volume in terminal.docker_volumes for part in ("-v", volume))]


_HARMLESS = """
    --add-host --cpus --cpu-shares --cpuset-cpus --dns --env --env-file -e --gpus --health-cmd
    --hostname -h --init --label -l --log-driver --log-opt --memory -m --memory-swap
    --no-healthcheck --platform --pull --quiet --read-only --restart --shm-size --stop-signal
    --stop-timeout --tmpfs --ulimit --user -u --workdir -w
"""
"""Arguments of `run` that open nothing of the host."""


def _exposed(request: EnvironmentRequest) -> tuple[str, ...]:
    """Return what the mounts open; an argument that is not known may open anything."""
    terminal = request.terminal
    options = (part.partition("=")[0] for part in terminal.docker_extra_args if part[:1] == "-")
    if not set(_HARMLESS.split()).issuperset(options):
        return ("/",)
    given = request.settings.project and terminal.docker_mount_cwd_to_workspace
    return (*((WORKSPACE,) if given else ()), *exposed_by(terminal.docker_volumes))


def _owned(directory: str) -> bool:
    try:
        pid, _, started = Path(directory, "owner").read_text(encoding="ascii").partition(" ")
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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


async def _open_environment(request: EnvironmentRequest) -> LinkedEnvironment:
    mounted = request.settings.project and request.terminal.docker_mount_cwd_to_workspace
    if mounted and request.project() is None:
        raise ConfigError(
            f"A container does not get {request.settings.project} to write in.",
            hint="Work in a project directory, or unset `terminal.docker_mount_cwd_to_workspace`.",
        )
    inside = posixpath.normpath(request.cwd)
    cwd = inside if f"{inside}/".startswith(f"{WORKSPACE}/") else WORKSPACE
    inbox = "/tmp/inbox" if mounted else f"{WORKSPACE}/inbox"  # noqa: S108 - the container's own
    kept = request.terminal.container_persistent
    network = "There is a network." if request.terminal.docker_network else "There is no network."
    about = (
        f"A container of this conversation alone. You may write in {WORKSPACE}"
        f"{', the project of the user' if mounted else ''}, in your home {HOME}"
        f"{'' if kept else ' (both are emptied now and then)'} and in /tmp, which is not kept;"
        f" the rest is read-only. {network}"
    )
    setup = MachineSetup(
        cwd=cwd,
        home=HOME,
        state_root=STATE_DIR,
        own=(WORKSPACE, HOME, "/tmp"),  # noqa: S108 - the container's own
        inbox=inbox,
        about=about,
    )
    return LinkedEnvironment(DockerLink(request), request, setup)


def unavailable() -> str:
    return (
        "" if find_binary("", None) else "docker or podman is not installed (apt install docker.io)"
    )


BACKEND = Backend(open=_open_environment, unavailable=unavailable, private_workspace=True)
