"""What became of the due instants of jobs, one row each."""

from typing import Any

from hermes.domain.errors import NotFound
from hermes.domain.jobs import Instant
from hermes.state.sqlite.base import LedgerPart, change
from hermes.state.sqlite.rows import columns, reader

read_instant = reader(Instant, json={"detail": dict[str, Any]})


class InstantPart(LedgerPart):
    """Implements `InstantStore`."""

    async def claim_instant(self, instant: Instant) -> bool:
        return await self._write(lambda c: change(c, "instants.claim", columns(instant)) > 0)

    async def settle_instant(self, instant: Instant) -> None:
        if not await self._write(lambda c: change(c, "instants.settle", columns(instant))):
            raise NotFound(
                f"Job `{instant.job_id}` has no claimed instant at {instant.due_at}.",
                hint="Claim an instant first.",
            )

    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        return await self._list(read_instant, "instants.of_job", (job_id, limit))
