"""The doors that listen, made from the configuration; each is imported only if it is on."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module

from msgspec import Struct

from hermes.app.build import App
from hermes.app.doors import ListeningDoor
from hermes.app.options import AppOptions
from hermes.app.platforms import listening_doors
from hermes.config.loader import LoadedConfig
from hermes.control.health import HealthBoard
from hermes.control.liveness import AdapterHealth
from hermes.domain.outbound import Target

__all__ = ["DoorContext", "check_doors", "open_doors"]

_MODULES = {"api_server": "hermes.app.api_door", "webhook": "hermes.app.webhook_door"}


class DoorContext(Struct, frozen=True, kw_only=True):
    """What a listening door is made from."""

    app: App
    options: AppOptions
    group: asyncio.TaskGroup
    deliver: Callable[[Target, str, str], Awaitable[None]]
    """(where, text, id) sends a result to a chat, never twice under one id."""
    platforms: tuple[str, ...]
    """The chat platforms that are on."""
    board: HealthBoard
    adapters: Callable[[], list[AdapterHealth]]


def open_doors(context: DoorContext) -> list[ListeningDoor]:
    """Return the doors that are switched on."""
    names = listening_doors(context.app.loaded)
    return [import_module(_MODULES[name]).open_door(context) for name in names]


def check_doors(loaded: LoadedConfig, options: AppOptions) -> None:
    """Raise `ConfigError` if a door that is switched on cannot work as configured."""
    for name in listening_doors(loaded):
        import_module(_MODULES[name]).check(loaded, options)
