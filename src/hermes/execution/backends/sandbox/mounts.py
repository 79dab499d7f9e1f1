"""The inside of a sandbox: the arguments for bubblewrap.

Only what programs need is there, read-only: `/usr` and its aliases and a few
files of `/etc`. Homes, `/root`, `/var`, `/run` and the rest of the host do
not exist. Writable are the workspace, a home and a `/tmp` of its own, each a
directory of the session below `sandboxes/`, and a small RAM disk.

Where a person works on a project, its directory is the workspace, at its own
path. What the host would run later (`later`) stays as it is: what is there is mounted
read-only, what is not is watched (`guard`), in every folder and for as long as anything runs. A
mount does not keep the directories above it from being renamed, so these are mounts too, and it
goes when the host puts another file in its place: then it is made anew. The home
has the person's path but is the sandbox's own, kept for the next session on that
project; toolchains and package caches of the real one show through, and what
commands change in them goes to an overlay beside them (`overlay_script`).

A host root that runs Hermes is still the owner of what belongs to root, even
without any capability. So the root directory, `/dev`
and what the kernel lets its owner change in `/proc` are all read-only, and
device nodes are copies that belong to nobody.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from stat import S_IFDIR, S_IFLNK, S_IFREG

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import HermesError
from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import EnvironmentRequest
from hermes.execution.backends.sandbox.later import guarded, repositories_of
from hermes.execution.backends.sandbox.names import CHOOSING, expression
from hermes.execution.backends.sandbox.seccomp import filter_program
from hermes.execution.backends.sandbox.settings import kind


class SandboxOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `terminal.backend_options` may hold."""

    max_processes: int = 512
    max_file_mb: int = 8192
    """Size of one file."""
    shm_mb: int = 64
    max_watches: int = 65_536
    """Files and directories that inotify may watch."""


WORKSPACE = "/workspace"
HOME = "/home/hermes"
STATE_DIR = "/run/hermes"
ASIDE = "/run/aside"
UID = 1000
_GIT, _REAL_GIT = "/usr/bin/git", "/run/git"

