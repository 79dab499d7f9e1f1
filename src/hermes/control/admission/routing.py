"""Routing: which agent a message is for. It fails closed.

`routes` count in their order, the first that matches decides; of `profile_routes` the most
specific one does; then `default_agent`. As long as one agent is served, a message for another
is refused: the wrong agent must not answer, with the wrong memory and the wrong rights.
"""

from collections.abc import Mapping
from typing import Any

from hermes.domain.errors import NotFound
from hermes.domain.inbound import InboundMessage
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings

_AGENT_KEYS = ("agent", "agent_id", "profile")
_NAMES_OF_MAIN = frozenset({"", DEFAULT_AGENT, "default"})
_WEIGHTS = {"guild_id": 2, "chat_id": 4, "thread_id": 8}


def agent_for(settings: Settings, message: InboundMessage) -> str:
    """Return the agent that answers; `NotFound` if it is one that is not served."""
    wanted = _routed(settings, message)
    if wanted in _NAMES_OF_MAIN:
        return DEFAULT_AGENT
    raise NotFound(
        f"This chat is for the agent `{wanted}`, which cannot answer:"
        f" this gateway serves `{DEFAULT_AGENT}` only.",
        hint="Change `routes`, `profile_routes` or `default_agent`.",
    )


def refused_routes(settings: Settings) -> list[str]:
    """Return what to tell the operator about routes to agents that are not served."""
    named = {
        "routes": [_agent(route) for route in settings.routes],
        "profile_routes": [_agent(route) for route in settings.profile_routes],
        "default_agent": [settings.default_agent],
    }
    return [
        f"{key}: there is no agent `{agent}`; messages for it are refused"
        for key, agents in named.items()
        for agent in dict.fromkeys(agents)
        if agent not in _NAMES_OF_MAIN
    ]


def _routed(settings: Settings, message: InboundMessage) -> str:
    for route in settings.routes:
        if _matches(route, message):
            return _agent(route)
    fitting = [route for route in settings.profile_routes if _matches(route, message)]
    if fitting:
        return _agent(max(fitting, key=lambda route: sum(_WEIGHTS.get(key, 0) for key in route)))
    return settings.default_agent


def _agent(route: Any) -> str:
    found = (route.get(key) for key in _AGENT_KEYS) if isinstance(route, Mapping) else ()
    return str(next((name for name in found if name), "")).strip()


def _matches(route: Any, message: InboundMessage) -> bool:
    """Tell whether all conditions hold; one that is not known here counts as if it did."""
    if not isinstance(route, Mapping) or route.get("enabled") is False:
        return False
    nested = route.get("match")
    conditions = {**route, **nested} if isinstance(nested, Mapping) else route
    chat, sender = message.chat, message.sender
    known: dict[str, set[str | None]] = {
        "platform": {message.platform},
        "account": {message.account},
        "guild_id": {chat.scope_id},
        "chat_id": {chat.id, chat.parent_id},
        "chat_type": {chat.kind.value},
        "thread_id": {message.thread_id},
        "user_id": {sender.id, sender.alt_id},
    }
    for key, actual in known.items():
        wanted = conditions.get(key, conditions.get(key.removesuffix("_id")))
        if wanted in (None, "", "*", []):
            continue
        several = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not {str(each) for each in several} & {str(each) for each in actual if each is not None}:
            return False
    return True
