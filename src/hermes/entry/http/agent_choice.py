"""Which agent a request means, by the name in its `model` or `agent`."""

from hermes.domain.keys import Caller
from hermes.entry.http.parts import AgentCard, HttpParts
from hermes.entry.http.problems import Problem

__all__ = ["agent_named", "reachable_agents"]


def reachable_agents(parts: HttpParts, caller: Caller) -> tuple[AgentCard, ...]:
    """Return the agents that a key may talk to, the default agent first."""
    return tuple(card for card in parts.agents if caller.may_reach(card.agent_id))


def agent_named(parts: HttpParts, caller: Caller, name: str | None) -> AgentCard:
    """Return the agent with this name, without one the default agent; 404 if out of reach."""
    if not name:
        card = parts.agents[0] if parts.agents else None
    else:
        known = (each for each in parts.agents if name in (each.name, *each.aliases))
        card = next(known, None)
    if card is None or not caller.may_reach(card.agent_id):
        shown = f"There is no model `{name[:100]}`" if name else "There is no default agent"
        raise Problem(
            404,
            f"{shown} that this key may use.",
            code="model_not_found",
            param="model",
        )
    return card