_USR_ALIASES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = """
    alternatives bash.bashrc ca-certificates ca-certificates.conf crypto-policies debian_version
    fonts gai.conf gitconfig inputrc java-*-openjdk ld.so.cache ld.so.conf ld.so.conf.d localtime
    locale.alias lsb-release magic magic.mime manpath.config mime.types nanorc npmrc os-release perl
    pip.conf pki/ca-trust pki/tls/certs profile protocols python3* services ssl/certs
    ssl/openssl.cnf terminfo timezone vim
"""
_OWN_ETC = {
    "passwd": f"{{user}}:x:{UID}:{UID}::{{home}}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
    "group": f"hermes:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_ETC_NETWORK = ("resolv.conf", "hosts", "host.conf")
_PRIVATE_PLACES = """
    .hermes .ssh .gnupg .aws .azure .kube .netrc .pgpass .git-credentials .pypirc
    .config/gcloud .config/gh .config/hub .local/share/keyrings .password-store .mozilla
    .bash_history .zsh_history
"""
_TOOLS = """
    .pyenv .rbenv .nodenv .goenv .jenv .nvm .volta .fnm .asdf .sdkman .bun .deno .cargo .rustup
    go/bin go/pkg
    .ghcup .cabal .stack .opam .elan .julia .juliaup .composer .dotnet .pub-cache .conda miniconda3
    anaconda3 miniforge3 .npm .npm-global .yarn .pnpm-store .m2 .gradle .ivy2 .sbt .gem .bundle
    .local/bin .local/lib .local/pipx .local/share/pipx .local/share/uv .local/share/mise
    .local/share/pnpm .local/share/fnm .local/share/virtualenvs .cache/pip .cache/uv
    .cache/go-build .cache/yarn .cache/pnpm .cache/pypoetry .cache/pre-commit .cache/node
    .cache/node-gyp .cache/ccache .cache/sccache .cache/deno .cache/ms-playwright .cache/puppeteer
"""
"""Toolchains and package caches of a home."""
_ETC_SETTINGS = frozenset({"gitconfig", "npmrc", "pip.conf"})
"""Hidden if there is a password in them."""
_HOME_FILES = """
    .gitconfig .config/git/config .config/git/ignore .config/pip/pip.conf .condarc .npmrc
"""
_TOOL_SECRETS = """
    .cargo/credentials .cargo/credentials.toml .m2/settings.xml .m2/settings-security.xml
    .gradle/gradle.properties .gradle/enterprise .gradle/develocity .gem/credentials
    .composer/auth.json .bundle/config .cabal/config .ivy2/.credentials .sbt/.credentials
    .julia/servers .conda/aau_token .dotnet/corefx .local/share/uv/credentials
    .pub-cache/credentials.json .sbt/*/credentials.sbt
"""
"""What is beside toolchains and hidden whatever is in it."""
_TOOL_SETTINGS = """
    .cargo/config .cargo/config.toml .npm-global/etc/npmrc .nvm/versions/node/*/etc/npmrc
    .nodenv/versions/*/etc/npmrc .volta/tools/image/node/*/etc/npmrc .local/share/pnpm/rc
    .local/share/fnm/node-versions/*/installation/etc/npmrc .asdf/installs/nodejs/*/etc/npmrc
    .local/share/mise/installs/node/*/etc/npmrc .bun/bunfig.toml .yarn/yarnrc .sbt/repositories
    .sbt/*/*.sbt .sbt/*/global.sbt .gradle/init.gradle .gradle/init.gradle.kts .gradle/init.d/*
    .julia/config/startup.jl .composer/config.json .stack/config.yaml .gem/gemrc .opam/config
    .cache/pre-commit/*/.git/config go/pkg/mod/cache/vcs/*/config .npm/_logs/*
    .ivy2/ivysettings.xml .dotnet/NuGet/NuGet.Config .conda/condarc
"""
"""Settings beside toolchains, hidden if there is a password in them."""
_PASSWORD = re.compile(
    rb"//(?!git@)[^/@\s]+@|(?i:extraheader|pass\w*|token|secret|api_?key|_auth)[\\\"']{0,2}\s*[=:>\]]"
    rb"|\bgh[pousr]_\w{8}|\bglpat-[\w-]{8}|\bnpm_\w{16}|/t/[\w-]{16,}/"
    rb"|(?i:authorization|bearer)\b[:\s\"']+[\w+/=-]{6}|(?i:password)\s+[\"']|\bCredentials\("
    rb"|PRIVATE KEY-"
)
_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_NOBODY = 65534
_OCTAL = re.compile(rb"\\([0-7]{3})")
_SECRETS_SOUGHT = 100
_LONGEST_SETTINGS = 1 << 20
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
    identity: tuple[int, int] | None
    """Which directory that is: another one may take its path."""
    home: str
    """`~` as commands see it."""
    kept: Path
    """Where the home and what goes aside are on the host."""
    held: Path
    """Where copies are of what was held in the project."""
    tools: tuple[str, ...]
    """Directories of the person's home that show through, relative to it."""
    guarded: tuple[str, ...]
    """Files of the project that stay as they are, present or not."""
    repositories: tuple[str, ...]
    """Directories of git that the project's work goes to."""
    network: bool
    hidden: tuple[str, ...]
    """Covered wherever they would show."""
    devices: Path
    """Where device nodes for sandboxes are kept."""
    terminal: Terminal
    options: SandboxOptions

    def is_there(self) -> bool:
        """Tell whether the project is still the directory at its path."""
        return self.identity is None or identity_of(str(self.workspace)) == self.identity

    @property
    def writable(self) -> tuple[str, ...]:
        """Places that the file tools may write to."""
        return (self.start, self.home, "/tmp", STATE_DIR)  # noqa: S108 - the sandbox's own

    @property
    def closed(self) -> tuple[str, ...]:
        """Places in these that they may not; what went to `~` would be taken for the person's."""
        return self.guarded if self.home == HOME else (*self.guarded, self.home)


def lay_out(request: EnvironmentRequest) -> SandboxLayout:
    base = request.directory("sandbox")
    attended, project = bool(request.settings.project), request.project()
    network = request.terminal.sandbox_network
    home = os.path.realpath(request.env.get("HOME") or HOME) if attended else HOME
    home = HOME if home == "/" else home
    repositories = repositories_of(project) if project else ()
    kept = _kept(request.sandbox_dir, str(project)) if project else base
    return SandboxLayout(
        base=base,
        start=str(project or WORKSPACE),
        workspace=project or base / "workspace",
        project=project is not None,
        identity=identity_of(str(project)) if project else None,
        home=home,
        kept=kept,
        held=kept / "held",
        tools=_tools(Path(home)) if attended else (),
        guarded=tuple(guarded(project, repositories, Path(home))) if project else (),
        repositories=repositories,
        network=attended if network is None else network,
        hidden=(
            *(str(request.settings.home.root), str(request.sandbox_dir)),
            *request.settings.hidden,
        ),
        devices=request.sandbox_dir / "sandbox/.devices",
        terminal=request.terminal,
        options=request.options(SandboxOptions),
    )


def identity_of(path: str) -> tuple[int, int] | None:
    """Return which directory is at a path."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _kept(sandboxes: Path, project: str) -> Path:
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return sandboxes / "sandbox/.projects" / f"{Path(project).name[:40]}-{digest}"


def _tools(home: Path) -> tuple[str, ...]:
    return tuple(name for name in _TOOLS.split() if (home / name).is_dir())


def claim(layout: SandboxLayout) -> tuple[SandboxLayout, int | None]:
    """Take the kept home of a project, or another one while somebody else has that."""
    if not layout.project:
        return layout, None
    for number in range(100):
        kept = layout.kept / str(number)
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(kept / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return replace(layout, kept=kept), lock
    raise HermesError("100 sandboxes are open for this project.", hint="Close some of them.")


def prepare(layout: SandboxLayout) -> None:
    base = layout.base
    for name in ("tmp", "etc", "state", *(() if layout.project else ("workspace",))):
        (base / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (layout.kept / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    for tool in layout.tools:
        for name in ("up", "work"):
            place = layout.kept / "aside" / _flat(tool) / name
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in _OWN_ETC.items():
        filled = text.format(user="hermes", home=layout.home)
        (base / "etc" / name).write_text(filled, encoding="utf-8")
    (base / "etc/filter").write_bytes(filter_program())
    script = files("hermes.execution.backends.sandbox").joinpath("git.sh").read_text("utf-8")
    values = {
        "REAL": _REAL_GIT,
        "GUARDED": expression(),
        "CHOOSING": "|".join(name.replace(".", "[.]") for name in CHOOSING),
        "PROJECT": shlex.quote(layout.start),  # last: it may have any name
    }
    for name, value in values.items():
        script = script.replace(f"@{name}@", value)
    (base / "etc/git").write_bytes(os.fsencode(script))
    (base / "etc/git").chmod(0o755)


def overlay_script(layout: SandboxLayout) -> str:
    """Return what lays a writable directory over each toolchain, as root of the sandbox.

    Where the kernel refuses, toolchains and caches stay read-only.
    """
    lines = []
    for name in layout.tools:
        path = f"{layout.home}/{name}"
        if Path(layout.start).is_relative_to(path):
            continue  # it would cover the project
        aside = f"{ASIDE}/{_flat(name)}"
        options = f"lowerdir={_escaped(path)},upperdir={aside}/up,workdir={aside}/work,userxattr"
        lines.append(f"mount -t overlay overlay -o {shlex.quote(options)} {shlex.quote(path)}")
    for secret in _secrets(layout):
        cover = "-t tmpfs -o ro,size=0 tmpfs" if secret.is_dir() else "--bind /dev/null"
        quoted = shlex.quote(str(secret))
        lines.append(f"[ ! -e {quoted} ] || mount {cover} {quoted} || exit 1")
    return "\n".join((*lines, f"umount {ASIDE}"))


def _secrets(layout: SandboxLayout) -> Iterator[Path]:
    """Find what holds passwords in the toolchains that show through."""
    home = Path(layout.home)
    shown = [home / tool for tool in layout.tools]
    for pattern in (*_TOOL_SECRETS.split(), *_TOOL_SETTINGS.split()):
        for path in islice(home.glob(pattern), _SECRETS_SOUGHT):
            plain = pattern in _TOOL_SETTINGS.split() and _readable(path)
            if _inside_any(path, shown) and not plain:
                yield path


def _flat(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def _escaped(path: str) -> str:
    return re.sub(r"([\\:,])", r"\\\1", path)


def bwrap_arguments(layout: SandboxLayout) -> list[str]:
    """Return the arguments that make the sandbox, without the command."""
    network = layout.network
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
        *(_git(layout.base / "etc/git") if layout.project else ()),
        *_kernel(layout),
        *("--bind", str(layout.base / "state"), STATE_DIR),
        *("--bind", str(layout.base / "tmp"), "/tmp"),  # noqa: S108 - the sandbox's own
        *("--bind", str(layout.kept / "home"), layout.home),
        *_home(layout),
        *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108 - the sandbox's own
        *(part for path in shown for part in ("--ro-bind-try", path, path)),
        *(part for path in layout.repositories for part in ("--bind", path, path)),
        *("--bind", str(layout.workspace), layout.start),
        *_holding(layout),
        *_guarding(layout),
        *_hiding(layout),
        *("--remount-ro", "/", "--chdir", "/"),
    ]


def _home(layout: SandboxLayout) -> Iterator[str]:
    """Show what of the person's home commands may read."""
    for name in layout.tools:
        yield from ("--ro-bind", f"{layout.home}/{name}", f"{layout.home}/{name}")
    if layout.home == HOME:
        return
    for name in _HOME_FILES.split():
        path = Path(layout.home, name)
        if _readable(path):
            yield from ("--ro-bind", str(path), str(path))
    if layout.tools:
        yield from ("--bind", str(layout.kept / "aside"), ASIDE)


def _readable(path: Path) -> bool:
    """Tell whether this is a file without a password in it."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_SETTINGS + 1)
        return len(text) <= _LONGEST_SETTINGS and not _PASSWORD.search(text)
    except OSError:
        return False


def _guarding(layout: SandboxLayout) -> Iterator[str]:
    every = (f"{layout.start}/.git", *layout.guarded) if layout.project else ()
    for path, writable in coverings(layout, every):
        yield from ("--bind" if writable else "--ro-bind", path, path)


def coverings(layout: SandboxLayout, wanted: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Return the mounts that keep things as they are and from being moved out of the way.

    Of what is guarded only the `wanted`; the folders above are mounts that can be written to.
    """
    present = [path for path in layout.guarded if path in wanted and kind(path) not in {0, S_IFLNK}]
    above = {f"{layout.start}/.git"}.intersection(wanted)
    roots = [*map(Path, layout.repositories), layout.workspace]
    for path in list(present):
        folders = _folders_above(Path(path), roots)
        if any(kind(str(folder)) == S_IFLNK for folder in folders):
            present.remove(path)  # what the link leads to is guarded by its own path
        else:
            above.update(map(str, folders))
    for folder in sorted(above - {*map(str, roots)}):
        if kind(folder) == S_IFDIR:
            yield folder, True
    yield from ((path, False) for path in present)


def root_of(layout: SandboxLayout, path: str) -> str:
    """Return the folder that is watched and that something is in."""
    roots = (*layout.repositories, layout.start)
    return next((root for root in roots if f"{path}/".startswith(f"{root}/")), "")


def _folders_above(file: Path, roots: Iterable[Path]) -> list[Path]:
    """Return the folders between a root and what is in it."""
    root = next((root for root in roots if file.is_relative_to(root)), file)
    return [root / folder for folder in file.relative_to(root).parents]


def clear_ways(layout: SandboxLayout, points: Iterable[str]) -> None:
    """Move aside what commands have left on the way to a mount: a link would lead it elsewhere."""
    own = {layout.home: layout.kept / "home", "/tmp": layout.base / "tmp"}  # noqa: S108 - its own
    for point in points:
        for inside, outside in own.items():
            if point.startswith(f"{inside}/"):
                _clear_way(outside, point, Path(point).relative_to(inside))


def _clear_way(at: Path, point: str, way: Path) -> None:
    for number, name in enumerate(way.parts, 1):
        at /= name
        found = kind(str(at))
        last = number == len(way.parts) and found == S_IFREG and not Path(point).is_dir()
        if found and found != S_IFDIR and not last:
            at.rename(at.with_name(f"{name}.{secrets.token_hex(4)}"))
        if found != S_IFDIR:
            return


def misplaced(
    layout: SandboxLayout, points: Collection[str], root: str, mounted: frozenset[str]
) -> str:
    """Say what is mounted in another place than was meant, or another directory than was meant."""
    own = (layout.home, layout.start, "/tmp", *layout.repositories)  # noqa: S108 - its own
    elsewhere = mounted.difference(points, _mounted_here())
    for point in sorted(elsewhere):
        if any(point.startswith(f"{place}/") for place in own):
            return f"something was mounted at {point}"
    if layout.identity is not None and identity_of(f"{root}{layout.start}") != layout.identity:
        return f"{layout.start} is another directory than when this session began"
    return ""


def _mounted_here() -> frozenset[str]:
    return frozenset(mount_points(Path("/proc/self/mountinfo").read_bytes()))


def mount_points(mountinfo: bytes) -> dict[str, bool]:
    """Return where something is mounted, and whether what is on top there is read-only."""
    found = {}
    for line in filter(None, mountinfo.split(b"\n")):  # names may have every other separator
        _, _, _, _, escaped, how, _ = line.split(b" ", 6)
        point = _OCTAL.sub(lambda m: bytes([int(m[1], 8)]), escaped)
        found[os.fsdecode(point)] = b"ro" in how.split(b",")
    return found


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
            if pattern in _ETC_SETTINGS and not _readable(path):
                continue
            yield from ("--ro-bind-try", str(path), str(path))
    for name in ("passwd", "group", "nsswitch.conf", *(() if network else ("hosts",))):
        yield from ("--ro-bind", str(own_etc / name), f"/etc/{name}")


def _git(ours: Path) -> Iterator[str]:
    """Put ours in front of git: it refuses what git would leave half done."""
    if Path(_GIT).is_file() and not Path(_GIT).is_symlink() and Path("/bin/bash").exists():
        yield from ("--ro-bind", _GIT, _REAL_GIT, "--ro-bind", str(ours), _GIT)


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
    for path in _covered(layout):
        yield from _cover(path)


def _holding(layout: SandboxLayout) -> Iterator[str]:
    """Keep the folders above what is covered in the project from being moved, cover and all."""
    roots = [layout.workspace] if layout.project else []
    above = {folder for path in _covered(layout) for folder in _folders_above(path, roots)}
    for folder in sorted(map(str, above - {*roots})):
        if kind(folder) == S_IFDIR:
            yield from ("--bind", folder, folder)


def _covered(layout: SandboxLayout) -> list[Path]:
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
    return [path for path in covered if os.path.lexists(path)]


def _cover(path: Path) -> Iterator[str]:
    if path.is_symlink():
        return  # what it leads to is covered or not visible
    if path.is_dir():
        yield from ("--tmpfs", str(path), "--remount-ro", str(path))
    elif path.exists():
        yield from ("--ro-bind", "/dev/null", str(path))


def _inside_any(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)
