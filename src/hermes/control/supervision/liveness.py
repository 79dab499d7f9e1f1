"""Liveness of one adapter, end to end: when it last heard, received and sent.

A task that exists proves nothing. What counts is the last time the platform
answered: a poll that returned, a heartbeat that came.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from hermes.domain.inbound import InboundMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import ButtonPress, InboundSink


class AdapterState(StrEnum):
    """Where an adapter stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RETRYING = "retrying"
    FATAL = "fatal"
    """It cannot work as configured and is not tried again by itself."""
    STOPPED = "stopped"


class AdapterHealth(Struct, frozen=True, kw_only=True):
    """How one adapter does. Times are seconds since the epoch."""

    name: str
    state: AdapterState = AdapterState.STOPPED
    since: float = 0.0
    account: str = ""
    error: str = ""
    error_code: str = ""
    hint: str = ""
    last_alive: float | None = None
    last_in: float | None = None
    last_out: float | None = None
    next_try: float | None = None
    attempts: int = 0
    """Failures in a row."""
    restarts: int = 0
    """How often it lost its connection or went deaf since the gateway started."""


class Pulse:
    """The times at which an adapter proved to work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard = clock.monotonic()
        """On the clock that never goes back: since when there has been silence."""
        self.last_alive: float | None = None
        self.last_in: float | None = None
        self.last_out: float | None = None

    def alive(self) -> None:
        self.heard = self._clock.monotonic()
        self.last_alive = self._clock.now()

    def received(self) -> None:
        """A message or a press came in."""
        self.alive()
        self.last_in = self.last_alive

    def sent(self) -> None:
        """Something became visible. This proves nothing about hearing."""
        self.last_out = self._clock.now()


class WatchedSink:
    """A sink that notes when something comes in."""

    def __init__(self, inner: InboundSink, pulse: Pulse) -> None:
        self._inner = inner
        self._pulse = pulse

    async def message(self, message: InboundMessage) -> None:
        self._pulse.received()
        await self._inner.message(message)
        # Admission may have waited for the disk; the platform is not to blame for that.
        self._pulse.alive()

    async def press(self, press: ButtonPress) -> str:
        self._pulse.received()
        return await self._inner.press(press)

    def alive(self) -> None:
        """Note that the connection works."""
        self._pulse.alive()
        self._inner.alive()

    async def cursor(self) -> Any:
        """Return where reading left off."""
        return await self._inner.cursor()

    async def save_cursor(self, cursor: Any) -> None:
        """Save where reading has got to."""
        await self._inner.save_cursor(cursor)
