"""Routing: which agent a message is for. It fails closed.

    account of an agent -> `routes`, the first that matches -> `profile_routes`, the most specific
    -> hook `select_agent` -> `default_agent`

An agent's own bot answers for that agent only. A route is `{match: {...}, agent: ...}`; the
conditions may also stand beside `agent`. Each is a value, a list of values, or a pattern with `*`
and `?`; all have to hold. A route that cannot be understood refuses the messages that it may have
been meant for (`platform: telegrm` those of telegram), and so does a hook that fails: the wrong
agent must not answer, with the wrong memory and the wrong rights. Every door asks here.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from hermes.domain.errors import NotFound
from hermes.domain.inbound import ChatKind, InboundMessage, RouteTerms
from hermes.domain.platforms import platforms
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings

CONDITIONS = (
    *("platform", "account", "guild_id", "chat_id", "thread_id", "user_id"),
    "chat_type",
)
_ALSO = {"guild_id": ("guild", "scope_id"), "chat_type": ("chat_kind",)} | {
    key: (key.removesuffix("_id"),) for key in ("chat_id", "thread_id", "user_id")
}
"""Other names of conditions."""
_AGENT_KEYS = ("agent", "agent_id", "profile")
_OTHER_KEYS = frozenset(
    {"match", "name", "description", "enabled", "model", "provider", "prompt", "toolsets"}
    | {*CONDITIONS, *_AGENT_KEYS, *(name for names in _ALSO.values() for name in names)}
)
_NAMES_OF_MAIN = frozenset({"", DEFAULT_AGENT, "default", "hermes"})
_WEIGHTS = {"guild_id": 2, "chat_id": 4, "thread_id": 8}
_CHAT_TYPES = {"private": "dm", "direct": "dm", "supergroup": "group"}
_LISTENERS = ("api_server", "webhook")
REFUSED = "Change `routes`, `profile_routes` or `default_agent`."

Facts = Mapping[str, tuple[str, ...]]
"""Condition -> what a message is there: an id and its other names."""
Select = Callable[[Mapping[str, Any]], Awaitable[str | None]]
"""Asks the hooks; None if none has chosen. It raises if one fails."""


class RouteDecision(Struct, frozen=True, kw_only=True):
    agent: str
    rule: str
    """What decided: `telegram:work`, `routes[0]`, `select_agent`, `default_agent`."""
    why: str
    terms: RouteTerms | None = None


def facts_of(message: InboundMessage, account: str = "") -> Facts:
    """Return what routes can ask about a message; `account` is its account's configured name."""
    chat, sender = message.chat, message.sender
    thread = chat.id if chat.kind is ChatKind.THREAD else None
    return route_facts(
        platform=(message.platform,),
        account=(message.account, account),
        guild_id=(chat.scope_id,),
        chat_id=(chat.id, chat.parent_id),
        thread_id=(message.thread_id, thread),
        user_id=(sender.id, sender.alt_id),
        chat_type=(chat.kind.value,),
    )


def route_facts(**given: Collection[str | None]) -> Facts:
    return {key: tuple(each for each in given.get(key, ()) if each) for key in CONDITIONS}


def decide(settings: Settings, facts: Facts, owner: str = "") -> RouteDecision | None:
    """Return what the configuration says; None if no rule is about these messages.

    `owner` is the agent whose own account, or webhook, the message came to.
    """
    if owner:
        where = ":".join(facts["platform"] + (facts["account"] or facts["chat_id"])[-1:])
        return RouteDecision(agent=owner, rule=where, why=f"{where} belongs to this agent")
    for at, route in enumerate(settings.routes):
        why, differs = _compared(route, facts)
        if not differs:
            return _chosen(route, f"routes[{at}]", why)
    fitting = [
        (sum(_WEIGHTS.get(key, 0) for key in _conditions(route)), -at, route)
        for at, route in enumerate(settings.profile_routes)
        if not _compared(route, facts)[1]
    ]
    if not fitting:
        return None
    weight, at, route = max(fitting, key=lambda each: each[:2])
    why = f"{_compared(route, facts)[0]}; the most specific one ({weight})"
    return _chosen(route, f"profile_routes[{-at}]", why)


