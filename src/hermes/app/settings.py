"""Settings as the layers want them: agents, their toolsets and backends, access to platforms."""

import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hermes.app.options import AppOptions
from hermes.config.agents import AgentConfig
from hermes.config.document import format_key
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.control.admission.authz import AuthzSettings, authz_settings
from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import SettingPlaces
from hermes.domain.profile import AgentProfile
from hermes.domain.settings import Settings
from hermes.execution.backend import EnvironmentSettings, load_backend, project_at, repository_above
from hermes.models.offers import facts_for
from hermes.models.routes import ModelSources, ModelTarget, resolve_route


def agent_profile(
    loaded: LoadedConfig, options: AppOptions, agent: AgentConfig, general: Settings
) -> AgentProfile:
    settings = agent.scope.settings(general) if agent.scope is not None else general
    own = agent.entry.toolsets
    return AgentProfile(
        id=agent.id,
        home=agent.home.root,
        workspace=_workspace(options, agent, settings),
        provider=options.provider or ("" if options.model else settings.model.provider),
        model=options.model or settings.model.model,
        toolsets=toolsets_of(settings, options, options.platform) if own is None else own,
        disabled_toolsets=settings.agent.disabled_toolsets,
        backend=backend_name(loaded, options, settings.terminal.backend),
        secret_names=agent.secret_names,
        description=agent.entry.description,
        prompt=agent.entry.prompt,
        own_toolsets=own is not None,
        exposed=agent.entry.expose,
        scope=agent.scope,
    )


def _workspace(options: AppOptions, agent: AgentConfig, settings: Settings) -> Path:
    """Return where tools start: in an agent's own place, at the terminal where the person is."""
    if agent.entry.workspace:
        return agent.home.inside(agent.entry.workspace)
    cwd = settings.terminal.cwd
    if cwd not in {"", "."}:
        return (options.cwd / cwd).resolve()
    apart = agent.home != options.home and options.platform in UNATTENDED
    return agent.home.workspace if apart else options.cwd


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


def backend_name(loaded: LoadedConfig, options: AppOptions, chosen: str = "") -> str:
    """Return the backend: what is configured, for an agent or for all, or the sandbox.

    Where no sandbox can be made, the terminal falls back to `local`, where a person watches
    and is asked. Chats do not: their commands are refused until somebody chooses a backend.
    """
    configured = loaded.config.terminal.backend
    if chosen not in {"", configured}:
        return chosen
    unwatched = options.platform in UNATTENDED
    return configured if unwatched or not _missing_sandbox(loaded) else "local"


def has_private_workspace(backend: str, options: AppOptions, cwd: str = "") -> bool:
    """Return whether a session that works in `cwd` starts in an empty place of its own."""
    if options.platform in UNATTENDED:
        return load_backend(backend).private_workspace
    home, there = options.environ.get("HOME") or "/", cwd or str(options.cwd)
    return backend == "sandbox" and project_at(there, options.home.root, home) is None


ON_THIS_COMPUTER = "run on this computer itself, with your rights (terminal.backend: local)"
"""What commands do there, in a few words."""
WHAT_LOCAL_MEANS = f"""\
Commands {ON_THIS_COMPUTER}: they reach whatever you can.
Hermes reads them and asks you about what looks dangerous. It is no wall: what it misreads runs.
Back to the sandbox: hermes config unset terminal.backend"""


def backend_warnings(loaded: LoadedConfig, options: AppOptions) -> tuple[str, ...]:
    """Return what a person should know about where commands run."""
    backend, missing = backend_name(loaded, options), _missing_sandbox(loaded)
    if options.platform not in UNATTENDED:
        if missing:
            return (f"commands run on this machine without a sandbox: {missing}",)
        if backend == "local":
            return (f"commands {ON_THIS_COMPUTER}",)
        there = options.own_cwd or options.cwd
        if has_private_workspace(backend, options, options.own_cwd):
            text = f"{there} is no project: commands work in a place of their own, and can ask"
            return (f"{text} to leave it",)
        return _left_above(options, Path(there)) if backend == "sandbox" else ()
    if missing:
        advice = "install it or set `terminal.backend`; `local` would give them this machine"
        return (f"commands of chats are refused, there is no sandbox: {missing}; {advice}",)
    if backend == "local":
        return (f"commands of chats {ON_THIS_COMPUTER}, without a wall",)
    return ()


def _left_above(options: AppOptions, project: Path) -> tuple[str, ...]:
    """Say that a project is a folder of a larger one, which the sandbox does not show."""
    top = repository_above(project.resolve())
    home = options.environ.get("HOME") or "/"
    if top is None or project_at(str(top), options.home.root, home) is None:
        return ()
    text = f"the repository above ({top}) is not in the sandbox: git asks to leave, modules above"
    return (f"{text} are not found; start at its top for all of it",)


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
    loaded: LoadedConfig, options: AppOptions, profile: AgentProfile, homes: Iterable[Path] = ()
) -> EnvironmentSettings:
    """Return how the environments of an agent are made; `homes` are those of all agents."""
    scope, environ = profile.scope, options.environ
    terminal = (scope.settings(loaded.config) if scope is not None else loaded.config).terminal
    apart = profile.home != options.home.root
    if profile.workspace.is_relative_to(profile.home):
        HermesHome(root=profile.home).subdirectory(profile.workspace)
    if apart:
        # Also where a variable is passed on by name: nothing of another agent is there.
        environ = {name: value for name in environ if scope and (value := scope.variable(name))}
    # What is passed on by name may stand in its `.env` only.
    variable = loaded.variable if scope is None else scope.variable
    passed = {
        name: value
        for name in (scope.secrets if apart and scope else loaded.variables)
        if name not in environ
        and any(fnmatchcase(name, each) for each in terminal.env_passthrough)
        and (value := variable(name))
    }
    return EnvironmentSettings(
        home=options.home,
        backend=profile.backend,
        terminal=terminal,
        default_cwd=str(profile.workspace),
        project="" if options.platform in UNATTENDED else str(options.cwd),
        base_env={**environ, **passed},
        skills_dir=HermesHome(root=profile.home).skills_dir if apart else None,
        hidden=tuple(str(each) for each in homes if not each.is_relative_to(options.home.root)),
        secret_names=loaded.secrets.names() | profile.secret_names,
        variable=variable,
    )


def access_settings(
    loaded: LoadedConfig, places: Iterable[tuple[str, str, str, SettingPlaces | None]]
) -> dict[str, AuthzSettings]:
    """Return the settings of each (name, platform, prefix of its variables, places).

    Without places they are those of the platform; an account may have its own.
    """
    config = loaded.config
    gateway = {
        "allowed_users": config.gateway.allowed_users,
        "allow_all_users": config.gateway.allow_all_users,
        "unauthorized_dm_behavior": config.unauthorized_dm_behavior,
    }
    return {
        name: authz_settings(
            platform,
            platform_section(loaded, platform) if own is None else own.section,
            gateway={} if own is not None and own.own_people else gateway,
            variables=loaded.variables if own is None else own.variables,
            prefix=prefix,
            agent="" if own is None else own.agent,
        )
        for name, platform, prefix, own in places
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
