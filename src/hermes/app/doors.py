"""Doors that listen: the API server and the webhook receiver, as `serve` sees them.

make -> before_recovery -> (gateway recovers) -> after_recovery -> listen -> drain -> close
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from hermes.control.liveness import AdapterHealth
from hermes.domain.inbound import InboxEntry
from hermes.domain.turn_stream import TurnStream

__all__ = ["ListeningDoor"]


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
