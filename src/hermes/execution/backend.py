"""What the pool asks of a backend."""

import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment


class EnvironmentSettings(Struct, frozen=True, kw_only=True):
    """How the environments of one agent are made."""

    backend: str = "local"
    default_cwd: str = "."
    base_env: Mapping[str, str] = {}
    """What children inherit, before secrets are taken out."""
    secret_names: frozenset[str] = frozenset()
    env_passthrough: frozenset[str] = frozenset()
    lifetime_seconds: float = 300.0
    """Idle time after which an environment is closed."""
    options: Mapping[str, Any] = {}
    """What the chosen backend understands beyond that."""


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


class PooledEnvironment(Environment, Protocol):
    """An environment that tells the pool when it may be closed.

    `close` parks it: everything is stopped, but a later call starts it anew.
    """

    @property
    def idle_since(self) -> float | None:
        """Monotonic time of the last use; None while something runs in it."""
        ...

    @property
    def background_since(self) -> float | None:
        """When the oldest background process that still runs was started; None: none runs."""
        ...


OpenEnvironment = Callable[[EnvironmentRequest], Awaitable[PooledEnvironment]]
"""What the dotted path of a backend leads to."""

T = TypeVar("T")


def decode_options(kind: type[T], options: Mapping[str, Any], what: str) -> T:
    """Check and convert the options of an environment; `what` begins the sentence of the error."""
    try:
        return msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{what} cannot be set up as configured: {error}.",
            hint="Check the `terminal` section of config.yaml.",
        ) from error


_MAX = 80
_TOP_LEVEL = 2


def safe_name(text: str) -> str:
    """Return `text` as a directory name; different texts give different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:_MAX]
    if plain == text and plain:
        return plain
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def task_id(agent_id: str, session_id: str) -> str:
    """Return the one name of an agent's session."""
    return f"{safe_name(agent_id)}.{safe_name(session_id)}"


def task_directory(sandbox_dir: str, backend: str, agent_id: str, session_id: str) -> Path:
    """Return where the files of a session's sandbox are kept."""
    return Path(sandbox_dir) / backend / safe_name(agent_id) / safe_name(session_id)


def checked_project(path: str, hermes_home: str) -> Path:
    """Return a directory that may be opened for writing, without links."""
    project = Path(os.path.realpath(path))
    home = Path(os.path.realpath(hermes_home))
    if not project.is_dir():
        raise ConfigError(
            f"The directory to work on does not exist: {path}.",
            hint="Start Hermes in another directory or set `terminal.cwd`.",
        )
    system = (Path("/usr"), Path("/etc"), home)
    if len(project.parts) <= _TOP_LEVEL or any(project.is_relative_to(place) for place in system):
        raise ConfigError(
            f"A sandbox does not get {project} to write in.",
            hint="Work in a project directory, or choose another `terminal.backend`.",
        )
    return project
