"""Jobs and what became of them."""

from collections.abc import Callable
from typing import Protocol

from hermes.domain.jobs import Instant, Job

__all__ = ["InstantStore", "JobStore"]


class JobStore(Protocol):
    """The jobs of one agent: its `cron/jobs.json`."""

    async def jobs(self) -> list[Job]:
        """Return all jobs in the order of the file."""
        ...

    async def job(self, job_id: str) -> Job | None:
        """Return one job."""
        ...

    async def add_job(self, job: Job) -> Job:
        """Add a job; `Conflict` if the id is taken."""
        ...

    async def change_job(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        """Replace a job by what `change` makes of it, in one step; `NotFound` if unknown."""
        ...

    async def remove_job(self, job_id: str) -> bool:
        """Remove a job; False if there is none."""
        ...


class InstantStore(Protocol):
    """What became of each due instant, in the ledger."""

    async def claim_instant(self, instant: Instant) -> bool:
        """Commit the row of a due instant; False if it has one already."""
        ...

    async def settle_instant(self, instant: Instant) -> None:
        """Replace the row of an instant that was claimed."""
        ...

    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        """List the instants of a job, newest first."""
        ...
