"""Approvals and questions, pending and decided."""

import sqlite3

import msgspec

from hermes.domain.approvals import Approval, ApprovalRequest, ApprovalState, Decision
from hermes.state.refusals import id_taken
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, one, rows
from hermes.state.titles import clean_text

__all__ = ["ApprovalPart"]


class ApprovalPart(LedgerPart):
    """Implements `ApprovalStore`."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Commit a request; one for the same turn and call returns the existing."""
        columns = msgspec.structs.asdict(request)
        columns["kind"] = request.kind.value
        columns["choices"] = codec.dump(request.choices)
        for name in ("subject", "reason", "pattern"):
            columns[name] = clean_text(columns[name])

        def work(connection: sqlite3.Connection) -> Approval:
            row = one(connection, "approvals.for_call", (request.turn_id, request.call_id))
            if row is None:
                if one(connection, "approvals.get", (request.id,)):
                    raise id_taken("request", request.id)
                change(connection, "approvals.insert", columns)
                row = one(connection, "approvals.get", (request.id,))
            assert row is not None
            return codec.approval(row)

        return await self._write(work)

    async def approval(self, approval_id: str) -> Approval | None:
        """Return one."""
        row = await self._quick(lambda c: one(c, "approvals.get", (approval_id,)))
        return None if row is None else codec.approval(row)

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        """Record the one answer; None if it was not pending any more."""
        if decision.state is ApprovalState.PENDING:
            raise ValueError("a decision cannot leave a request pending")
        return await self._write(lambda connection: _decide(connection, approval_id, decision))

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        """Return what waits for an answer, oldest first."""
        values = {"session_id": session_id}
        found = await self._quick(lambda connection: rows(connection, "approvals.pending", values))
        return [codec.approval(row) for row in found]

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        """Return standing permissions: `session` ones of this session, and `always`."""
        values = {"agent_id": agent_id, "session_id": session_id}
        found = await self._quick(lambda connection: rows(connection, "approvals.grants", values))
        return [codec.approval(row) for row in found]

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        """List the newest, decided or not."""
        found = await self._read(lambda connection: rows(connection, "approvals.newest", (limit,)))
        return [codec.approval(row) for row in found]

    async def revoke(self, approval_id: str, at: float) -> bool:
        """Withdraw a standing permission; False if there is none."""
        values = {"id": approval_id, "at": at}
        return await self._write(lambda c: change(c, "approvals.revoke", values) > 0)


def _decide(
    connection: sqlite3.Connection, approval_id: str, decision: Decision
) -> Approval | None:
    values = {
        "id": approval_id,
        "state": decision.state.value,
        "choice": None if decision.choice is None else decision.choice.value,
        "decision": codec.decision_json(decision),
    }
    row = one(connection, "approvals.decide", values)
    return None if row is None else codec.approval(row)
