"""AgentProfile: who the agent is, bound once per lane.

The current profile travels in one context variable. Child tasks and
`asyncio.to_thread` inherit it; `run_in_executor` does not and is banned.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from msgspec import Struct

DEFAULT_AGENT = "main"
"""The agent whose home is the Hermes home itself."""
DEFAULT_AGENT_NAMES = ("hermes", DEFAULT_AGENT, "hermes-agent")
"""What people and programs may call it."""


class AgentProfile(Struct, frozen=True, kw_only=True):
    """One agent: its home and what it may use."""

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


_current: ContextVar[AgentProfile] = ContextVar("hermes_profile")


@contextmanager
def use_profile(profile: AgentProfile) -> Iterator[AgentProfile]:
    """Bind `profile` for the body of the `with` and for tasks started in it."""
    token = _current.set(profile)
    try:
        yield profile
    finally:
        _current.reset(token)


def current_profile() -> AgentProfile:
    """Return the bound profile; a LookupError here is a bug, never a default."""
    return _current.get()
