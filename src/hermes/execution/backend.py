"""Backends: where the commands and files of sessions are.

A backend is one module with a `Backend`, named by an entry point of the group
`hermes.backends`; nothing else knows of it. It reads its settings where they
are declared, in the `terminal` section it is handed; what it understands beyond
that it declares as a struct, filled from `terminal.backend_options`.

Secrets stay with Hermes (`child_environment`): children see the ordinary variables
of a login and of toolchains, and those that the user names, nothing else.

The sandboxes of sessions keep their files below `<home>/sandboxes/<backend>`.
A session id may come from outside, so it becomes a directory name only after
everything unusual has been replaced, with a digest so that two ids never meet.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment
from hermes.domain.settings.execution import Terminal

GROUP = "hermes.backends"
_LONGEST_NAME = 80
_TOP_LEVEL = 2
_ORDINARY = """
    PATH HOME USER LOGNAME SHELL PWD OLDPWD SHLVL HOSTNAME LANG LANGUAGE LC_* TZ TERM COLORTERM
    TERM_PROGRAM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR LS_COLORS XDG_* TMPDIR TMP TEMP
    EDITOR VISUAL PAGER GIT_PAGER MANPAGER LESS BROWSER MANPATH INFOPATH DISPLAY WAYLAND_DISPLAY
    XAUTHORITY DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK SSH_CONNECTION SSH_TTY GPG_TTY
    GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY FTP_PROXY http_proxy https_proxy all_proxy no_proxy
    ftp_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    CC CXX CPP LD AR CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MAKE CMAKE_* PKG_CONFIG_PATH
    LIBRARY_PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_EXE MAMBA_ROOT_PREFIX PYENV_* PYTHONPATH
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8 PYTHONHASHSEED
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CACHE_DIR PIP_REQUIRE_VIRTUALENV PIPX_HOME PIPX_BIN_DIR
    UV_CACHE_DIR UV_INDEX_URL POETRY_HOME POETRY_CACHE_DIR NVM_* FNM_* VOLTA_HOME N_PREFIX NODE_ENV
    NODE_PATH NODE_OPTIONS NPM_CONFIG_PREFIX NPM_CONFIG_CACHE NPM_CONFIG_REGISTRY PNPM_HOME
    YARN_CACHE_FOLDER BUN_INSTALL DENO_DIR DENO_INSTALL CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME
    RUSTUP_TOOLCHAIN RUSTFLAGS RUST_BACKTRACE RUST_LOG GOPATH GOROOT GOBIN GOPROXY GOFLAGS
    GOMODCACHE GOCACHE GOOS GOARCH CGO_ENABLED JAVA_HOME JDK_HOME M2_HOME MAVEN_HOME MAVEN_OPTS
    GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR ANDROID_HOME ANDROID_SDK_ROOT RBENV_ROOT RUBYLIB
    RUBYOPT GEM_HOME GEM_PATH BUNDLE_PATH COMPOSER_HOME DOTNET_ROOT ASDF_DIR ASDF_DATA_DIR
    MISE_DATA_DIR HOMEBREW_* NIX_PATH NIX_PROFILES LOCALE_ARCHIVE PERL5LIB OPAM_SWITCH_PREFIX
    GHCUP_* CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG
    DOCKER_BUILDKIT KUBECONFIG CI DEBIAN_FRONTEND WSL_DISTRO_NAME WSLENV
"""
"""Variables that a login or a toolchain sets and that hold no secrets."""
_WITH_PASSWORD = re.compile(
    r"//[^/@\s]+@|\bsk-[\w-]{8}|\bgh[pousr]_\w{8}"
    r"|(?i:token|passw(?:or)?d|secret|api[_.-]?key|credential)[\w.-]{0,40}=(?!\d+\b)\S{6}"
)

_NO_PROJECTS = """
    .ssh .gnupg .aws .azure .kube .password-store .mozilla .config/gh .config/gcloud bin .local/bin
    .config/autostart .config/systemd .local/share/keyrings .local/share/applications .docker
    .local/lib .local/share/nvim .cargo .rustup .pyenv .nvm .rbenv .nodenv .asdf .sdkman .volta
    .oh-my-zsh .zsh .zinit .zprezto .bashrc.d .profile.d .vim .emacs.d .doom.d .spacemacs.d .tmux
    .config/nvim .config/helix .config/fish .config/git .ipython .jupyter .vscode .vscode-server
    .m2 .gradle .gem .bun .deno .antigen .cursor .claude .git-templates .githooks .terminfo .fzf
