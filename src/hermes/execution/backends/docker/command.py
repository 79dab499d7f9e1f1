"""The command lines that are given to docker or podman. They understand the same ones."""

import hashlib
import os
import shlex
from pathlib import Path

from msgspec import Struct


class DockerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the `docker` backend; keys of `EnvironmentSettings.options`."""

    sandbox_dir: str
    """Where sandboxes keep their files: `<home>/sandboxes`."""
    hermes_home: str
    image: str
    binary: str = ""
    """`docker` or `podman`, or a path; empty for the first that is there."""
    network: bool = True
    """A network of its own with a way out. False: none at all."""
    volumes: tuple[str, ...] = ()
    """`SOURCE:TARGET[:OPTIONS]`, as for `-v`."""
    env: dict[str, str] = {}
    """Variables set inside."""
    forward_env: tuple[str, ...] = ()
    """Variables of Hermes handed inside by name."""
    extra_args: tuple[str, ...] = ()
    """Further arguments of `run`."""
    run_as_host_user: bool = False
    """Run with the user and group of Hermes instead of the image's user."""
    persistent: bool = True
    """Keep workspace and home on disk; otherwise they are RAM disks."""
    project: str = ""
    """Directory to mount as the workspace; empty for a private one."""
    cpus: float = 1.0
    memory_mb: int = 5120
    max_processes: int = 256
    kill_grace: float = 2.0


WORKSPACE = "/workspace"
HOME = "/root"
STATE_DIR = "/run/hermes"
LABEL = "hermes"
TASKS = "tasks"
_RESULTS = "/tmp/hermes-results"  # noqa: S108 - the container's own

# Waits for the number of the process, which is also that of its group, then
# ends the group, politely first. Up to the first signal it starts no process:
# there may be no room for one.
_STOP = (
    "i=0; until read -r p <{pidfile} && [[ $p ]]; do (( i++ < 20 )) || exit 0; sleep 0.05; done;"
    " kill -TERM -- -$p; i=0; while kill -0 -- -$p && (( i++ < {tries} )); do sleep 0.05; done;"
    " kill -KILL -- -$p; exit 0"
)
# The client does not pass signals on: it is ended, and the group inside by a
# second one. If even that cannot start, the container is full: it goes.
_GUARD = (
    "exec 3<&0; trap '{stop} >/dev/null 2>&1 || {kill} >/dev/null 2>&1' TERM;"
    ' "$@" <&3 3<&- & c=$!; exec 3<&-; wait $c'
)
# Bash counts the processes by itself: when there is no room, starting one to
# count them would not work, and neither would the command.
_ROOM = 12
_COUNT = (
    f"__n=(/proc/[0-9]*); echo ${{#__n[@]}} >{STATE_DIR}/{TASKS};"
    ' (( ${#__n[@]} <= {limit} )) || { echo "There is no room for another process."; exit 125; };'
    " unset __n; "
)


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """One container as it is to be."""

    name: str
    """Says which session it belongs to and what it is made with."""
    arguments: tuple[str, ...]
    """Of `run`, after the name."""
    environment: dict[str, str]
    """What the client needs in its own environment for that."""


def container_spec(
    options: DockerOptions, base: Path, task: str, forwarded: dict[str, str]
) -> ContainerSpec:
    """Return the container for a session."""
    arguments = (*_labels(options, base, task), *run_arguments(options, base, tuple(forwarded)))
    made_with = "\0".join((*arguments, *(f"{k}={v}" for k, v in sorted(forwarded.items()))))
    return ContainerSpec(
        name=f"hermes-{_digest(f'{options.hermes_home}|{task}')}-{_digest(made_with)[:8]}",
        arguments=arguments,
        environment=forwarded,
    )


