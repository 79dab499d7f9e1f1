"""Ticket: what a door gets for a message it submitted."""

import asyncio
from collections.abc import Callable

from hermes.domain.errors import HermesError
from hermes.domain.inbound import InboxEntry
from hermes.domain.turn_stream import TurnStream

__all__ = ["Ticket"]


class Ticket:
    """A claim on the turn that will answer an admitted message."""

    def __init__(self, entry: InboxEntry, *, duplicate: bool) -> None:
        self.entry = entry
        self.duplicate = duplicate
        self._stream: asyncio.Future[TurnStream] = asyncio.get_running_loop().create_future()

    @property
    def session_id(self) -> str:
        """The session the message belongs to."""
        return self.entry.session_id

    async def stream(self) -> TurnStream:
        """Return the events of the turn that takes this message, once it starts.

        Raises what kept the turn from starting.
        """
        return await asyncio.shield(self._stream)

    def on_failure(self, told: Callable[[HermesError], None]) -> None:
        """Have `told` called if no turn will have this message."""

        def done(stream: asyncio.Future[TurnStream]) -> None:
            error = None if stream.cancelled() else stream.exception()
            if isinstance(error, HermesError):
                told(error)

        self._stream.add_done_callback(done)

    def resolve(self, stream: TurnStream) -> None:
        """Tell the door which turn has its message."""
        if not self._stream.done():
            self._stream.set_result(stream)

    def fail(self, error: HermesError) -> None:
        """Tell the door why no turn will have its message."""
        if not self._stream.done():
            self._stream.set_exception(error)
            self._stream.exception()
