"""From the configuration file to what each layer wants to know."""

from msgspec.structs import replace

from hermes.app.backends import backend_name
from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile
from hermes.domain.settings import Settings


def agent_profiles(loaded: LoadedConfig, options: AppOptions) -> dict[str, AgentProfile]:
    """Return the agents that are configured, by id; for now there is one."""
    profile = _main_profile(loaded, options)
    return {profile.id: profile}


def _main_profile(loaded: LoadedConfig, options: AppOptions) -> AgentProfile:
    """Return the default agent as configuration and command line describe it."""
    config = loaded.config
    toolsets = options.toolsets or _toolsets(config, options.platform)
    cwd = config.terminal.cwd
    workspace = options.cwd if cwd in {"", "."} else (options.cwd / cwd).resolve()
    return AgentProfile(
        id=DEFAULT_AGENT,
        home=options.home.root,
        workspace=workspace,
        provider=options.provider or ("" if options.model else config.model.provider),
        model=options.model or config.model.model,
        toolsets=tuple(toolsets),
        disabled_toolsets=config.agent.disabled_toolsets,
        backend=backend_name(loaded, options),
        secret_names=loaded.secrets.names(),
    )


def toolsets_of(settings: Settings, options: AppOptions, source: str) -> tuple[str, ...]:
    """Return the toolsets an agent has at a door."""
    if options.toolsets is not None:
        return options.toolsets
    return _toolsets(settings, source)


def _toolsets(config: Settings, platform: str) -> tuple[str, ...]:
    chosen = config.platform_toolsets.get(platform)
    if chosen is not None:
        return chosen
    return config.toolsets if platform == "cli" else (f"hermes-{platform.replace('_', '-')}",)


def in_force(config: Settings, options: AppOptions) -> Settings:
    """Return the settings with what the command line says laid over them."""
    agent, approvals = config.agent, config.approvals
    if options.max_turns:
        agent = replace(agent, max_turns=options.max_turns)
    if options.yolo:
        approvals = replace(approvals, mode="off")
    return replace(config, agent=agent, approvals=approvals)
