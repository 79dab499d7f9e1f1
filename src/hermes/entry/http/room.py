"""Room for bodies: how much all clients together may have sent of what is not whole yet.

Every body has a limit of its own, but a client may begin a hundred of them and end none. Small
ones always find room, so that ordinary requests go on while large ones have to come again.
"""

from hermes.entry.http.errors import Problem

AT_ONCE = 8
"""Bodies of full size."""
LEAST = 64 * 1024 * 1024
SMALL = 64 * 1024
"""Bodies up to here are not counted."""
AGAIN_SECONDS = "5"


class BodyRoom:
    def __init__(self, each: int) -> None:
        self.each = each
        """Bytes of one body."""
        self.free = max(AT_ONCE * each, LEAST)

    def body(self) -> "HeldRoom":
        return HeldRoom(self)


class HeldRoom:
    """What one body takes up, until it is cleared."""

    __slots__ = ("_room", "_size", "_taken")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._size = self._taken = 0

    def grow(self, size: int) -> None:
        """Take room for what has come; 503 if there is none, and then it is not taken."""
        self._size += size
        wanted = self._size - self._taken if self._size > SMALL else 0
        if wanted > self._room.free:
            raise Problem(
                503,
                "Too many large bodies are on their way at once; send it again.",
                code="too_many_bodies",
                headers={"retry-after": AGAIN_SECONDS},
            )
        self._room.free -= wanted
        self._taken += wanted

    def clear(self) -> None:
        self._room.free += self._taken
        self._size = self._taken = 0
