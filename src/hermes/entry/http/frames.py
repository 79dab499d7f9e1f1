"""Frames: uvicorn's WebSocket, with bounds on what a client sends at once.

To read a frame takes time however small it is, and nobody else has the process meanwhile: so
what came is read piece by piece, and a message has a bounded number of them.
"""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from hermes.entry.http.errors import Problem
from hermes.entry.http.room import BodyRoom
from hermes.entry.http.websocket import STOPPING

PIECE = 4096
"""Bytes that are read before others get their turn."""
MAX_FRAGMENTS = 10_000
"""Frames of a message."""
TOO_BIG, AGAIN_LATER = 1009, 1013


class BoundedSocket(WSProtocol):
    def __init__(self, room: BodyRoom, **named: Any) -> None:
        super().__init__(**named)
        self._unread = bytearray()
        self._next: asyncio.Handle | None = None
        """The reading of the next piece."""
        self._fragments = 0
        self._held = room.body()

    def data_received(self, data: bytes) -> None:
        """Read what came, a piece each time the loop comes round."""
        self._unread += data
        if self._next is None:
            self._read_piece()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        self._held.clear()
        super().connection_lost(exc)

    def handle_message(self, event: TextMessage | BytesMessage) -> None:
        """Take a part of a message; the connection ends if it has too many of them."""
        self._fragments += event.frame_finished
        if self._fragments > MAX_FRAGMENTS:
            self._end(TOO_BIG, f"Message has more than {MAX_FRAGMENTS} fragments")
            return
        try:
            self._held.grow(len(event.data))
        except Problem as problem:
            self._end(AGAIN_LATER, problem.message)
            return
        super().handle_message(event)
        if event.message_finished or self.close_sent:
            self._fragments = 0
            self._held.clear()

    def resume_writing(self) -> None:
        """Go on reading, once the client takes what it was sent."""
        super().resume_writing()
        if self._unread and self._next is None:
            self._next = self.loop.call_soon(self._read_piece)

    def shutdown(self) -> None:
        """Tell the application, which ends the connection: what is under way may end first."""
        if self.handshake_complete and not self.close_sent:
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": STOPPING})
        else:
            super().shutdown()

    def _read_piece(self) -> None:
        self._next = None
        if self.writable.is_set():
            piece = bytes(self._unread[:PIECE])
            del self._unread[:PIECE]
            super().data_received(piece)
        if self._unread:
            self.transport.pause_reading()
            if self.writable.is_set():
                self._next = self.loop.call_soon(self._read_piece)
        elif not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _end(self, code: int, reason: str) -> None:
        self.close_sent = True
        self._held.clear()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(CloseConnection(code=code, reason=reason)))
            self.transport.close()
