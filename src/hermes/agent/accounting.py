"""What a model call cost, in the form the ledger keeps it."""

from hermes.domain.ports.model import ModelReply
from hermes.domain.usage import UsageRecord

__all__ = ["usage_record"]


def usage_record(
    reply: ModelReply,
    task: str,
    *,
    agent_id: str,
    session_id: str | None,
    turn_id: str | None,
    at: float,
) -> UsageRecord:
    """Return the record of one call made for `task`."""
    return UsageRecord(
        session_id=session_id,
        turn_id=turn_id,
        agent_id=agent_id,
        provider=reply.provider,
        model=reply.model,
        task=task,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        at=at,
    )
