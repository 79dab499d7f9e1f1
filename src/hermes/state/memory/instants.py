"""What became of the due instants of jobs, one row each."""

import msgspec

from hermes.domain.jobs import Instant
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import unknown_instant

__all__ = ["InstantPart"]


class InstantPart(MemoryPart):
    """Implements `InstantStore`."""

    async def claim_instant(self, instant: Instant) -> bool:
        """Commit the row of a due instant; False if it has one already."""
        if (instant.job_id, instant.due_at) in self._tables.instants:
            return False
        self._keep_instant(instant)
        return True

    async def settle_instant(self, instant: Instant) -> None:
        """Replace the row of an instant that was claimed."""
        if (instant.job_id, instant.due_at) not in self._tables.instants:
            raise unknown_instant(instant.job_id, instant.due_at)
        self._keep_instant(instant)

    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        """List the instants of a job, newest first."""
        found = [i for i in self._tables.instants.values() if i.job_id == job_id]
        return sorted(found, key=lambda instant: -instant.due_at)[:limit]

    def _keep_instant(self, instant: Instant) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(instant.detail))
        kept = msgspec.structs.replace(instant, detail=plain)
        self._tables.instants[instant.job_id, instant.due_at] = kept
