"""From the configuration file to what each layer wants to know."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hermes.app.backends import backend_name, backend_options
from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.domain.errors import ConfigError
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile
from hermes.domain.settings import Settings
from hermes.domain.settings.models import FallbackProvider, Provider
from hermes.execution.backend import EnvironmentSettings
from hermes.models.routes import RouteBook
from hermes.models.settings import (
    CacheTtl,
    ModelTarget,
    PoolStrategy,
    ProviderSettings,
    RetryPolicy,
    Timeouts,
)


def main_profile(loaded: LoadedConfig, options: AppOptions) -> AgentProfile:
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


def toolsets_of(
    settings: Settings, options: AppOptions, profile: AgentProfile, source: str
) -> tuple[str, ...]:
    """Return the toolsets an agent has at a door."""
    if options.toolsets is not None:
        return options.toolsets
    if source == options.platform:
        return profile.toolsets
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


def environment_settings(
    loaded: LoadedConfig, options: AppOptions, profile: AgentProfile
) -> EnvironmentSettings:
    """Return how the environments of an agent are made."""
    terminal = loaded.config.terminal
    return EnvironmentSettings(
        backend=profile.backend,
        default_cwd=str(profile.workspace),
        base_env=options.environ,
        secret_names=loaded.secrets.names(),
        env_passthrough=frozenset(terminal.env_passthrough),
        lifetime_seconds=terminal.lifetime_seconds,
        options=backend_options(profile.backend, loaded, options),
    )


def route_book(loaded: LoadedConfig) -> RouteBook:
    """Return what model routes are resolved against."""
    config = loaded.config
    timeouts = config.model_timeouts
    default = type(timeouts)()
    return RouteBook(
        secret=loaded.variable,
        providers={
            name: _provider(name, provider, config.credential_pool_strategies)
            for name, provider in config.providers.items()
        },
        timeouts=None
        if timeouts == default
        else Timeouts(
            connect=timeouts.connect,
            first_byte=timeouts.first_byte,
            idle=timeouts.idle,
            total=timeouts.total,
        ),
        cache_ttl=CacheTtl(config.prompt_caching.cache_ttl),
    )


def _provider(name: str, provider: Provider, strategies: Mapping[str, str]) -> ProviderSettings:
    strategy = strategies.get(name, PoolStrategy.FILL_FIRST)
    if strategy not in set(PoolStrategy):
        raise ConfigError(
            f"credential_pool_strategies.{name} is `{strategy}`, which does not exist.",
            hint=f"Use one of: {', '.join(PoolStrategy)}.",
        )
    return ProviderSettings(
        base_url=provider.base_url,
        api_keys=(provider.api_key,) if provider.api_key else (),
        key_env=(provider.key_env,) if provider.key_env else (),
        api_mode=provider.api_mode,
        models=_model_names(provider),
        context_length=provider.context_length,
        vision=provider.vision,
        headers=dict(provider.extra_headers),
        extra_body=dict(provider.extra_body),
        ssl_verify=provider.ssl_verify,
        ssl_ca=provider.ssl_ca_cert,
        strategy=PoolStrategy(strategy),
    )


def _model_names(provider: Provider) -> tuple[str, ...]:
    models: Any = provider.models or ()
    names = tuple(str(name) for name in models) if isinstance(models, list | tuple | dict) else ()
    return (provider.model, *names) if provider.model else names


def main_target(loaded: LoadedConfig, provider: str, model: str) -> ModelTarget:
    """Return the model an agent answers with."""
    choice = loaded.config.model
    if not model and provider in loaded.config.providers:
        model = loaded.config.providers[provider].model
    same = model == choice.model and provider == choice.provider
    return ModelTarget(
        model=model,
        provider=provider,
        base_url=choice.base_url if same or not provider else "",
        api_key=choice.api_key if same else "",
        api_mode=choice.api_mode if same else "",
        context_length=choice.context_length if same else None,
        max_tokens=choice.max_tokens,
    )


def fallback_targets(config: Settings) -> tuple[ModelTarget, ...]:
    """Return what answers when the model cannot."""
    return tuple(_fallback(entry, config.providers) for entry in config.fallback_providers)


def _fallback(entry: FallbackProvider, providers: Mapping[str, Provider]) -> ModelTarget:
    named = providers.get(entry.provider)
    return ModelTarget(
        model=entry.model or (named.model if named else ""),
        provider=entry.provider,
        base_url=entry.base_url,
        api_key=entry.api_key,
        key_env=entry.key_env,
        api_mode=entry.api_mode,
    )


def retry_policy(config: Settings) -> RetryPolicy:
    """Return how patiently a failed call is tried again."""
    return RetryPolicy(max_retries=config.agent.api_max_retries)
