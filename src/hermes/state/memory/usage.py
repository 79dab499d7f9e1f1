"""What was spent on model calls."""

from collections.abc import Iterable

from hermes.domain.usage import Spent, TurnUsage, Usage, UsageRecord
from hermes.state.memory.tables import MemoryPart

__all__ = ["UsagePart"]


class UsagePart(MemoryPart):
    """Implements `UsageStore`."""

    async def record_usage(self, record: UsageRecord) -> None:
        """Commit the usage of a call that is not part of a reply, e.g. a title."""
        self._add_usage(record)

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        """Sum up usage."""
        return _sum(
            record
            for record in self._tables.usage
            if session_id in (None, record.session_id)
            and agent_id in (None, record.agent_id)
            and (since is None or record.at >= since)
        )

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        """Sum up the replies of one turn."""
        own = [r for r in self._tables.usage if r.turn_id == turn_id and r.task == "turn"]
        known = [record.cost_usd for record in own if record.cost_usd is not None]
        return TurnUsage(
            calls=len(own),
            usage=sum((record.usage for record in own), Usage()),
            cost_usd=sum(known) if len(known) == len(own) else None,
        )

    async def usage_by_model(
        self, *, session_id: str | None = None, since: float | None = None
    ) -> list[tuple[str, str, Spent]]:
        """Sum up usage by (provider, model), dearest first."""
        groups: dict[tuple[str, str], list[UsageRecord]] = {}
        for record in self._tables.usage:
            if session_id in (None, record.session_id) and (since is None or record.at >= since):
                groups.setdefault((record.provider, record.model), []).append(record)
        sums = [(*names, _sum(records)) for names, records in groups.items()]
        return sorted(sums, key=lambda s: (-s[2].cost_usd, -s[2].tokens, s[0], s[1]))

    def _add_usage(self, record: UsageRecord) -> None:
        self._tables.usage.append(record)
        session = self._tables.sessions.get(record.session_id or "")
        if session is not None:
            self._change_session(
                session.id,
                usage=session.usage + record.usage,
                cost_usd=session.cost_usd + (record.cost_usd or 0.0),
            )


def _sum(records: Iterable[UsageRecord]) -> Spent:
    calls = tokens = unpriced = 0
    cost = 0.0
    for record in records:
        calls += 1
        tokens += record.usage.total_tokens
        unpriced += record.cost_usd is None
        cost += record.cost_usd or 0.0
    return Spent(calls=calls, tokens=tokens, cost_usd=cost, unpriced_calls=unpriced)
