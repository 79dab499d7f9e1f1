"""Approvals and questions, as the ledger keeps them."""

from typing import Protocol

from hermes.domain.approvals import Approval, ApprovalRequest, Decision

__all__ = ["ApprovalStore"]


class ApprovalStore(Protocol):
    """Approvals and questions, pending and decided."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Commit a request; one for the same turn and call returns the existing."""
        ...

    async def approval(self, approval_id: str) -> Approval | None:
        """Return one."""
        ...

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        """Record the one answer; None if it was not pending any more."""
        ...

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        """Return what waits for an answer, oldest first."""
        ...

    async def expire_approvals(self, now: float) -> list[Approval]:
        """Turn overdue requests into denials and return them."""
        ...

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        """Return standing permissions: `session` ones of this session, and `always`."""
        ...

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        """List the newest, decided or not."""
        ...

    async def revoke(self, approval_id: str, at: float) -> bool:
        """Withdraw a standing permission; False if there is none."""
        ...
