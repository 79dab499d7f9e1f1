"""The inside of a sandbox: the arguments for bubblewrap.

Only what programs need is there, read-only: `/usr` and its aliases and a few
files of `/etc`. Homes, `/root`, `/var`, `/run` and the rest of the host do
not exist. Writable are the workspace, a home and a `/tmp` of its own, each a
directory of the session below `sandboxes/`, and a small RAM disk.

A host root that runs Hermes is still the owner of what belongs to root, even
without any capability. So the root directory, `/dev`
and what the kernel lets its owner change in `/proc` are all read-only, and
device nodes are copies that belong to nobody.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import EnvironmentRequest


class SandboxOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    max_processes: int = 512
    max_file_mb: int = 8192
    """Size of one file."""
    shm_mb: int = 64


WORKSPACE = "/workspace"
HOME = "/home/hermes"
STATE_DIR = "/run/hermes"
UID = 1000

_USR_ALIASES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = """
    alternatives bash.bashrc ca-certificates ca-certificates.conf crypto-policies debian_version
    fonts gai.conf inputrc java-*-openjdk ld.so.cache ld.so.conf ld.so.conf.d localtime
    locale.alias lsb-release magic magic.mime mime.types nanorc os-release perl pki/ca-trust
    pki/tls/certs profile protocols python3* services ssl/certs ssl/openssl.cnf terminfo timezone
    vim
"""
_OWN_ETC = {
    "passwd": f"hermes:x:{UID}:{UID}:Hermes:{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
    "group": f"hermes:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_ETC_NETWORK = ("resolv.conf", "hosts", "host.conf")
_PRIVATE_PLACES = """
    .hermes .ssh .gnupg .aws .azure .kube .docker .netrc .pgpass .git-credentials .npmrc .pypirc
    .config/gcloud .config/gh .config/hub .local/share/keyrings .password-store .mozilla
    .bash_history .zsh_history
