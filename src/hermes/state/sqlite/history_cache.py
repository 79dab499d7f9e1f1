"""Long histories kept in memory, and topped up instead of read again.

A history only grows, except when it is rewound or compacted; the session row
counts both (`message_count`, `rewrites`), also for other processes. So one
small read tells whether a kept history still holds and what is missing. Short
histories are not kept: reading them costs less than the memory.
"""

import sqlite3
from collections import OrderedDict

from msgspec import Struct

from hermes.domain.session import StoredMessage
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import one, rows

__all__ = ["HistoryCache", "Kept", "read_history", "topped_up"]

WORTH_KEEPING = 60
"""Messages from which a history is kept."""
MAX_MESSAGES = 20_000
"""Of all kept histories together."""
MAX_TOP_UP = 200


class Kept(Struct, frozen=True):
    """A history as it was at some moment."""

    messages: list[StoredMessage]
    count: int
    rewrites: int
    last_id: int


class HistoryCache:
    """The most recently used long histories."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._messages = 0

    def get(self, session_id: str) -> Kept | None:
        """Return what is kept of a session."""
        found = self._kept.get(session_id)
        if found is not None:
            self._kept.move_to_end(session_id)
        return found

    def put(self, session_id: str, kept: Kept) -> None:
        """Keep a history if it is long enough, letting go of others."""
        self.drop(session_id)
        if len(kept.messages) < WORTH_KEEPING:
            return
        self._kept[session_id] = kept
        self._messages += len(kept.messages)
        while self._messages > MAX_MESSAGES and len(self._kept) > 1:
            self.drop(next(iter(self._kept)))

    def drop(self, session_id: str) -> None:
        """Let go of one history."""
        gone = self._kept.pop(session_id, None)
        if gone is not None:
            self._messages -= len(gone.messages)


def read_history(connection: sqlite3.Connection, session_id: str) -> Kept:
    """Read a history from the beginning."""
    state = one(connection, "messages.history_state", (session_id,))
    messages = [
        codec.stored_message(row) for row in rows(connection, "messages.history", (session_id,))
    ]
    return Kept(
        messages,
        state["message_count"] if state else 0,
        state["rewrites"] if state else 0,
        max((stored.id for stored in messages), default=0),
    )


def topped_up(connection: sqlite3.Connection, session_id: str, kept: Kept) -> Kept | None:
    """Return the kept history with what is missing; None if it has to be read again."""
    state = one(connection, "messages.history_state", (session_id,))
    if state is None or state["rewrites"] != kept.rewrites:
        return None
    missing = state["message_count"] - kept.count
    if missing == 0:
        return kept
    if missing < 0 or missing > MAX_TOP_UP:
        return None
    new = [
        codec.stored_message(row)
        for row in rows(connection, "messages.history_after", (session_id, kept.last_id))
    ]
    if len(new) != missing:
        return None
    messages = sorted([*kept.messages, *new], key=lambda stored: (stored.seq, stored.id))
    last_id = max(stored.id for stored in new)
    return Kept(messages, state["message_count"], kept.rewrites, last_id)
