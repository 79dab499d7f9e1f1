"""Doubts: what about a configuration that loads a person should look at, and what to do about it.

`hermes config check`, `hermes status` and the log of a gateway that starts name the same ones:
routes that refuse messages or lead nowhere, hooks and plugins that do not run, names and keys of
the HTTP API that reach nobody, lists of blocked sites that are not there. What is
wrong with agents themselves is `agent_problems`.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from hermes.agent.fetch import unreadable_lists
from hermes.app.platforms import twin_accounts
from hermes.app.settings import platform_section
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.control.admission.routing import named, refused_routes
from hermes.control.hook_files import hook_files, hook_warning
from hermes.control.hooks import missing_plugins
from hermes.control.runs.runs import PLATFORM as API
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.keys import ApiKey
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings
from hermes.state.webhook_routes import HookRouteFile


def config_doubts(loaded: LoadedConfig, home: HermesHome) -> list[str]:
    config = loaded.config
    plugins = [f"{each} does not run: {why}" for each, why in missing_plugins(config).items()]
    return [
        *refused_routes(config, {DEFAULT_AGENT, *config.agents}),
        *_lost_agents(loaded, home),
        *twin_accounts(loaded, home),
        *_model_routes(loaded),
        *_hooks(home),
        *plugins,
        *unreadable_lists(config.security.website_blocklist),
    ]


def key_doubts(config: Settings, keys: Iterable[ApiKey], now: float) -> list[str]:
    """Return what is to be said about keys of the API whose agents nobody reaches."""
    return [
        f"the API key {key.name} is bound to `{agent}`, {why}"
        for key in keys
        if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
        for agent in key.agents
        if (why := unreachable(config, agent))
    ]


def unreachable(config: Settings, agent_id: str) -> str:
    """Say why the API does not reach an agent; empty if it does."""
    if agent_id not in {DEFAULT_AGENT, *config.agents}:
        return "which is not there"
    entry = config.agents.get(agent_id)
    if isinstance(entry, Mapping) and entry.get("expose") is False:
        return f"which the API does not offer (agents.{agent_id}.expose: false)"
    return ""


def _lost_agents(loaded: LoadedConfig, home: HermesHome) -> list[str]:
    """Name the bots and webhooks that belong to agents that are not there."""
    found: dict[str, Any] = {}
    for platform, settings in loaded.config.platforms.items():
        for kind in ("accounts", "routes"):
            entries = settings.extra.get(kind)
            for name, each in entries.items() if isinstance(entries, Mapping) else ():
                found[f"platforms.{platform}.{kind}.{name}"] = each
    with suppress(HermesError):  # the door of webhooks tells what cannot be read
        found |= {f"the webhook {name}": each for name, each in HookRouteFile(home).read().items()}
    served = {DEFAULT_AGENT, *loaded.config.agents}
    return [
        f"{place}: there is no agent `{each['agent']}`; messages there are refused"
        for place, each in found.items()
        if isinstance(each, Mapping)
        and each.get("agent")
        and named(str(each["agent"])) not in served
    ]


def _model_routes(loaded: LoadedConfig) -> list[str]:
    routes = platform_section(loaded, API).get("model_routes")
    found = []
    for name, route in routes.items() if isinstance(routes, Mapping) else ():
        given = route.get("agent") if isinstance(route, Mapping) else None
        agent = named(str(given or loaded.config.default_agent))
        if why := unreachable(loaded.config, agent):
            found.append(f"model_routes.{name} has no effect: it leads to `{agent}`, {why}")
    return found


def _hooks(home: HermesHome) -> list[str]:
    try:
        return [hook_warning(each) for each in hook_files(home) if each.problem and each.consented]
    except ConfigError as error:
        return [error.whole]
