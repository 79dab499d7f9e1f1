"""Tokens and money, as the ledger keeps them."""

from typing import Protocol

from hermes.domain.usage import Spent, TurnUsage, UsageRecord

__all__ = ["UsageStore"]


class UsageStore(Protocol):
    """What was spent."""

    async def record_usage(self, record: UsageRecord) -> None:
        """Commit the usage of a call that is not part of a reply, e.g. a title."""
        ...

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        """Sum up usage."""
        ...

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        """Sum up the replies of one turn."""
        ...

    async def usage_by_model(
        self, *, session_id: str | None = None, since: float | None = None
    ) -> list[tuple[str, str, Spent]]:
        """Sum up usage by (provider, model), dearest first."""
        ...
