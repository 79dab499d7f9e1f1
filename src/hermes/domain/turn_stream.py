"""TurnStream: an append-only, replayable sequence of TurnEvents.

The loop emits and never waits; any number of followers read at their own
pace, each from any position. A slow follower costs memory for the length of
one turn and never delays the model or another follower.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from hermes.domain.events import TurnEvent, TurnFinished

__all__ = ["TurnStream"]


class TurnStream:
    """The events of one turn, from its start to its `TurnFinished`."""

    def __init__(self, turn_id: str, session_id: str) -> None:
        self.turn_id = turn_id
        self.session_id = session_id
        self._events: list[TurnEvent] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._ends: list[asyncio.Future[None]] = []
        """Those who wait for the end only, and are not woken before."""
        self._finished: TurnFinished | None = None
        self._taps: list[Callable[[TurnEvent], None]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def finished(self) -> TurnFinished | None:
        """The last event, once it is there."""
        return self._finished

    @property
    def events(self) -> Sequence[TurnEvent]:
        """Everything emitted so far."""
        return self._events

    def emit(self, event: TurnEvent) -> None:
        """Append `event` and wake the followers. Nothing follows a finish."""
        if self._finished is not None:
            raise RuntimeError(
                f"turn {self.turn_id} is finished: cannot emit {type(event).__name__}"
            )
        self._events.append(event)
        if isinstance(event, TurnFinished):
            self._finished = event
            self._waiters += self._ends
        for tap in self._taps:
            tap(event)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def tap(self, seen: Callable[[TurnEvent], None]) -> None:
        """Call `seen` with each further event as it is emitted; it must be quick and never fail."""
        self._taps.append(seen)

    async def follow(self, start: int = 0) -> AsyncIterator[TurnEvent]:
        """Yield events from position `start` on, until the turn has finished."""
        position = start
        while True:
            while position < len(self._events):
                event = self._events[position]
                position += 1
                yield event
            if self._finished is not None:
                return
            await self._more()

    async def more(self, position: int) -> list[TurnEvent]:
        """Return all events from `position` on, once there is one; nothing after the end."""
        while position >= len(self._events):
            if self._finished is not None:
                return []
            await self._more()
        return self._events[position:]

    async def wait(self) -> TurnFinished:
        """Return the final event when the turn ends."""
        if self._finished is None:
            end = asyncio.get_running_loop().create_future()
            self._ends.append(end)
            await end
        assert self._finished is not None
        return self._finished

    async def _more(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
