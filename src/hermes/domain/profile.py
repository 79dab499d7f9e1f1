"""AgentProfile: who the agent is. It is handed down with every turn job.

A profile is a value that lasts: a turn keeps the one it began with, whatever the configuration
says meanwhile. The profile of the running turn is bound by `use_profile` to one context variable,
which tasks and threads (`asyncio.to_thread`) inherit. Settings (`LiveSettings`), paths
(`HermesHome.of_turn`), secrets and redaction look there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from hermes.domain.settings.root import Settings

DEFAULT_AGENT = "main"
"""The agent whose home is the Hermes home itself."""
DEFAULT_AGENT_NAMES = ("hermes", DEFAULT_AGENT, "hermes-agent")
"""What people and programs may call it."""


class AgentScope:
    """What an agent has for itself: settings laid over the general ones, and its variables.

    A variable that is a secret of somebody else is not there: nothing falls back to the
    secrets of another agent.
    """

    __slots__ = ("__weakref__", "_laid", "_lay", "env_file", "secrets", "variable")

    def __init__(
        self,
        lay: Callable[["Settings"], "Settings"],
        variable: Callable[[str], str | None],
        secrets: Mapping[str, str],
        env_file: Path | None = None,
    ) -> None:
        self._lay = lay
        self._laid: tuple[Settings, Settings] | None = None
        self.variable = variable
        """Looks up a variable of its `.env`, or one of the process that is no secret."""
        self.secrets = secrets
        """What it must never show."""
        self.env_file = env_file
        """Where its secrets belong; None for those of the process."""

    def settings(self, general: "Settings") -> "Settings":
        if self._laid is None or self._laid[0] is not general:
            self._laid = general, self._lay(general)
        return self._laid[1]


class AgentProfile(Struct, frozen=True, kw_only=True):
    id: str
    home: Path
    workspace: Path
    """Where its tools start; for the terminal door the current directory."""
    provider: str
    model: str
    toolsets: tuple[str, ...]
    disabled_toolsets: tuple[str, ...] = ()
    backend: str = "local"
    secret_names: frozenset[str] = frozenset()
    """Names of the secrets this agent may use."""
    description: str = ""
    prompt: str = ""
    """Who it is, in place of `SOUL.md`."""
    note: str = ""
    """What a route adds to its prompt."""
    own_toolsets: bool = False
    """Its toolsets count at every door; else those of the door do."""
    exposed: bool = True
    """Whether the HTTP API offers it."""
    scope: AgentScope | None = None
    """None: it has what the process has."""


_running: ContextVar[AgentProfile | None] = ContextVar("hermes_agent_profile", default=None)


@contextmanager
def use_profile(profile: AgentProfile) -> Iterator[None]:
    """Have the body, and every task and thread started in it, work for this agent."""
    token = _running.set(profile)
    try:
        yield
    finally:
        _running.reset(token)


def current_profile() -> AgentProfile | None:
    """Return the agent that the running code works for; None if for none."""
    return _running.get()