"""

T = TypeVar("T")


class EnvironmentSettings(Struct, frozen=True, kw_only=True):
    """How the environments of one agent are made."""

    home: HermesHome
    backend: str = "local"
    terminal: Terminal = Terminal()
    default_cwd: str = "."
    project: str = ""
    """Directory that a person works on; empty where nobody watches."""
    base_env: Mapping[str, str] = {}
    """What children inherit, before secrets are taken out."""
    secret_names: frozenset[str] = frozenset()
    skills_dir: Path | None = None
    """The skills of the agent, where they are not those of the home."""
    hidden: tuple[str, ...] = ()
    """Homes of agents that lie elsewhere."""
    variable: Callable[[str], str | None] = lambda _: None
    """Looks up tokens of providers in `.env` and the environment."""


class Notify(Protocol):
    """Tells the session something about a background process, or its exit code."""

    def __call__(
        self,
        process_id: str,
        text: str,
        exit_code: int | None,
        /,
        *,
        aside: bool = ...,
        admitted: Callable[[], None] = ...,
    ) -> None: ...


class EnvironmentRequest(Struct, frozen=True, kw_only=True):
    """An environment that a session needs now."""

    agent_id: str
    session_id: str
    cwd: str
    env: Mapping[str, str]
    """What children get to see; shared between sessions, so never to be changed."""
    settings: EnvironmentSettings
    clock: Clock
    notify: Notify

    @property
    def terminal(self) -> Terminal:
        return self.settings.terminal

    @property
    def task(self) -> str:
        """The one name of an agent's session."""
        return f"{_safe_name(self.agent_id)}.{_safe_name(self.session_id)}"

    @property
    def sandbox_dir(self) -> Path:
        return Path(self.terminal.sandbox_dir or self.settings.home.sandboxes_dir)

    def directory(self, backend: str) -> Path:
        """Return where a backend keeps the files of this session."""
        return self.sandbox_dir / backend / _safe_name(self.agent_id) / _safe_name(self.session_id)

    def project(self) -> Path | None:
        """Return the directory a person works on, without links; None if it is no project."""
        settings = self.settings
        if not settings.project:
            return None
        if not Path(settings.project).is_dir():
            raise ConfigError(
                f"The directory to work on does not exist: {settings.project}.",
                hint="Start Hermes in another directory or set `terminal.cwd`.",
            )
        return project_at(settings.project, settings.home.root, settings.base_env.get("HOME", "/"))

    def options(self, kind: type[T]) -> T:
        """Return `terminal.backend_options` as the backend's own struct."""
        try:
            return msgspec.convert(self.terminal.backend_options, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"The {self.settings.backend} backend cannot be set up as configured: {error}.",
                hint="Check `terminal.backend_options` in config.yaml.",
            ) from error


class PooledEnvironment(Environment, Protocol):
    """An environment that tells the pool when it may be closed.

    `close` parks it: everything is stopped, but a later call starts it again.
    """

    @property
    def idle_since(self) -> float | None:
        """Monotonic time of the last use; None while something runs in it."""

    @property
    def background_since(self) -> float | None:
        """When the oldest background process that still runs was started; None: none runs."""


class Backend(Struct, frozen=True, kw_only=True):
    """What the entry point of a backend leads to."""

    open: Callable[[EnvironmentRequest], Awaitable[PooledEnvironment]]
    """Make the environment of one session."""
    unavailable: Callable[[], str] = lambda: ""
    """Say why it cannot run on this machine; empty if it can."""
    private_workspace: bool = False
    """Each session without a project starts in an empty workspace of its own."""


@cache
def load_backend(name: str) -> Backend:
    installed = entry_points(GROUP)
    if name not in installed:
        raise ConfigError(
            f"There is no execution backend `{name}`.",
            hint=f"Set `terminal.backend` to one of: {', '.join(installed)}.",
        )
    backend: Backend = load_entry_point(installed[name])
    return backend


def _safe_name(text: str) -> str:
    """Return `text` as a directory name; different texts give different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:_LONGEST_NAME]
    if plain == text and plain:
        return plain
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def project_at(directory: str, hermes_home: Path, user_home: str) -> Path | None:
    """Return the real path of a directory that sandboxes may write to; None if it is no project.

    No project is a home, what homes are in, a part of the system, the home of Hermes, and
    what of a home holds keys or is run without being asked for.
    """
    project, home = Path(os.path.realpath(directory)), Path(os.path.realpath(user_home))
    private = [home / name for name in _NO_PROJECTS.split()]
    system = map(Path, ("/usr", "/etc", "/boot", "/proc", "/sys", os.path.realpath(hermes_home)))
    closed = (*system, *private)
    if len(project.parts) <= _TOP_LEVEL or any(p.is_relative_to(project) for p in (home, *private)):
        return None
    return None if any(map(project.is_relative_to, closed)) else project


def repository_above(project: Path) -> Path | None:
    """Return the top of the repository that a directory is a mere folder of."""
    if os.path.lexists(project / ".git"):
        return None
    return next((each for each in project.parents if os.path.lexists(each / ".git")), None)


def exposed_by(mounts: Iterable[str]) -> tuple[str, ...]:
    """Return where `source:destination[:options]` lets commands change files of the host."""
    found: list[str] = []
    for mount in mounts:
        source, _, rest = mount.partition(":")
        target, _, options = rest.partition(":")
        if not source.startswith(("/", ".", "~", "$")):
            continue  # a volume of the engine's own
        if posixpath.normpath(source) in _MACHINE or source.endswith(".sock"):
            return ("/",)  # also read-only: a socket is spoken to, not written
        if "ro" not in options.split(","):
            found.append(target or source)
    return tuple(found)


_MACHINE = frozenset({"/", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/usr"}) | {
    "/var",
    "/var/lib",
    "/var/run",
}


def child_environment(
    base_env: Mapping[str, str],
    secret_names: Collection[str] = (),
    env_passthrough: Collection[str] = (),
) -> dict[str, str]:
    """Return what of `base_env` a child may have: the ordinary and the named."""
    names = _ORDINARY.split()
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))

    def given(name: str, value: str) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in env_passthrough):
            return True
        ordinary = name in names or name.startswith(beginnings)
        return ordinary and name not in secret_names and not _WITH_PASSWORD.search(value)

    return {name: value for name, value in base_env.items() if given(name, value)}
