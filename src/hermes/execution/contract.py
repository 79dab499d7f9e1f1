"""What the pool asks of a backend."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment

__all__ = ["EnvironmentRequest", "EnvironmentSettings", "OpenEnvironment", "PooledEnvironment"]


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
