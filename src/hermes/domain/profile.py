"""AgentProfile: who the agent is. It is handed down with every turn job."""

from pathlib import Path

from msgspec import Struct

DEFAULT_AGENT = "main"
"""The agent whose home is the Hermes home itself."""
DEFAULT_AGENT_NAMES = ("hermes", DEFAULT_AGENT, "hermes-agent")
"""What people and programs may call it."""


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
