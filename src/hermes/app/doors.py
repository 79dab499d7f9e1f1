"""The doors there are, what each is made from, and which are switched on.

A row of `DOORS` names a module with three functions:

    enabled(loaded, options) -> bool     is it switched on?
    check(loaded, options) -> None       raise `ConfigError` if it cannot work as configured
    open_door(context) -> Door           make it, complete; it takes nothing before `open`
"""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from hermes.app.build import App
from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.control.admission.routing import Router
from hermes.control.delivery.files import OutgoingFiles
from hermes.control.door import Door
from hermes.control.hooks import HookBus
from hermes.control.supervision.health import StateFile
from hermes.domain.errors import ConfigError
from hermes.domain.platforms import platforms
from hermes.observability.metrics import Registry

DOORS: Mapping[str, str] = {
    "api_server": "hermes.app.api_door",
    "webhook": "hermes.app.webhook_door",
    # Last: chats take the longest to open and to close.
    "chat": "hermes.app.chat_door",
}


class DoorContext(Struct, frozen=True, kw_only=True):
    app: App
    group: asyncio.TaskGroup
    """Where it runs what goes on beside its services."""
    hooks: HookBus
    state_file: StateFile
    metrics: Registry
    router: Router
    """Says which agent a message is for."""
    restart: Callable[[], None]
    """Ends the gateway so that it starts again."""


def open_doors(context: DoorContext) -> list[Door]:
    app = context.app
    return [each.open_door(context) for each in _enabled(app.loaded, app.options)]


def check_doors(loaded: LoadedConfig, options: AppOptions) -> None:
    """Raise `ConfigError` if no door is switched on, or one that is cannot work."""
    if not _enabled(loaded, options):
        raise ConfigError(
            "No platform is switched on.",
            hint=" ".join(
                [
                    *(f"For {each.label}: {each.setup}" for each in platforms().values()),
                    "For the API server: hermes config set platforms.api_server.enabled true",
                ]
            ),
        )
    check_enabled(loaded, options)


def check_enabled(loaded: LoadedConfig, options: AppOptions) -> None:
    """Raise `ConfigError` if a door that is switched on cannot work."""
    for module in _enabled(loaded, options):
        module.check(loaded, options)


def listens(loaded: LoadedConfig, name: str) -> bool:
    platform = loaded.config.platforms.get(name)
    return platform is not None and platform.enabled


def _enabled(loaded: LoadedConfig, options: AppOptions) -> list[ModuleType]:
    modules = map(import_module, DOORS.values())
    return [module for module in modules if module.enabled(loaded, options)]


def outgoing_files(app: App) -> OutgoingFiles:
    """Return what decides which files of an answer may be sent."""

    def folders(agent_id: str) -> list[Path]:
        profile = app.agent(agent_id)
        own = [profile.workspace] if profile.backend == "local" else []
        named = app.settings().gateway.media_delivery_allow_dirs
        return [*own, *(Path(folder).expanduser() for folder in named)]

    home = app.options.home
    return OutgoingFiles(
        app.environments, app.ledger, home.cache_dir / "outgoing", folders, home.root
    )