def run_arguments(options: DockerOptions, base: Path, forwarded: tuple[str, ...]) -> list[str]:
    """Return what a container may do and see, its image and its command."""
    memory = f"{options.memory_mb}m"
    return [
        *("--init", "--hostname", "sandbox", "--workdir", WORKSPACE),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--pids-limit", str(options.max_processes)),
        *("--memory", memory, "--memory-swap", memory, "--cpus", f"{options.cpus:g}"),
        *("--shm-size", "64m", "--ulimit", "core=0"),
        *("--network", "bridge" if options.network else "none"),
        *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=512m,mode=1777"),  # noqa: S108
        *("--tmpfs", "/var/tmp:rw,noexec,nosuid,nodev,size=256m,mode=1777"),  # noqa: S108
        *("--tmpfs", "/run:rw,noexec,nosuid,nodev,size=64m,mode=755"),
        *_places(options, base),
        *(part for volume in options.volumes for part in ("-v", volume)),
        *("-e", f"HOME={HOME}", "-e", "TERM=dumb"),
        *(part for name, value in options.env.items() for part in ("-e", f"{name}={value}")),
        *(part for name in forwarded for part in ("-e", name)),
        *(("--user", f"{os.geteuid()}:{os.getegid()}") if options.run_as_host_user else ()),
        *options.extra_args,
        *("--entrypoint", "sh", options.image, "-c", "while :; do sleep 86400; done"),
    ]


def list_arguments(options: DockerOptions) -> list[str]:
    """Return what lists the containers of this home as `name|state|directory`."""
    return [
        *("ps", "-a", "--no-trunc", "--filter", f"label={LABEL}.home={_home(options)}"),
        *("--format", '{{.Names}}|{{.State}}|{{.Label "hermes.directory"}}'),
    ]


def exec_arguments(name: str, script: str, *, pty: bool = False) -> list[str]:
    """Return what runs bash text in a container."""
    return ["exec", "-it" if pty else "-i", name, "bash", "--noprofile", "--norc", "-c", script]


def guarded(
    engine: tuple[str, str], script: str, pidfile: str, *, room: int, pty: bool, grace: float
) -> tuple[str, ...]:
    """Return the argv that runs bash text so that ending it ends what runs inside."""
    binary, name = engine
    stop = _STOP.replace("{pidfile}", pidfile).replace("{tries}", str(int(grace / 0.05)))
    # Inside the quotes of the trap there may be no other single quote.
    stopping = (
        " ".join(f'"{part}"' for part in (binary, "exec", name, "bash", "-c")) + ' "$HERMES_STOP"'
    )
    guard = _GUARD.replace("{stop}", stopping).replace("{kill}", f'"{binary}" kill "{name}"')
    text = f"HERMES_STOP={shlex.quote(stop)}; {guard}"
    plain_lines = "stty -onlcr 2>/dev/null; " if pty else ""
    recorded = f"echo $$ >{pidfile}; {counted(room)}{plain_lines}{script}"
    return ("sh", "-c", text, "sh", binary, *exec_arguments(name, recorded, pty=pty))


def room_in(options: DockerOptions) -> int:
    """Return how many processes there may be for one more command to start."""
    return options.max_processes - _ROOM


def counted(room: int) -> str:
    """Return bash text that records how many processes there are, and ends if too many."""
    return _COUNT.replace("{limit}", str(room))


def _labels(options: DockerOptions, base: Path, task: str) -> tuple[str, ...]:
    labels = {"": "1", ".home": _home(options), ".task": task, ".directory": str(base)}
    return tuple(
        part for key, value in labels.items() for part in ("--label", f"{LABEL}{key}={value}")
    )


def _places(options: DockerOptions, base: Path) -> list[str]:
    own = ["-v", f"{base / 'state'}:{STATE_DIR}", "-v", f"{base / 'results'}:{_RESULTS}"]
    workspace = options.project or (str(base / "workspace") if options.persistent else "")
    home = str(base / "home") if options.persistent else ""
    for source, target in ((workspace, WORKSPACE), (home, HOME)):
        if source:
            own += ["-v", f"{source}:{target}"]
        else:
            own += ["--tmpfs", f"{target}:rw,exec,nosuid,nodev,size=1g,mode=1777"]
    return own


def _home(options: DockerOptions) -> str:
    return _digest(options.hermes_home)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
