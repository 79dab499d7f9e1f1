"""Approvals and questions, pending and decided."""

from sqlite3 import Connection

from hermes.domain.approvals import Approval, ApprovalRequest, ApprovalState, Decision
from hermes.state.sqlite.base import LedgerPart, change, one
from hermes.state.sqlite.errors import id_taken
from hermes.state.sqlite.rows import columns, dump, reader

read_approval = reader(
    Approval, json={"choices": tuple[str, ...], "decision": Decision}, inner=("request",)
)


class ApprovalPart(LedgerPart):
    """Implements `ApprovalStore`."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        values = columns(request)

        def work(connection: Connection) -> Approval:
            row = one(connection, "approvals.for_call", (request.turn_id, request.call_id))
            if row is None:
                if one(connection, "approvals.get", (request.id,)):
                    raise id_taken("request", request.id)
                change(connection, "approvals.insert", values)
                row = one(connection, "approvals.get", (request.id,))
            assert row is not None
            return read_approval(row)

        return await self._write(work)

    async def approval(self, approval_id: str) -> Approval | None:
        return await self._get(read_approval, "approvals.get", (approval_id,))

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        if decision.state is ApprovalState.PENDING:
            raise ValueError("a decision cannot leave a request pending")
        values = {
            "id": approval_id,
            "state": decision.state,
            "choice": decision.choice,
            "decision": dump(decision),
        }
        return await self._change(read_approval, "approvals.decide", values)

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        return await self._few(read_approval, "approvals.pending", {"session_id": session_id})

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        values = {"agent_id": agent_id, "session_id": session_id}
        return await self._few(read_approval, "approvals.grants", values)

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        return await self._list(read_approval, "approvals.newest", (limit,))

    async def revoke(self, approval_id: str, at: float) -> bool:
        values = {"id": approval_id, "at": at}
        return await self._write(lambda c: change(c, "approvals.revoke", values) > 0)
