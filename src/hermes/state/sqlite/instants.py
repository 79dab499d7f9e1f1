"""What became of the due instants of jobs, one row each."""

import sqlite3
from typing import Any

import msgspec

from hermes.domain.jobs import DeliveryStatus, Instant, InstantStatus
from hermes.state.refusals import unknown_instant
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, rows
from hermes.state.titles import clean_text

__all__ = ["InstantPart"]


class InstantPart(LedgerPart):
    """Implements `InstantStore`."""

    async def claim_instant(self, instant: Instant) -> bool:
        """Commit the row of a due instant; False if it has one already."""
        columns = _columns(instant)
        return await self._write(lambda c: change(c, "instants.claim", columns) > 0)

    async def settle_instant(self, instant: Instant) -> None:
        """Replace the row of an instant that was claimed."""
        columns = _columns(instant)

        def work(connection: sqlite3.Connection) -> None:
            if not change(connection, "instants.settle", columns):
                raise unknown_instant(instant.job_id, instant.due_at)

        await self._write(work)

    async def instants(self, job_id: str, *, limit: int = 50) -> list[Instant]:
        """List the instants of a job, newest first."""
        found = await self._read(lambda c: rows(c, "instants.of_job", (job_id, limit)))
        return [_instant(row) for row in found]


def _columns(instant: Instant) -> dict[str, Any]:
    columns = msgspec.structs.asdict(instant)
    columns["status"] = instant.status.value
    columns["delivery"] = instant.delivery.value
    columns["detail"] = codec.dump(instant.detail)
    for name in ("error", "delivery_error"):
        columns[name] = columns[name] and clean_text(columns[name])
    return columns


def _instant(row: sqlite3.Row) -> Instant:
    return Instant(
        job_id=row["job_id"],
        due_at=row["due_at"],
        source=row["source"],
        status=InstantStatus(row["status"]),
        delivery=DeliveryStatus(row["delivery"]),
        claimed_by=row["claimed_by"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        session_id=row["session_id"],
        error=row["error"],
        delivery_error=row["delivery_error"],
        detail=codec.load_any(row["detail"]),
    )
