"""The history of sessions: reading it, undoing it, compacting it."""

import sqlite3
from pathlib import Path

from hermes.domain.messages import UserMessage
from hermes.domain.session import StoredMessage
from hermes.state.refusals import nothing_to_compact, turn_open, unknown_session
from hermes.state.sqlite import codec
from hermes.state.sqlite.history_cache import HistoryCache, read_history, topped_up
from hermes.state.sqlite.part import LedgerPart, change, one, rows
from hermes.state.sqlite.readers import Readers
from hermes.state.sqlite.seats import put, take_seats
from hermes.state.sqlite.writer import Writer

__all__ = ["MessagePart"]


class MessagePart(LedgerPart):
    """Implements the history half of `MessageStore`."""

    def __init__(self, path: Path, writer: Writer, readers: Readers) -> None:
        super().__init__(path, writer, readers)
        self._histories = HistoryCache()

    async def history(self, session_id: str) -> list[StoredMessage]:
        """Return the active messages in order: what the model is shown."""
        kept = self._histories.get(session_id)
        if kept is not None:
            earlier = kept
            kept = await self._quick(lambda c: topped_up(c, session_id, earlier))
        if kept is None:
            kept = await self._read(lambda c: read_history(c, session_id))
        self._histories.put(session_id, kept)
        return list(kept.messages)

    async def transcript(self, session_id: str) -> list[StoredMessage]:
        """Return every message in order, also undone and compacted ones."""
        return await self._messages("messages.transcript", session_id)

    async def rewind(self, session_id: str, seq: int) -> int:
        """Deactivate the messages from `seq` on; return how many."""

        def work(connection: sqlite3.Connection) -> int:
            if one(connection, "sessions.exists", (session_id,)) is None:
                raise unknown_session(session_id)
            if one(connection, "sessions.has_open_turn", (session_id,)):
                raise turn_open(session_id)
            change(connection, "messages.count_rewrite", (session_id,))
            return change(connection, "messages.rewind", (session_id, seq))

        return await self._write(work)

    async def compact(
        self, session_id: str, through_seq: int, summary: UserMessage
    ) -> StoredMessage:
        """Replace the active messages up to `through_seq` by `summary`, in one step.

        The summary has the seat of the last of them and a larger id, so it
        sorts right after it.
        """

        def work(connection: sqlite3.Connection) -> StoredMessage:
            if one(connection, "sessions.exists", (session_id,)) is None:
                raise unknown_session(session_id)
            last = one(connection, "messages.last_to_compact", (session_id, through_seq))
            if last is None:
                raise nothing_to_compact(session_id)
            change(connection, "messages.compact", (session_id, through_seq))
            change(connection, "messages.count_rewrite", (session_id,))
            seq, at = int(last["seq"]), float(last["timestamp"])
            take_seats(connection, session_id, at, seats=0, messages=[summary])
            return put(connection, summary, session_id=session_id, turn_id=None, seq=seq, at=at)

        return await self._write(work)

    async def _messages(self, query: str, session_id: str) -> list[StoredMessage]:
        def work(connection: sqlite3.Connection) -> list[StoredMessage]:
            return [codec.stored_message(row) for row in rows(connection, query, (session_id,))]

        return await self._read(work)
