"""Numbered events: every event of one response has the number after the last one's."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes.streaming.sse import frame

__all__ = ["Emitter", "ResponseEvent"]

_encoder = msgspec.json.Encoder()


class ResponseEvent(Struct, frozen=True, kw_only=True, gc=False):
    """One event of a response stream."""

    name: str
    sequence_number: int
    fields: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """Return the event as clients read it."""
        return {"type": self.name, "sequence_number": self.sequence_number, **self.fields}

    def frame(self) -> bytes:
        """Return the event as it is sent."""
        return frame(_encoder.encode(self.body()), self.name)


class Emitter:
    """Collects events until they are taken."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: list[ResponseEvent] = []

    def emit(self, name: str, /, **fields: Any) -> None:
        """Add an event."""
        event = ResponseEvent(name=name, sequence_number=self._next, fields=fields)
        self._next += 1
        self._waiting.append(event)

    def take(self) -> list[ResponseEvent]:
        """Return and clear what was added."""
        taken, self._waiting = self._waiting, []
        return taken
