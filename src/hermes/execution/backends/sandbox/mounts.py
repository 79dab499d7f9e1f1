"""The inside of a sandbox: the arguments for bubblewrap.

Only what programs need is there, read-only: `/usr` and its aliases and a few
files of `/etc`. Homes, `/root`, `/var`, `/run` and the rest of the host do
not exist. Writable are the workspace, a home and a `/tmp` of its own, each a
directory of the session below `sandboxes/`, and a small RAM disk.

Where a person works on a project, its directory is the workspace, at its own
path. What the host would run later stays as it is: names in `_GUARDED` that are
there are mounted read-only, those that are not are watched (`guard`), in every folder and
for as long as anything runs. A mount does
not keep the directories above it from being renamed, so these are mounts too. The home
has the person's path but is the sandbox's own, kept for the next session on that
project; toolchains and package caches of the real one show through, and what
commands change in them goes to an overlay beside them (`overlay_script`).

A host root that runs Hermes is still the owner of what belongs to root, even
without any capability. So the root directory, `/dev`
and what the kernel lets its owner change in `/proc` are all read-only, and
device nodes are copies that belong to nobody.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import HermesError
from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import EnvironmentRequest
from hermes.execution.backends.sandbox.seccomp import filter_program


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

_USR_ALIASES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = """
    alternatives bash.bashrc ca-certificates ca-certificates.conf crypto-policies debian_version
    fonts gai.conf gitconfig inputrc java-*-openjdk ld.so.cache ld.so.conf ld.so.conf.d localtime
    locale.alias lsb-release magic magic.mime manpath.config mime.types nanorc os-release perl
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
_GUARDED = """
    .envrc .vscode .idea .zed .fleet .helix .devcontainer .devcontainer.json .github .gitlab
    .gitlab-ci.yml .gitea .forgejo .circleci .cirrus.yml .travis.yml .drone.yml .buildkite
    .woodpecker .woodpecker.yml .woodpecker.yaml Jenkinsfile azure-pipelines.yml .build.yml .builds
    bitbucket-pipelines.yml .husky .pre-commit-config.yaml lefthook.yml .lefthook.yml
    lefthook-local.yml .mise.toml mise.toml .mise.local.toml mise.local.toml .mise
    .config/mise .config/mise.toml .exrc .nvimrc .nvim.lua .vimrc .dir-locals.el .dir-locals-2.el
    .claude .cursor .mcp.json .gemini .codex .roo .windsurf .kiro .amazonq .vs .run .idx
    .codesandbox .gitpod.yml .lvimrc .autoenv .autoenv.zsh .lefthook .overcommit.yml
    .simple-git-hooks.json .simple-git-hooks.js .hg/hgrc .jj .sl appveyor.yml .appveyor.yml
    cloudbuild.yaml cloudbuild.yml buildspec.yml .semaphore .teamcity codemagic.yaml .tekton HEAD
    .gdbinit .Rprofile .irbrc .ghci .iex.exs .ocamlinit .pnpmfile.cjs
"""
"""What git, an editor, the shell or a CI service of the person runs later. With a `HEAD` the
project itself would be a repository without a work tree, and its settings would count."""
GUARDED_NAMES = frozenset(name for name in _GUARDED.split() if "/" not in name)
_OF_GIT = ("config", "config.worktree", "hooks", "commondir")
_FOLDERS_LOOKED_AT = 1000
_ENTRIES_LOOKED_AT = 5000
_LOOKED_UP = 100
_LISTED = 20
_NOT_LOOKED_INTO = frozenset({"node_modules", ".venv", "venv", "target", ".tox", "__pycache__"})
"""Too large for each look: only repositories are sought in there, and not far down."""
_OF_OBJECTS = frozenset({"objects", "refs"})
_HARMLESS_SETTING = re.compile(
    r"\s*(?:[#;].*|\[(?:user|init|pull|push|core|remote|branch|submodule|commit|tag|advice|color"
    r"|fetch|rebase|merge|diff|gc)\b[^\]]*\]|(?:name|email|url|fetch|remote|merge|rebase|default"
    r"|defaultbranch|autosetupremote|repositoryformatversion|filemode|bare|logallrefupdates"
    r"|ignorecase|precomposeunicode|symlinks|active|gpgsign|ff|autocrlf|eol|safecrlf|quotepath"
    r"|prune|autostash|conflictstyle|ui|auto|detachedhead)\s*(?:=.*)?"
    r"|worktree\s*=\s*(?:\.\./)+[\w./-]+)?",
    re.IGNORECASE,
)
_OF_NEW_REPOSITORIES = {
    "config": _HARMLESS_SETTING,
    "commondir": re.compile(r"\.\./\.\."),
    ".git": re.compile(r"gitdir: [^\0]*/\.git/(?:modules|worktrees)/[\w./-]+"),
    "git-rebase-todo": re.compile(r"(?!\s*(?:x|exec)\b).*"),
}
"""Files that git makes, and the lines in them that run nothing."""
_TOOLS = """
    .pyenv .rbenv .nodenv .goenv .jenv .nvm .volta .fnm .asdf .sdkman .bun .deno .cargo .rustup go
    .ghcup .cabal .stack .opam .elan .julia .juliaup .composer .dotnet .pub-cache .conda miniconda3
    anaconda3 miniforge3 .npm .npm-global .yarn .pnpm-store .m2 .gradle .ivy2 .sbt .gem .bundle
    .local/bin .local/lib .local/pipx .local/share/pipx .local/share/uv .local/share/mise
    .local/share/pnpm .local/share/fnm .local/share/virtualenvs .cache/pip .cache/uv
    .cache/go-build .cache/yarn .cache/pnpm .cache/pypoetry .cache/pre-commit .cache/node
    .cache/node-gyp .cache/ccache .cache/sccache .cache/deno .cache/ms-playwright .cache/puppeteer
"""
"""Toolchains and package caches of a home."""
_HOME_FILES = ".gitconfig .config/git/config .config/git/ignore .config/pip/pip.conf .condarc"
_TOOL_SECRETS = """
    .cargo/credentials .cargo/credentials.toml .m2/settings.xml .m2/settings-security.xml
    .gradle/gradle.properties .gem/credentials .composer/auth.json .bundle/config .cabal/config
    .ivy2/.credentials .sbt/.credentials .julia/servers .conda/aau_token .dotnet/corefx
    .local/share/uv/credentials .pub-cache/credentials.json
"""
_PASSWORD = re.compile(
    rb"//(?!git@)[^/@\s]+@|(?i:extraheader|pass\w*|token)\s*=|\bgh[pousr]_\w{8}|/t/[\w-]{16,}/"
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
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_CONFIG = 65_536
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
    home: str
    """`~` as commands see it."""
    kept: Path
    """Where the home and what goes aside are on the host."""
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

    @property
    def writable(self) -> tuple[str, ...]:
        """Places that the file tools may write to."""
        return (self.start, self.home, *self.repositories, "/tmp", STATE_DIR)  # noqa: S108 - the sandbox's own

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
    repositories = _repositories(project) if project else ()
    return SandboxLayout(
        base=base,
        start=str(project or WORKSPACE),
        workspace=project or base / "workspace",
        project=project is not None,
        home=home,
        kept=_kept(request.sandbox_dir, str(project)) if project else base,
        tools=_tools(Path(home)) if attended else (),
        guarded=tuple(_guarded(project, repositories)) if project else (),
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


def _kept(sandboxes: Path, project: str) -> Path:
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return sandboxes / "sandbox/.projects" / f"{Path(project).name[:40]}-{digest}"


def _tools(home: Path) -> tuple[str, ...]:
    return tuple(name for name in _TOOLS.split() if (home / name).is_dir())


def _repositories(project: Path) -> tuple[str, ...]:
    """Return the directories of git that belong to a work tree, if they say so themselves."""
    found: list[Path] = []
    try:
        pointed = (project / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        own = Path(os.path.realpath(project / pointed))
        if Path((own / "gitdir").read_text(encoding="utf-8").strip()) == project / ".git":
            common = (own / "commondir").read_text(encoding="utf-8").strip()
            found = [Path(os.path.realpath(own / common))]
    except (OSError, UnicodeDecodeError):
        pass
    return tuple(str(path) for path in found if (path / "objects").is_dir())


def _guarded(project: Path, repositories: tuple[str, ...]) -> Iterator[str]:
    for name in _GUARDED.split():
        yield str(project / name)
        real = Path(os.path.realpath(project / name))
        if project in real.parents:  # a link may lead elsewhere in the project
            yield str(real)
    if project in (own := Path(os.path.realpath(sys.prefix))).parents:
        yield str(own)  # Hermes itself is installed there, and starts programs of it
    files, gits = _present(project)
    yield from files
    for git in (*map(Path, repositories), *gits):
        yield from (str(git / name) for name in _OF_GIT)
        yield from _named_in(git / "config", project)
        for module in islice(_modules(git), 200):
            yield from (f"{module}/{name}" for name in _OF_GIT)
        for tree in sorted(git.glob("worktrees/*"))[:200]:
            yield from _of_work_tree(tree, project)


def _present(project: Path) -> tuple[list[str], list[Path]]:
    """Return what is there in folders, and where links lead: files, and directories of git."""
    files: list[str] = []
    gits = [] if (project / ".git").is_file() else [project / ".git"]
    files += [] if gits else [str(project / ".git")]
    for path in islice(_inner(project), 200):
        real = Path(os.path.realpath(path))
        is_git = path.name == ".git" and not path.is_file()
        files += [str(path)] if real != path or not is_git else []
        if project in real.parents:
            gits.append(real) if is_git else files.append(str(real))
    return files, gits


def _named_in(config: Path, project: Path) -> Iterator[str]:
    """Return what the settings of a repository name in the project: hooks, includes, filters."""
    with contextlib.suppress(OSError):
        with config.open("rb") as file:
            text = file.read(_LONGEST_CONFIG).decode("utf-8", "replace")
        for line in text.splitlines():
            _, equals, value = line.partition("=")
            if not equals or _HARMLESS_SETTING.fullmatch(line):
                continue
            for word in re.findall(r"[^\s\"';&|]+", value):
                for base in (project, config.parent):
                    real = Path(os.path.realpath(base / word))
                    if project in real.parents and config.parent not in real.parents:
                        yield str(real)


def _of_work_tree(tree: Path, project: Path) -> Iterator[str]:
    """Guard what git keeps of a work tree: all of it, unless it is a part of the project."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if Path((tree / "gitdir").read_text(encoding="utf-8").strip()).is_relative_to(project):
            yield from (str(tree / name) for name in ("commondir", "config.worktree"))
            return
    yield str(tree)


def _inner(project: Path, tucked: list[str] | None = None) -> Iterator[Path]:
    """Find repositories and guarded names in folders, as far as a short look goes."""
    ahead, looked, left = deque([str(project)]), 0, _ENTRIES_LOOKED_AT
    tucked = [] if tucked is None else tucked
    while ahead and (looked := looked + 1) <= _FOLDERS_LOOKED_AT:
        folder, listed, most = ahead.popleft(), 0, max(left, _FOLDERS_LOOKED_AT)
        seen: set[str] = set()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, most):
                listed += 1
                if entry.name == ".git" or entry.name in GUARDED_NAMES:
                    seen.add(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    (tucked if entry.name in _NOT_LOOKED_INTO else ahead).append(entry.path)
        left -= listed
        if listed == most:  # there may be more of them: a name is found without a list
            seen = {n for n in (".git", *GUARDED_NAMES) if os.path.lexists(f"{folder}/{n}")}
        if looked > 1:
            yield from (Path(folder, name) for name in seen)


def _tucked_away(folders: list[str]) -> Iterator[Path]:
    """Find repositories in folders that are not looked into."""
    for number, folder in enumerate(folders):  # grows
        if number >= _LOOKED_UP:
            return
        yield from (Path(folder, n) for n in (".git", "HEAD") if os.path.lexists(f"{folder}/{n}"))
        if number < _LISTED and len(folders) < _LOOKED_UP:
            folders += islice(_folders(folder), _LOOKED_UP)


def _folders(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                yield entry.path


def _modules(git: Path) -> Iterator[str]:
    """Find the repositories of submodules, whose names may have any number of folders."""
    ahead, looked = deque(_folders(f"{git}/modules")), 0
    while ahead and (looked := looked + 1) <= _FOLDERS_LOOKED_AT:
        folder = ahead.popleft()
        if any(os.path.lexists(f"{folder}/{name}") for name in _OF_GIT):
            yield folder
        inner = islice(_folders(folder), _FOLDERS_LOOKED_AT)
        ahead.extend(path for path in inner if path.rpartition("/")[2] not in _OF_OBJECTS)


def watched(layout: SandboxLayout) -> set[str]:
    """Return what is there now, in any folder, of the kind that the host runs later."""
    if not layout.project:
        return set()
    found: set[str] = set()
    repositories = [layout.workspace / ".git", *map(Path, layout.repositories)]
    tucked: list[str] = []
    usual = islice(_inner(layout.workspace, tucked), _FOLDERS_LOOKED_AT)
    for path in chain(usual, _tucked_away(tucked)):
        inner = path.name == ".git" and path.is_dir() and not path.is_symlink()
        found.update(str(path / name) for name in _OF_GIT) if inner else found.add(str(path))
        repositories += [path] if inner else []
    for git in repositories:
        trees = islice(_folders(f"{git}/worktrees"), _FOLDERS_LOOKED_AT)
        found.update(f"{path}/{n}" for path in chain(trees, _modules(git)) for n in _OF_GIT)
        found.add(str(git / "rebase-merge/git-rebase-todo"))
    return {path for path in found if os.path.lexists(path)}


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
    for name in _TOOL_SECRETS.split():
        secret = Path(layout.home, name)
        if any(secret.is_relative_to(Path(layout.home, tool)) for tool in layout.tools):
            quoted = shlex.quote(str(secret))
            lines.append(f"[ ! -e {quoted} ] || mount --bind /dev/null {quoted} || exit 1")
    return "\n".join((*lines, f"umount {ASIDE}"))


def _flat(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def _escaped(path: str) -> str:
    return re.sub(r"([\\:,])", r"\\\1", path)


def absent(layout: SandboxLayout) -> dict[str, str]:
    """Return what could appear while the sandbox is up and must not, or be another link."""
    git = (str(layout.workspace / ".git"),) if layout.project else ()
    paths = (path for path in (*git, *layout.guarded) if not os.path.lexists(path) or _link(path))
    return {path: _link(path) for path in paths}


def guard(layout: SandboxLayout, absent: Mapping[str, str]) -> list[str]:
    """Rename what has appeared where nothing of the sandbox may; return its names."""
    away = []
    for path, link in absent.items():
        if not link and not os.path.lexists(path):
            continue  # the ordinary case, for a hundred names after each command
        root = _root(layout, path) or layout.start
        *folders, name = Path(path).relative_to(root).parts
        # Commands may put links anywhere: nothing is followed below the root.
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            directory: int | None = None
            for folder in (root, *folders):
                directory = os.open(folder, _FOLDER, dir_fd=directory)
                opened.callback(os.close, directory)
            if directory is None or link == _link(name, directory) != "":
                continue
            if link or not _runs_nothing(layout, directory, path):
                _hold(directory, name)
                away.append("/".join((*folders, name)))
                if link:
                    os.symlink(link, name, dir_fd=directory)
    return away


def _root(layout: SandboxLayout, path: str) -> str:
    roots = (*layout.repositories, layout.start)
    return next((root for root in roots if Path(path).is_relative_to(root)), "")


def _hold(directory: int, name: str) -> None:
    """Rename it to what takes the place of the one held before, or goes into that folder."""
    held, unique = f"{name}.held", secrets.token_hex(3)
    with contextlib.suppress(OSError):
        os.unlink(held, dir_fd=directory)
    with contextlib.suppress(OSError):
        os.rename(name, held, src_dir_fd=directory, dst_dir_fd=directory)
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        inside = os.open(held, _FOLDER, dir_fd=directory)
        opened.callback(os.close, inside)
        os.rename(name, unique, src_dir_fd=directory, dst_dir_fd=inside)
        return
    os.rename(name, f"{held}-{unique}", src_dir_fd=directory, dst_dir_fd=directory)


def _link(path: str, directory: int | None = None) -> str:
    try:
        return os.readlink(path, dir_fd=directory)
    except OSError:
        return ""


def _runs_nothing(layout: SandboxLayout, directory: int, path: str) -> bool:
    """Tell whether this is what git itself has made, with nothing in it to run."""
    root = _root(layout, path)
    *folders, name = Path(path).relative_to(root).parts
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    in_git = ".git" in folders or root in layout.repositories
    if stat.S_ISDIR(status.st_mode):
        if name == ".git" or not (in_git and name == "hooks"):
            return name == ".git"
        inside = os.open(name, _FOLDER, dir_fd=directory)
        try:
            return all(hook.endswith(".sample") for hook in os.listdir(inside))  # noqa: PTH208
        finally:
            os.close(inside)
    wanted = _OF_NEW_REPOSITORIES.get(name)
    if wanted is None or not stat.S_ISREG(status.st_mode) or (name != ".git" and not in_git):
        return False
    if (name == ".git" and not folders) or (name == "commondir" and "worktrees" not in folders):
        return False
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    with os.fdopen(file, "rb") as config:
        text = config.read(_LONGEST_CONFIG + 1)
    lines = text.decode("utf-8", "replace").splitlines()
    if len(text) > _LONGEST_CONFIG or not all(map(wanted.fullmatch, lines)):
        return False
    return name != ".git" or _leads_to_nothing(layout, Path(path).parent, lines)


def _leads_to_nothing(layout: SandboxLayout, folder: Path, lines: list[str]) -> bool:
    """Tell whether a `.git` file leads to a repository of the project with nothing to run."""
    path = os.path.normpath(folder / "".join(lines).removeprefix("gitdir: "))
    root = _root(layout, path)
    if len(lines) != 1 or not root or os.path.realpath(path) != path:
        return False
    if (_NOT_LOOKED_INTO | _OF_OBJECTS).intersection(Path(path).relative_to(root).parts):
        return False
    names = [name for name in _OF_GIT if os.path.lexists(f"{path}/{name}")]
    new = [name for name in names if f"{path}/{name}" not in layout.guarded]
    with contextlib.ExitStack() as opened:
        directory = os.open(path, _FOLDER) if new else -1
        if new:
            opened.callback(os.close, directory)
        return all(_runs_nothing(layout, directory, f"{path}/{name}") for name in new)


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
        *_kernel(layout),
        *("--bind", str(layout.base / "state"), STATE_DIR),
        *("--bind", str(layout.base / "tmp"), "/tmp"),  # noqa: S108 - the sandbox's own
        *("--bind", str(layout.kept / "home"), layout.home),
        *_home(layout),
        *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108 - the sandbox's own
        *(part for path in shown for part in ("--ro-bind-try", path, path)),
        *(part for path in layout.repositories for part in ("--bind", path, path)),
        *("--bind", str(layout.workspace), layout.start),
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
        return path.is_file() and not _PASSWORD.search(path.read_bytes())
    except OSError:
        return False


def _guarding(layout: SandboxLayout) -> Iterator[str]:
    """Keep what the host runs later as it is, and from being moved out of the way."""
    present = [path for path in layout.guarded if os.path.lexists(path) and not _link(path)]
    above = {f"{layout.start}/.git"} if layout.project else set[str]()
    roots = [*map(Path, layout.repositories), layout.workspace]
    for file in map(Path, present):
        root = next((root for root in roots if file.is_relative_to(root)), file)
        above.update(str(root / folder) for folder in file.relative_to(root).parents)
    for folder in sorted(above - {*map(str, roots)}):
        if Path(folder).is_dir() and not _link(folder):
            yield from ("--bind", folder, folder)
    for path in present:
        yield from ("--ro-bind", path, path)


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
            if pattern in {"gitconfig", "pip.conf"} and not _readable(path):
                continue
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
