"""Approvals and questions, pending and decided."""

import msgspec

from hermes.domain.approvals import (
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    Decision,
)
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import id_taken

__all__ = ["ApprovalPart"]


class ApprovalPart(MemoryPart):
    """Implements `ApprovalStore`."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Commit a request; one for the same turn and call returns the existing."""
        for approval in self._tables.approvals.values():
            known = approval.request
            if (known.turn_id, known.call_id) == (request.turn_id, request.call_id):
                return approval
        if request.id in self._tables.approvals:
            raise id_taken("request", request.id)
        asked = Approval(request=request)
        self._tables.approvals[request.id] = asked
        return asked

    async def approval(self, approval_id: str) -> Approval | None:
        """Return one."""
        return self._tables.approvals.get(approval_id)

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        """Record the one answer; None if it was not pending any more."""
        if decision.state is ApprovalState.PENDING:
            raise ValueError("a decision cannot leave a request pending")
        return self._decide(approval_id, decision)

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        """Return what waits for an answer, oldest first."""
        return [
            approval
            for approval in self._oldest_first()
            if approval.state is ApprovalState.PENDING
            and session_id in (None, approval.request.session_id)
        ]

    async def expire_approvals(self, now: float) -> list[Approval]:
        """Turn overdue requests into denials and return them."""
        expiry = Decision(
            state=ApprovalState.EXPIRED,
            choice=Choice.DENY,
            text="Nobody answered in time.",
            at=now,
        )
        overdue = [
            approval.request.id
            for approval in await self.pending_approvals()
            if approval.request.expires_at is not None and approval.request.expires_at <= now
        ]
        decided = [self._decide(approval_id, expiry) for approval_id in overdue]
        return [approval for approval in decided if approval is not None]

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        """Return standing permissions: `session` ones of this session, and `always`."""
        return [
            approval
            for approval in self._oldest_first()
            if approval.request.agent_id == agent_id
            and approval.request.kind is ApprovalKind.APPROVAL
            and _stands(approval)
            and approval.decision is not None
            and (
                approval.decision.choice is Choice.ALWAYS
                or approval.request.session_id == session_id
            )
        ]

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        """List the newest, decided or not."""
        return self._oldest_first()[::-1][:limit]

    async def revoke(self, approval_id: str, at: float) -> bool:  # noqa: ARG002
        """Withdraw a standing permission; False if there is none."""
        approval = self._tables.approvals.get(approval_id)
        if approval is None or not _stands(approval):
            return False
        self._tables.approvals[approval_id] = msgspec.structs.replace(
            approval, state=ApprovalState.REVOKED
        )
        return True

    def _oldest_first(self) -> list[Approval]:
        return sorted(self._tables.approvals.values(), key=lambda a: a.request.created_at)

    def _decide(self, approval_id: str, decision: Decision) -> Approval | None:
        approval = self._tables.approvals.get(approval_id)
        if approval is None or approval.state is not ApprovalState.PENDING:
            return None
        decided = Approval(request=approval.request, state=decision.state, decision=decision)
        self._tables.approvals[approval_id] = decided
        return decided


def _stands(approval: Approval) -> bool:
    decision = approval.decision
    return (
        approval.state is ApprovalState.APPROVED
        and decision is not None
        and decision.choice in (Choice.SESSION, Choice.ALWAYS)
    )
