"""Doors that listen: the API server and the webhook receiver, as `serve` sees them.

make -> before_recovery -> (gateway recovers) -> after_recovery -> listen -> drain -> close
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from hermes.app.build import App
from hermes.app.options import AppOptions
from hermes.app.platforms import listening_doors
from hermes.config.loader import LoadedConfig
from hermes.control.supervision.health import HealthBoard
from hermes.control.supervision.liveness import AdapterHealth
from hermes.domain.events import TurnStream
from hermes.domain.inbound import InboxEntry
from hermes.domain.outbound import Target

__all__ = [
    "DoorContext",
    "ListeningDoor",
    "check_doors",
    "open_doors",
]


class ListeningDoor(Protocol):
    """A door that waits for requests."""

    @property
    def platform(self) -> str:
        """The name its messages carry."""
        ...

    def on_turn(self, stream: TurnStream, entry: InboxEntry | None) -> None:
        """Hear of every turn that begins or goes on."""
        ...

    async def before_recovery(self) -> None:
        """Look out for what an earlier process left."""
        ...

    async def after_recovery(self) -> None:
        """Settle what did not go on."""
        ...

    def services(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs beside the listener until the gateway ends."""
        ...

    async def listen(self) -> None:
        """Start taking requests; raise if that is impossible."""
        ...

    def drain(self) -> None:
        """Take nothing new."""
        ...

    async def close(self, seconds: float) -> None:
        """Stop listening, giving answers that are under way so many seconds."""
        ...

    def health(self) -> AdapterHealth:
        """Say how it does."""
        ...


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
