"""Who the agent is, as the prompt builder sees it."""

from typing import Protocol

from msgspec import Struct

from hermes.domain.profile import AgentProfile

__all__ = ["Identity", "IdentitySnapshot"]


class IdentitySnapshot(Struct, frozen=True, kw_only=True):
    """The agent's own files, as they were when a session began."""

    soul: str | None = None
    memory: str | None = None
    user: str | None = None
    skills: str | None = None
    """An index of the skills, one line each."""


class Identity(Protocol):
    """Reads the agent's own files."""

    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        """Return what the prompt of a new session is made of."""
        ...
