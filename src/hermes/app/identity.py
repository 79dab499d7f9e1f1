"""The agent's own files, read for the prompt of a new session."""

from hermes.config.paths import HermesHome
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.profile import AgentProfile
from hermes.state.soul import read_self

__all__ = ["FileIdentity"]


class FileIdentity:
    """Reads SOUL.md and the memory files of an agent's home."""

    def __init__(self, *, memory_limit: int, user_limit: int) -> None:
        self._memory_limit = memory_limit
        self._user_limit = user_limit

    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        """Return what the prompt of a new session is made of."""
        home = HermesHome(root=profile.home)
        soul, memories = await read_self(home.soul_file, home.memories_dir)
        return IdentitySnapshot(
            soul=soul,
            memory=memories.get("MEMORY.md", "")[: self._memory_limit] or None,
            user=memories.get("USER.md", "")[: self._user_limit] or None,
        )
