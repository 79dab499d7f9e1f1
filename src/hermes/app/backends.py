"""The backend of an agent: its name, and what it is told."""

import logging

from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.domain.profile import AgentProfile
from hermes.execution.backend import EnvironmentSettings, load_backend

log = logging.getLogger(__name__)

UNATTENDED = frozenset({"gateway", "webhook", "cron"})
"""Doors where nobody watches what commands do."""
UNATTENDED_BACKEND = "sandbox"
"""Where their commands run unless a backend is configured."""


def backend_name(loaded: LoadedConfig, options: AppOptions) -> str:
    """Return the backend: what is configured, or the sandbox where nobody watches."""
    configured = loaded.config.terminal.backend
    chosen = loaded.origin("terminal.backend") != "default"
    if chosen or options.platform not in UNATTENDED:
        return configured
    missing = load_backend(UNATTENDED_BACKEND).unavailable()
    if missing:
        log.warning("commands of chats run on `%s` without a sandbox: %s", configured, missing)
        return configured
    return UNATTENDED_BACKEND


def has_private_workspace(loaded: LoadedConfig, options: AppOptions) -> bool:
    """Return whether each session starts in an empty place of its own."""
    if options.platform not in UNATTENDED:
        return False
    return load_backend(backend_name(loaded, options)).private_workspace


def environment_settings(
    loaded: LoadedConfig, options: AppOptions, profile: AgentProfile
) -> EnvironmentSettings:
    """Return how the environments of an agent are made."""
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
