"""The inbox: messages that arrived, each committed once."""

from collections.abc import Sequence
from sqlite3 import Connection

from hermes.domain.errors import Conflict
from hermes.domain.inbound import InboundMessage, InboxEntry, InboxState
from hermes.domain.ports.ledger import Admission, Arrival
from hermes.state.sqlite.base import LedgerPart, change, check_session, one
from hermes.state.sqlite.rows import dump, reader

read_entry = reader(InboxEntry, json={"message": InboundMessage})


class InboxPart(LedgerPart):
    """Implements `InboxStore`."""

    async def admit(self, arrival: Arrival) -> Admission:
        text = dump(arrival.message)
        return await self._write(lambda connection: admit(connection, arrival, text))

    async def waiting(self, session_id: str) -> list[InboxEntry]:
        return await self._few(read_entry, "inbox.waiting", (session_id,))

    async def sessions_waiting(self) -> list[str]:
        return await self._list(lambda row: str(row["session_id"]), "inbox.sessions_waiting")

    async def mark_answered(self, turn_id: str) -> int:
        return await self._write(lambda c: change(c, "inbox.mark_answered", (turn_id,)))

    async def unanswered(self, platforms: Sequence[str]) -> list[InboxEntry]:
        return await self._list(read_entry, "inbox.unanswered", (dump(list(platforms)),))

    async def entry(self, inbox_id: int) -> InboxEntry | None:
        return await self._get(read_entry, "inbox.get", (inbox_id,))

    async def entries_of_turn(self, turn_id: str) -> list[InboxEntry]:
        return await self._few(read_entry, "inbox.of_turn", (turn_id,))

    async def drop(self, inbox_ids: Sequence[int], reason: str) -> None:
        def work(connection: Connection) -> None:
            # What a turn has taken already stays taken.
            for inbox_id in inbox_ids:
                change(connection, "inbox.drop", (reason, inbox_id))

        await self._write(work)


def admit(connection: Connection, arrival: Arrival, text: str) -> Admission:
    """Commit a message, of which `text` is the stored form, unless it is known."""
    message = arrival.message
    native = (message.platform, message.account, message.native_id)
    known = one(connection, "inbox.by_native", native)
    if known is not None:
        return Admission(entry=read_entry(known), duplicate=True)
    check_session(connection, arrival.session_id)
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
    return Admission(entry=read_entry(row), duplicate=False)


def take_entries(
    connection: Connection, session_id: str, turn_id: str, inbox_ids: Sequence[int]
) -> None:
    """Give waiting entries to a turn; all of them or none."""
    values = {"session_id": session_id, "turn_id": turn_id}
    gone = [i for i in inbox_ids if not change(connection, "inbox.take", values | {"id": i})]
    if gone:
        raise Conflict(
            f"Inbox entries are no longer waiting in this session: {', '.join(map(str, gone))}.",
            hint="Read the inbox again; another turn has taken them.",
        )
