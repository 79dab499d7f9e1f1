"""What was spent on model calls."""

import sqlite3
from typing import Any

from hermes.domain.usage import Spent, TurnUsage, Usage, UsageRecord
from hermes.state.sqlite.part import LedgerPart, change, one, rows

__all__ = ["UsagePart", "add_usage"]


class UsagePart(LedgerPart):
    """Implements `UsageStore`."""

    async def record_usage(self, record: UsageRecord) -> None:
        """Commit the usage of a call that is not part of a reply, e.g. a title."""
        await self._write(lambda c: add_usage(c, record, record.session_id))

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        """Sum up usage."""

        def work(connection: sqlite3.Connection) -> Spent:
            values: dict[str, Any] = {"agent_id": agent_id, "since": since}
            if session_id is None:
                values["since"] = float("-inf") if since is None else since
                row = one(connection, "usage.spent_since", values)
            else:
                values["session_id"] = session_id
                row = one(connection, "usage.spent_in_session", values)
            assert row is not None
            return _spent(row)

        return await self._read(work)

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        """Sum up the replies of one turn."""
        row = await self._quick(lambda connection: one(connection, "usage.of_turn", (turn_id,) * 2))
        assert row is not None
        return TurnUsage(
            calls=row["calls"],
            usage=Usage(
                input_tokens=row["input_tokens"],
                output_tokens=row["output_tokens"],
                cache_read_tokens=row["cache_read_tokens"],
                cache_write_tokens=row["cache_write_tokens"],
                reasoning_tokens=row["reasoning_tokens"],
            ),
            cost_usd=None if row["unpriced_calls"] else row["cost_usd"],
        )

    async def usage_by_model(
        self, *, session_id: str | None = None, since: float | None = None
    ) -> list[tuple[str, str, Spent]]:
        """Sum up usage by (provider, model), dearest first."""
        values = {"session_id": session_id, "since": since}
        found = await self._read(lambda connection: rows(connection, "usage.by_model", values))
        return [(row["provider"], row["model"], _spent(row)) for row in found]


def add_usage(connection: sqlite3.Connection, record: UsageRecord, session_id: str | None) -> None:
    """Write one call down and count it in its session."""
    usage = record.usage
    counters = {
        "session_id": session_id,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": record.cost_usd,
    }
    if session_id is not None:
        change(connection, "usage.count_in_session", counters)
    values = counters | {
        "turn_id": record.turn_id,
        "agent_id": record.agent_id,
        "provider": record.provider,
        "model": record.model,
        "task": record.task,
        "at": record.at,
    }
    change(connection, "usage.insert", values)


def _spent(row: sqlite3.Row) -> Spent:
    return Spent(
        calls=row["calls"],
        tokens=row["tokens"],
        cost_usd=row["cost_usd"],
        unpriced_calls=row["unpriced_calls"],
    )