class Router:
    """Routing with the configuration as it is now; every door asks it."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        served: Callable[[], Collection[str]],
        select: Select | None = None,
    ) -> None:
        self._settings = settings
        self._served = served
        self._select = select

    async def route(self, facts: Facts, *, owner: str = "", text: str = "") -> RouteDecision:
        """Return which agent answers; `NotFound` if that is one that is not served."""
        found = decide(self._settings(), facts, owner)
        if found is None and self._select is not None:
            chosen = await self._select(
                {key: next(iter(facts[key]), None) for key in CONDITIONS} | {"text": text}
            )
            if chosen:
                found = RouteDecision(agent=named(chosen), rule="select_agent", why="a hook did")
        if found is None:
            agent = named(self._settings().default_agent)
            found = RouteDecision(agent=agent, rule="default_agent", why="no route matches")
        served = self._served()
        if found.agent not in served:
            known = ", ".join(f"`{each}`" for each in sorted(served)[:10])
            raise NotFound(
                f"This chat is for the agent `{found.agent}` ({found.rule}), which cannot answer:"
                f" this gateway serves {known} only.",
                hint=REFUSED,
            )
        return found

    def declared(self, facts: Facts, owner: str = "") -> bool:
        """Tell whether the configuration alone decides, if only by refusing."""
        try:
            return decide(self._settings(), facts, owner) is not None
        except NotFound:
            return True

    def terms(self, facts: Facts, agent_id: str) -> RouteTerms | None:
        """Return what the route of these messages says beside the agent, if it is this one."""
        try:
            found = decide(self._settings(), facts)
        except NotFound:
            return None
        return found.terms if found is not None and found.agent == agent_id else None


def explained(settings: Settings, facts: Facts, owner: str = "") -> list[str]:
    """Say of each rule, in order, whether it matches and why not, up to the one that decides."""
    if owner:
        return ["the account belongs to an agent: routes are not asked"]
    lines: list[str] = []
    for key in ("routes", "profile_routes"):
        for at, each in enumerate(getattr(settings, key)):
            try:
                why, differs = _compared(each, facts)
            except NotFound as error:
                return [*lines, f"{key}[{at}]: {error.message}"]
            name = f"{key}[{at}] -> {_agent(each) or '?'}"
            lines.append(f"{name}: {f'no: {differs}' if differs else f'yes: {why}'}")
            if not differs and key == "routes":
                return lines
    return lines


def refused_routes(settings: Settings, served: Collection[str] = (DEFAULT_AGENT,)) -> list[str]:
    """Return what to tell the operator about routes that refuse messages."""
    rules = {
        "routes": [_agent(route) for route in settings.routes],
        "profile_routes": [_agent(route) for route in settings.profile_routes],
        "default_agent": [named(settings.default_agent)],
    }
    wrong = []
    for key in ("routes", "profile_routes"):
        for at, route in enumerate(getattr(settings, key)):
            if problem := _problem(route):
                wrong.append(f"{key}[{at}] cannot be understood and refuses messages: {problem}")
            elif strange := [
                each for each in _written(route, "platform") or () if not _known(each)
            ]:
                known = ", ".join(sorted(_platforms()))
                wrong.append(
                    f"{key}[{at}] has no effect: there is no platform `{strange[0]}` ({known})"
                )
    return wrong + [
        f"{key}: there is no agent `{agent}`; messages for it are refused"
        for key, agents in rules.items()
        for agent in dict.fromkeys(agents)
        if agent and agent not in served
    ]


def routes_to(settings: Settings, agent_id: str) -> list[str]:
    """Return which rules lead to an agent: `routes[0]`, `default_agent`, ..."""
    found = [
        f"{key}[{at}]"
        for key in ("routes", "profile_routes")
        for at, route in enumerate(getattr(settings, key))
        if _agent(route) == agent_id
    ]
    return found + (["default_agent"] if named(settings.default_agent) == agent_id else [])


def _chosen(route: Any, rule: str, why: str) -> RouteDecision:
    if problem := _problem(route):
        raise NotFound(
            f"This chat is for {rule}, which cannot be understood: {problem}.", hint=REFUSED
        )
    return RouteDecision(agent=_agent(route), rule=rule, why=why, terms=_terms(route))


def _terms(route: Mapping[str, Any]) -> RouteTerms | None:
    model, toolsets = route.get("model") or "", route.get("toolsets")
    own = model if isinstance(model, Mapping) else {"model": model}
    terms = RouteTerms(
        model=str(own.get("model") or own.get("default") or ""),
        provider=str(route.get("provider") or own.get("provider") or ""),
        prompt=str(route.get("prompt") or ""),
        toolsets=(toolsets,) if isinstance(toolsets, str) else toolsets and tuple(toolsets),
    )
    return None if terms == RouteTerms() else terms


def _problem(route: Any) -> str:
    if not isinstance(route, Mapping):
        return "it is no mapping"
    if not _agent(route):
        return "it names no agent"
    match = route.get("match")
    if match is not None and not isinstance(match, Mapping):
        return "`match` is no mapping"
    known = _OTHER_KEYS - {"match", *_AGENT_KEYS}
    strange = [key for key in match or () if key not in known]
    strange += [key for key in route if key not in _OTHER_KEYS and not str(key).startswith("_")]
    given = {**route, **(match or {})}
    names = {*CONDITIONS, *(also for names in _ALSO.values() for also in names)}
    empty = [key for key in given if key in names and given[key] in (None, "")]
    if strange:
        return f"there is no condition `{strange[0]}`"
    if empty:
        return f"`{empty[0]}` is empty"
    for key in CONDITIONS:
        for each in _written(route, key) or ():
            if not isinstance(each, str | int) or isinstance(each, bool):
                return f"`{key}` is neither a text nor a number"
            meant = _meant(key, each)
            if meant != _plain(key, each):
                advice = "" if meant == "*" else f", perhaps `{meant}`"
                return f"there is no {key} `{each}`{advice}"
    return ""


def named(agent: str) -> str:
    """Return the id of an agent by one of its names."""
    agent = agent.strip().removeprefix("hermes/")
    return DEFAULT_AGENT if agent in _NAMES_OF_MAIN else agent


def _agent(route: Any) -> str:
    found = (route.get(key) for key in _AGENT_KEYS) if isinstance(route, Mapping) else ()
    agent = str(next((name for name in found if name), ""))
    return named(agent) if agent else ""


def _conditions(route: Any) -> dict[str, list[str]]:
    """Return what a route asks for; a condition that holds for everything is left out."""
    if not isinstance(route, Mapping):
        return {}
    asked = {key: _written(route, key) for key in CONDITIONS}
    return {
        key: [_meant(key, each) for each in wanted or ()]
        for key, wanted in asked.items()
        if wanted is not None and wanted not in ([None], [""], ["*"])
    }


def _written(route: Any, key: str) -> list[Any] | None:
    """Return the values of a condition as they are written; None if there is no such condition."""
    match = route.get("match") if isinstance(route, Mapping) else None
    given = {**route, **(match if isinstance(match, Mapping) else {})}
    for name in (key, *_ALSO.get(key, ())):
        if name in given:
            wanted = given[name]
            return list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    return None


def _plain(key: str, value: Any) -> str:
    """Return a value as messages have it: platforms and types of chats have no capitals."""
    text = str(value)
    if key == "chat_type":
        return _CHAT_TYPES.get(text.lower(), text.lower())
    return text.lower() if key == "platform" else text


def _meant(key: str, value: Any) -> str:
    """Return what a value may have been meant for: the close name, `*` for anything."""
    text = _plain(key, value)
    names = {"platform": _platforms(), "chat_type": tuple(ChatKind)}.get(key, ())
    if not names or any(_alike(name, text) for name in names):
        return text
    close = get_close_matches(text, names, 1, 0.8)
    return close[0] if close else text if key == "platform" else "*"


def _platforms() -> tuple[str, ...]:
    return (*platforms(), *_LISTENERS)


def _known(platform: Any) -> bool:
    return any(_alike(name, _plain("platform", platform)) for name in _platforms())


def _compared(route: Any, facts: Facts) -> tuple[str, str]:
    """Return why a route matches, and what differs: empty if nothing does."""
    if isinstance(route, Mapping) and route.get("enabled") is False:
        return "", "it is switched off"
    why = []
    for key, wanted in _conditions(route).items():
        actual = facts.get(key, ())
        hit = next((each for each in wanted if any(_alike(one, each) for one in actual)), None)
        if hit is None:
            shown = " or ".join(actual) or "nothing"
            return "", f"{key} is {shown}, not {' or '.join(wanted) or 'one of an empty list'}"
        why.append(f"{key} is {hit}")
    return " and ".join(why) or "it has no condition", ""


def _alike(actual: str, wanted: str) -> bool:
    if "*" not in wanted and "?" not in wanted:
        return actual == wanted
    return fnmatchcase(actual, wanted.replace("[", "[[]"))
