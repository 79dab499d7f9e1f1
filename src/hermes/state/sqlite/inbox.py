"""The inbox: messages that arrived, each committed once."""

import sqlite3
from collections.abc import Sequence

from hermes.domain.inbound import InboxEntry, InboxState
from hermes.domain.ports.ledger import Admission, Arrival
from hermes.state.refusals import inbox_gone, unknown_session
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import LedgerPart, change, one, rows

__all__ = ["InboxPart", "admit", "take_entries"]


class InboxPart(LedgerPart):
    """Implements `InboxStore`."""

    async def admit(self, arrival: Arrival) -> Admission:
        """Commit a message under (platform, account, native id), once."""
        text = codec.dump(arrival.message)
        return await self._write(lambda connection: admit(connection, arrival, text))

    async def waiting(self, session_id: str) -> list[InboxEntry]:
        """Return what no turn has taken yet, in order of admission."""

        def work(connection: sqlite3.Connection) -> list[InboxEntry]:
            return [
                codec.inbox_entry(row) for row in rows(connection, "inbox.waiting", (session_id,))
            ]

        return await self._quick(work)

    async def sessions_waiting(self) -> list[str]:
        """Return the sessions that have something waiting, the longest wait first."""
        found = await self._read(lambda connection: rows(connection, "inbox.sessions_waiting"))
        return [row["session_id"] for row in found]

    async def mark_answered(self, turn_id: str) -> int:
        """Record that the outcome of a turn has been delivered; return for how many entries."""
        return await self._write(lambda c: change(c, "inbox.mark_answered", (turn_id,)))

    async def unanswered(self, platforms: Sequence[str]) -> list[InboxEntry]:
        """Return what a turn has taken whose outcome was not delivered yet, oldest first."""
        wanted = codec.dump(list(platforms))

        def work(connection: sqlite3.Connection) -> list[InboxEntry]:
            return [codec.inbox_entry(r) for r in rows(connection, "inbox.unanswered", (wanted,))]

        return await self._read(work)

    async def entries_of_turn(self, turn_id: str) -> list[InboxEntry]:
        """Return what a turn has taken, in order of admission."""
        found = await self._quick(lambda connection: rows(connection, "inbox.of_turn", (turn_id,)))
        return [codec.inbox_entry(row) for row in found]

    async def drop(self, inbox_ids: Sequence[int], reason: str) -> None:
        """Record that these will deliberately not be answered.

        What a turn has taken already stays taken.
        """

        def work(connection: sqlite3.Connection) -> None:
            for inbox_id in inbox_ids:
                change(connection, "inbox.drop", (reason, inbox_id))

        await self._write(work)


def admit(connection: sqlite3.Connection, arrival: Arrival, text: str) -> Admission:
    """Commit a message, of which `text` is the stored form, unless it is known."""
    message = arrival.message
    native = (message.platform, message.account, message.native_id)
    known = one(connection, "inbox.by_native", native)
    if known is not None:
        return Admission(entry=codec.inbox_entry(known), duplicate=True)
    if one(connection, "sessions.exists", (arrival.session_id,)) is None:
        raise unknown_session(arrival.session_id)
    values = {
        "platform": message.platform,
        "account": message.account,
        "native_id": message.native_id,
        "agent_id": arrival.agent_id,
        "session_key": arrival.session_key,
        "session_id": arrival.session_id,
        "message": text,
        "at": arrival.at,
        "state": InboxState.DROPPED if arrival.handled_as else InboxState.WAITING,
        "drop_reason": arrival.handled_as,
    }
    row = one(connection, "inbox.insert", values)
    assert row is not None
    return Admission(entry=codec.inbox_entry(row), duplicate=False)


def take_entries(
    connection: sqlite3.Connection, session_id: str, turn_id: str, inbox_ids: Sequence[int]
) -> None:
    """Give waiting entries to a turn; all of them or none."""
    gone = [
        inbox_id
        for inbox_id in inbox_ids
        if not change(
            connection,
            "inbox.take",
            {"id": inbox_id, "session_id": session_id, "turn_id": turn_id},
        )
    ]
    if gone:
        raise inbox_gone(gone)
