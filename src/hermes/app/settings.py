"""Settings as the layers want them: agents, their toolsets and backends, access to platforms."""

import shlex
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from hermes.app.options import AppOptions
from hermes.config.document import format_key
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.control.admission.authz import AuthzSettings, authz_settings
from hermes.domain.errors import ConfigError
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile
from hermes.domain.settings import Settings
from hermes.execution.backend import EnvironmentSettings, load_backend, project_at
from hermes.models.offers import facts_for
from hermes.models.routes import ModelSources, ModelTarget, resolve_route


def agent_profiles(loaded: LoadedConfig, options: AppOptions) -> dict[str, AgentProfile]:
    """Return the agents that are configured, by id; for now there is one."""
    config = loaded.config
    cwd = config.terminal.cwd
    plain = cwd in {"", "."} or bool(options.restored)
    profile = AgentProfile(
        id=DEFAULT_AGENT,
        home=options.home.root,
        workspace=options.cwd if plain else (options.cwd / cwd).resolve(),
        provider=options.provider or ("" if options.model else config.model.provider),
        model=options.model or config.model.model,
        toolsets=toolsets_of(config, options, options.platform),
        disabled_toolsets=config.agent.disabled_toolsets,
        backend=backend_name(loaded, options),
        secret_names=loaded.secrets.names(),
    )
    return {profile.id: profile}


def toolsets_of(settings: Settings, options: AppOptions, source: str) -> tuple[str, ...]:
    if options.toolsets is not None:
        return options.toolsets
    chosen = settings.platform_toolsets.get(source)
    if chosen is not None:
        return chosen
    return settings.toolsets if source == "cli" else (f"hermes-{source.replace('_', '-')}",)


def in_force(config: Settings, options: AppOptions) -> Settings:
    """Return the settings with what the command line says laid over them."""
    agent, approvals = config.agent, config.approvals
    if options.max_turns:
        agent = replace(agent, max_turns=options.max_turns)
    if options.yolo:
        approvals = replace(approvals, mode="off")
    return replace(config, agent=agent, approvals=approvals)


UNATTENDED = frozenset({"gateway", "webhook", "cron"})
"""Doors where nobody watches what commands do."""


def backend_name(loaded: LoadedConfig, options: AppOptions) -> str:
    """Return the backend: what is configured, or the sandbox.

    Where no sandbox can be made, the terminal falls back to `local`, where a person watches
    and is asked. Chats do not: their commands are refused until somebody chooses a backend.
    """
    configured = loaded.config.terminal.backend
    unwatched = options.platform in UNATTENDED
    return configured if unwatched or not _missing_sandbox(loaded) else "local"


def has_private_workspace(backend: str, options: AppOptions) -> bool:
    """Return whether each session starts in an empty place of its own."""
    if options.platform in UNATTENDED:
        return load_backend(backend).private_workspace
    home = options.environ.get("HOME") or "/"
    return backend == "sandbox" and project_at(str(options.cwd), options.home.root, home) is None


def backend_warnings(loaded: LoadedConfig, options: AppOptions) -> tuple[str, ...]:
    """Return what a person should know about where commands run."""
    backend, missing = backend_name(loaded, options), _missing_sandbox(loaded)
    if options.platform not in UNATTENDED:
        if missing:
            return (f"commands run on this machine without a sandbox: {missing}",)
        alone = has_private_workspace(backend, options)
        text = f"{options.cwd} is no project: commands work in a place of their own, and can ask"
        return (f"{text} to leave it",) if alone else ()
    if missing:
        advice = "install it or set `terminal.backend`; `local` would give them this machine"
        return (f"commands of chats are refused, there is no sandbox: {missing}; {advice}",)
    if backend == "local":
        return ("commands of chats run on this machine without a wall (terminal.backend: local)",)
    return ()


def budget_warnings(loaded: LoadedConfig, home: HermesHome, profile: AgentProfile) -> list[str]:
    """Say which money budgets cannot count, because the price of the model is not known."""
    budget = loaded.config.budget
    named = [name for name in ("session_usd", "day_usd") if getattr(budget, name) is not None]
    provider, model = profile.provider, profile.model
    try:
        if not provider and named and model:
            target = ModelTarget(model=model)
            sources = ModelSources(settings=loaded.config, secret=loaded.variable)
            provider = resolve_route(target, sources).provider
        priced = not model or facts_for(loaded, home, provider, model).price is not None
    except ConfigError:
        return []  # the first call says what is wrong
    if priced:
        return []
    key = format_key(("providers", provider, "models", model, "price"))
    advice = f"hermes config set {shlex.quote(key)} '{{input: 1.0, output: 2.0}}'"
    return [
        f"budget.{name} cannot stop {model}: its price is not known. Give it, in dollars for a"
        f" million tokens: {advice}"
        for name in named[:1]
    ]


def _missing_sandbox(loaded: LoadedConfig) -> str:
    """Return why the backend that nobody chose cannot run here; empty if it can, or was chosen."""
    if loaded.origin("terminal.backend") != "default":
        return ""
    return load_backend(loaded.config.terminal.backend).unavailable()


def environment_settings(
    loaded: LoadedConfig, options: AppOptions, profile: AgentProfile
) -> EnvironmentSettings:
    return EnvironmentSettings(
        home=options.home,
        backend=profile.backend,
        terminal=loaded.config.terminal,
        default_cwd=str(profile.workspace),
        project="" if options.platform in UNATTENDED else str(options.cwd),
        base_env=options.environ,
        secret_names=loaded.secrets.names(),
        variable=loaded.variable,
    )


def access_settings(
    loaded: LoadedConfig, platforms: Iterable[tuple[str, str]]
) -> dict[str, AuthzSettings]:
    """Return the settings of each (platform, prefix of its variables)."""
    config = loaded.config
    gateway = {
        "allowed_users": config.gateway.allowed_users,
        "allow_all_users": config.gateway.allow_all_users,
        "unauthorized_dm_behavior": config.unauthorized_dm_behavior,
    }
    return {
        name: authz_settings(
            name,
            platform_section(loaded, name),
            gateway=gateway,
            variables=loaded.variables,
            prefix=prefix,
        )
        for name, prefix in platforms
    }


def platform_section(loaded: LoadedConfig, name: str) -> dict[str, Any]:
    """Return everything written about a platform as one mapping.

    What `platforms.<name>` itself says wins over its `extra`.
    """
    platform = loaded.config.platforms.get(name)
    if platform is None:
        return {}
    own = {
        "token": platform.token,
        "allowed_users": platform.allowed_users,
        "allow_all_users": platform.allow_all_users,
    }
    return {**platform.extra, **{key: value for key, value in own.items() if value}}
