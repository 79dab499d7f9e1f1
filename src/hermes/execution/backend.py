"""Backends: where the commands and files of sessions are.

A backend is one module with a `Backend`, named by an entry point of the group
`hermes.backends`; nothing else knows of it. It reads its settings where they
are declared, in the `terminal` section it is handed; what it understands beyond
that it declares as a struct, filled from `terminal.backend_options`.

Secrets of Hermes stay with Hermes (`child_environment`): the named ones and
everything that looks like one are left out of what children see, unless a name
is let through.

The sandboxes of sessions keep their files below `<home>/sandboxes/<backend>`.
A session id may come from outside, so it becomes a directory name only after
everything unusual has been replaced, with a digest so that two ids never meet.
"""

import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
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
_PRIVATE_ENDINGS = """
    _API_KEY _APIKEY _ACCESS_KEY _CREDENTIALS _KEY_ID _PASSPHRASE _PASSWORD _PRIVATE_KEY _SECRET
    _SECRET_KEY _TOKEN
"""
_SECRET_NAMES = frozenset(
    {"API_KEY", "PASSWORD", "SECRET", "TOKEN", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD"}
)

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
    variable: Callable[[str], str | None] = lambda _: None
    """Looks up tokens of providers in `.env` and the environment."""


class EnvironmentRequest(Struct, frozen=True, kw_only=True):
    """An environment that a session needs now."""

    agent_id: str
    session_id: str
    cwd: str
    env: Mapping[str, str]
    """What children get to see; shared between sessions, so never to be changed."""
    settings: EnvironmentSettings
    clock: Clock
    notify: Callable[[str, str], None]
    """Tell the session something (text) about a background process (id)."""

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

    def project(self) -> Path:
        """Return the directory to work on, without links, if it may be opened for writing."""
        project = Path(os.path.realpath(self.settings.project))
        home = Path(os.path.realpath(self.settings.home.root))
        if not project.is_dir():
            raise ConfigError(
                f"The directory to work on does not exist: {self.settings.project}.",
                hint="Start Hermes in another directory or set `terminal.cwd`.",
            )
        closed = (Path("/usr"), Path("/etc"), home)
        if len(project.parts) <= _TOP_LEVEL or any(map(project.is_relative_to, closed)):
            raise ConfigError(
                f"A sandbox does not get {project} to write in.",
                hint="Work in a project directory, or choose another `terminal.backend`.",
            )
        return project

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


def looks_secret(name: str) -> bool:
    """Tell whether a variable of this name usually holds a secret."""
    upper = name.upper()
    return upper in _SECRET_NAMES or upper.endswith(tuple(_PRIVATE_ENDINGS.split()))


def child_environment(
    base_env: Mapping[str, str],
    secret_names: Collection[str] = (),
    env_passthrough: Collection[str] = (),
) -> dict[str, str]:
    """Return what of `base_env` a child may have."""
    return {
        name: value
        for name, value in base_env.items()
        if name in env_passthrough or not (name in secret_names or looks_secret(name))
    }
