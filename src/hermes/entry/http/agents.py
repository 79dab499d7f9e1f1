"""The agent that the `model` field of a call names."""

from typing import Any

from hermes.entry.http.agent_choice import agent_named
from hermes.entry.http.endpoint import Call
from hermes.entry.http.parts import AgentCard

__all__ = ["require_agent"]


def require_agent(call: Call[Any, Any], model: str | None) -> AgentCard:
    """Return the agent a call is for; 404 `model_not_found` if its key reaches no such agent."""
    return agent_named(call.parts, call.caller, model)
