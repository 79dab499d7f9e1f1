"""Usage: tokens and money spent on model calls."""

from sqlite3 import Connection
from typing import Any

import msgspec

from hermes.domain.usage import Spent, TurnUsage, UsageRecord
from hermes.state.sqlite.base import LedgerPart, change, many, one
from hermes.state.sqlite.rows import reader

read_spent = reader(Spent)
read_turn_usage = reader(TurnUsage, inner=("usage",))


class UsagePart(LedgerPart):
    """Implements `UsageStore`."""

    async def record_usage(self, record: UsageRecord) -> None:
        await self._write(lambda c: add_usage(c, record, record.session_id))

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        values: dict[str, Any] = {"agent_id": agent_id, "session_id": session_id, "since": since}
        query = "usage.spent_in_session"
        if session_id is None:
            query = "usage.spent_since"
            values["since"] = float("-inf") if since is None else since
        row = await self._read(lambda c: one(c, query, values))
        assert row is not None
        return read_spent(row)

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        found = await self._get(read_turn_usage, "usage.of_turn", (turn_id,) * 2)
        assert found is not None
        return found

    async def usage_by_model(
        self, *, session_id: str | None = None, since: float | None = None
    ) -> list[tuple[str, str, Spent]]:
        values = {"session_id": session_id, "since": since}
        found = await self._read(lambda c: many(c, "usage.by_model", values))
        return [(row["provider"], row["model"], read_spent(row)) for row in found]


def add_usage(connection: Connection, record: UsageRecord, session_id: str | None) -> None:
    """Write one call down and count it in its session."""
    values = msgspec.structs.asdict(record) | msgspec.structs.asdict(record.usage)
    values["session_id"] = session_id
    if session_id is not None:
        change(connection, "usage.count_in_session", values)
    change(connection, "usage.insert", values)
