"""Frames: uvicorn's WebSocket, with bounds on what a client sends at once.

To read a frame takes time however small it is, and to answer it takes more; nobody else has the
process meanwhile. So a socket reads a few frames when it is its turn, and goes on when the message
among them was taken. A message has a bounded number of frames, and a minute of those that are no
part of one.
"""

from collections.abc import Callable, Iterator
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from hermes.entry.http.errors import Problem
from hermes.entry.http.room import BodyRoom
from hermes.entry.http.turns import Turns
from hermes.entry.http.websocket import STOPPING, UNWANTED

PIECE = 4096
"""Bytes of a turn."""
MOST_FRAMES = 16
"""Frames of a turn."""
MAX_FRAGMENTS = 10_000
"""Frames of a message."""
MAX_CONTROLS = 1000
"""Pings and pongs of a minute; usual are a few."""
_MINUTE = 60.0
TOO_BIG, AGAIN_LATER = 1009, 1013


class _FewFrames(WSConnection):
    """Gives out the frames that came until it is enough; the others when it is asked again."""

    def __init__(self, enough: Callable[[int], bool]) -> None:
        super().__init__(ConnectionType.SERVER)
        self._enough = enough
        self.left = False
        """Whether there may be others."""

    def events(self) -> Iterator[Event]:  # type: ignore[override]  # nobody sends into it
        self.left = False
        for number, event in enumerate(super().events(), 1):
            yield event
            if self._enough(number):
                self.left = True
                return


class BoundedSocket(WSProtocol):
    def __init__(self, room: BodyRoom, turns: Turns, **named: Any) -> None:
        super().__init__(**named)
        self.conn: _FewFrames = _FewFrames(self._read_enough)
        self._unread = bytearray()
        self._turns = turns
        self._fragments = 0
        self._controls, self._minute = 0, self.loop.time()
        self._held = room.body()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._turns.leave(self)
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

    def handle_ping(self, event: Ping) -> None:
        if self._control():
            super().handle_ping(event)

    def handle_pong(self, event: Pong) -> None:
        if self._control():
            super().handle_pong(event)

    async def receive(self) -> Any:
        """Return what came, and go on reading once everything was taken."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    async def send(self, message: Any) -> None:
        """Send, and after the end read what is left: the client's own end is there."""
        await super().send(message)
        if message["type"] == "websocket.close":
            self._go_on()

    def resume_writing(self) -> None:
        """Go on reading, once the client takes what it was sent."""
        super().resume_writing()
        self._go_on()

    def shutdown(self) -> None:
        """Tell the application, which ends the connection: what is under way may end first."""
        if self.handshake_complete and not self.close_sent:
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": STOPPING})
        else:
            super().shutdown()

    def read_some(self) -> None:
        """Read a few frames: it is the turn of this socket."""
        if self._must_wait():
            return
        if self.conn.left:
            self.handle_events()
        else:
            piece = bytes(self._unread[:PIECE])
            del self._unread[:PIECE]
            super().data_received(piece)
        self._go_on()

    def _go_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._unread or self.conn.left:
            self.transport.pause_reading()
            if not self._must_wait():
                self._turns.ask(self)
        elif not self.read_paused:
            self.transport.resume_reading()

    def _must_wait(self) -> bool:
        """Tell whether a message was not taken yet, or the client does not take its answers."""
        return self.read_paused or not self.writable.is_set()

    def _read_enough(self, frames: int) -> bool:
        return frames >= MOST_FRAMES or self.read_paused

    def _control(self) -> bool:
        """Count a frame that is no part of a message; False if the connection ends with it."""
        now = self.loop.time()
        if now - self._minute >= _MINUTE:
            self._controls, self._minute = 0, now
        self._controls += 1
        if self._controls > MAX_CONTROLS:
            self._end(UNWANTED, f"More than {MAX_CONTROLS} pings and pongs within a minute")
        return self._controls <= MAX_CONTROLS

    def _end(self, code: int, reason: str) -> None:
        self.close_sent = True
        self._held.clear()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(CloseConnection(code=code, reason=reason)))
            self.transport.close()
