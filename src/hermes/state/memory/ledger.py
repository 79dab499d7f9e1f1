"""The ledger in memory: for tests and for sessions nobody wants to keep."""

from collections import Counter
from typing import Any

import msgspec

from hermes.domain.approvals import ApprovalState
from hermes.domain.outbound import OutboxState
from hermes.domain.ports.state import LedgerStats
from hermes.state.memory.approvals import ApprovalPart
from hermes.state.memory.hooks import HookPart
from hermes.state.memory.instants import InstantPart
from hermes.state.memory.keys import KeyPart
from hermes.state.memory.messages import MessagePart
from hermes.state.memory.outbox import OutboxPart
from hermes.state.memory.runs import RunPart
from hermes.state.memory.tables import Tables
from hermes.state.memory.turns import TurnPart

__all__ = ["MemoryLedger"]


class MemoryLedger(
    RunPart, TurnPart, MessagePart, OutboxPart, ApprovalPart, KeyPart, InstantPart, HookPart
):
    """Everything, until the process ends."""

    def __init__(self) -> None:
        super().__init__(Tables())

    async def keep(self, name: str, value: Any) -> None:
        """Keep a small JSON-able fact that belongs to no session; None removes it."""
        if value is None:
            self._tables.facts.pop(name, None)
        else:
            self._tables.facts[name] = msgspec.json.encode(value)

    async def kept(self, name: str) -> Any:
        """Return a fact that was kept, or None."""
        value = self._tables.facts.get(name)
        return None if value is None else msgspec.json.decode(value)

    async def stats(self) -> LedgerStats:
        """Count what is there."""
        tables = self._tables
        by_source = Counter(session.source for session in tables.sessions.values())
        return LedgerStats(
            sessions=len(tables.sessions),
            messages=len(tables.messages),
            turns=len(tables.turns),
            open_turns=sum(turn.finished_at is None for turn in tables.turns.values()),
            inbox_waiting=len(self._waiting()),
            outbox_pending=sum(e.state is OutboxState.PENDING for e in tables.outbox.values()),
            approvals_pending=sum(
                a.state is ApprovalState.PENDING for a in tables.approvals.values()
            ),
            by_source=dict(sorted(by_source.items())),
            bytes=0,
            schema_version=0,
        )

    async def close(self) -> None:
        """Do nothing: there are no files."""
