"""What a run waits for."""

from hermes.domain.approvals import Approval
from hermes.domain.ports.state import Ledger
from hermes.domain.runs import Run

__all__ = ["pending_of"]


async def pending_of(ledger: Ledger, run: Run) -> list[Approval]:
    """Return the approvals and questions that a run waits for, oldest first."""
    if run.turn_id is None:
        return []
    pending = await ledger.pending_approvals(run.session_id)
    return [each for each in pending if each.request.turn_id == run.turn_id]