"""
_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_NOBODY = 65534
_PROC_READ_ONLY = ("fs", "irq", "bus", "sysrq-trigger", "acpi", "asound", "scsi", "mtrr")
_PROC_HIDDEN = ("kcore", "keys", "timer_list", "latency_stats", "sched_debug", "kpagecount")


class SandboxLayout(Struct, frozen=True, kw_only=True):
    """Where things of one sandbox are on the host, and what is inside."""

    base: Path
    start: str
    """The workspace as commands see it."""
    workspace: Path
    """The same on the host."""
    project: bool
    """The workspace is a directory that a person works on."""
    hidden: tuple[str, ...]
    """Covered wherever they would show."""
    devices: Path
    """Where device nodes for sandboxes are kept."""
    terminal: Terminal
    options: SandboxOptions

    @property
    def writable(self) -> tuple[str, ...]:
        """Places that the file tools may write to."""
        return (self.start, HOME, "/tmp", STATE_DIR)  # noqa: S108 - the sandbox's own


def lay_out(request: EnvironmentRequest) -> SandboxLayout:
    base = request.directory("sandbox")
    project = request.project() if request.settings.project else None
    return SandboxLayout(
        base=base,
        start=str(project or WORKSPACE),
        workspace=project or base / "workspace",
        project=project is not None,
        hidden=(str(request.settings.home.root), str(request.sandbox_dir)),
        devices=request.sandbox_dir / "sandbox/.devices",
        terminal=request.terminal,
        options=request.options(SandboxOptions),
    )


def prepare(layout: SandboxLayout) -> None:
    base = layout.base
    for name in ("home", "tmp", "etc", "state", *(() if layout.project else ("workspace",))):
        (base / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in _OWN_ETC.items():
        (base / "etc" / name).write_text(text, encoding="ascii")


def bwrap_arguments(layout: SandboxLayout) -> list[str]:
    """Return the arguments that make the sandbox, without the command."""
    network = layout.terminal.sandbox_network
    shown = layout.terminal.sandbox_read_only_paths
    return [
        *("--unshare-user", "--uid", str(UID), "--gid", str(UID)),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if network else ("--unshare-net",)),
        *("--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--new-session"),
        "--clearenv",
        # Needed once, to forbid user namespaces; dropped before anything else runs.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_RESOURCE"),
        *_system(layout.base / "etc", network=network),
        *_kernel(layout),
        *("--bind", str(layout.base / "state"), STATE_DIR),
        *("--bind", str(layout.base / "tmp"), "/tmp"),  # noqa: S108 - the sandbox's own
        *("--bind", str(layout.base / "home"), HOME),
        *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108 - the sandbox's own
        *(part for path in shown for part in ("--ro-bind-try", path, path)),
        *("--bind", str(layout.workspace), layout.start),
        *_hiding(layout),
        *("--remount-ro", "/", "--chdir", "/"),
    ]


def _system(own_etc: Path, *, network: bool) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for alias in _USR_ALIASES:
        path = Path(alias)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), alias)
        elif path.is_dir():
            yield from ("--ro-bind", alias, alias)
    yield from ("--ro-bind-try", "/nix/store", "/nix/store")
    for pattern in (*_ETC.split(), *(_ETC_NETWORK if network else ())):
        for path in sorted(Path("/etc").glob(pattern)):
            yield from ("--ro-bind-try", str(path), str(path))
    for name in ("passwd", "group", "nsswitch.conf", *(() if network else ("hosts",))):
        yield from ("--ro-bind", str(own_etc / name), f"/etc/{name}")


def _kernel(layout: SandboxLayout) -> Iterator[str]:
    yield from ("--proc", "/proc")
    # The kernel wants a capability for `user`, also from its owner: it can stay.
    settings = sorted(f"sys/{path.name}" for path in Path("/proc/sys").iterdir())
    for name in (*_PROC_READ_ONLY, *(name for name in settings if name != "sys/user")):
        if Path(f"/proc/{name}").exists():
            yield from ("--ro-bind", f"/proc/{name}", f"/proc/{name}")
    for name in _PROC_HIDDEN:
        if Path(f"/proc/{name}").exists():
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    yield from ("--dev", "/dev")
    yield from ("--size", str(layout.options.shm_mb << 20), "--perms", "1777")
    yield from ("--tmpfs", "/dev/shm")  # noqa: S108 - the sandbox's own
    for node in _own_devices(layout.devices):
        yield from ("--dev-bind", str(node), f"/dev/{node.name}")
    yield from ("--remount-ro", "/dev")


def _own_devices(directory: Path) -> list[Path]:
    """Return device nodes that root owns no more: the owner could change the host's."""
    if os.geteuid() != 0:
        return []
    nodes = []
    for name, (major, minor) in _DEVICES.items():
        node = directory / name
        try:
            if not node.exists():
                _make_device(node, os.makedev(major, minor))
            os.close(os.open(node, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # there is no terminal, but the node works
                continue
        nodes.append(node)
    return nodes


def _make_device(node: Path, device: int) -> None:
    node.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = node.with_name(f".{node.name}.{secrets.token_hex(4)}")
    os.mknod(draft, 0o600 | stat.S_IFCHR, device)
    draft.chmod(0o666)
    os.chown(draft, _NOBODY, _NOBODY)
    draft.replace(node)


def _hiding(layout: SandboxLayout) -> Iterator[str]:
    """Cover what would show inside a visible directory."""
    shown = [Path("/usr"), *map(Path, layout.terminal.sandbox_read_only_paths)]
    hidden = [*layout.hidden]
    if layout.project:
        shown.append(layout.workspace)
        hidden += [str(layout.workspace / place) for place in _PRIVATE_PLACES.split()]
    covered: list[Path] = []
    for text in hidden:
        for path in (Path(text), Path(os.path.realpath(text))):
            if _inside_any(path, shown) and not _inside_any(path, covered):
                covered.append(path)
                yield from _cover(path)


def _cover(path: Path) -> Iterator[str]:
    if path.is_symlink():
        return  # what it leads to is covered or not visible
    if path.is_dir():
        yield from ("--tmpfs", str(path), "--remount-ro", str(path))
    elif path.exists():
        yield from ("--ro-bind", "/dev/null", str(path))


def _inside_any(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)
