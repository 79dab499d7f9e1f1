"""Turns: sockets read one after the other, one of them each time the event loop comes round.

What a client sends is there at once, and so is what a hundred others send. If each of them read
when it can, everybody else would wait for all of them.
"""

import asyncio
from typing import Protocol


class Reader(Protocol):
    def read_some(self) -> None:
        """Read a little; whoever wants to go on asks for another turn."""


class Turns:
    def __init__(self) -> None:
        self._waiting: dict[Reader, None] = {}
        self._next: asyncio.Handle | None = None

    def ask(self, reader: Reader) -> None:
        """Let `reader` read when those that ask already have."""
        self._waiting[reader] = None
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._give)

    def leave(self, reader: Reader) -> None:
        self._waiting.pop(reader, None)

    def _give(self) -> None:
        self._next = None
        if not self._waiting:
            return
        reader = next(iter(self._waiting))
        del self._waiting[reader]
        if self._waiting:
            self._next = asyncio.get_running_loop().call_soon(self._give)
        reader.read_some()
