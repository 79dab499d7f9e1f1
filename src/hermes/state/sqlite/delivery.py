"""Inbox and outbox: messages that arrived, each committed once, and what leaves."""

from collections.abc import Sequence
from sqlite3 import Connection

from msgspec.structs import asdict

from hermes.domain.errors import Conflict, NotFound
from hermes.domain.inbound import InboundMessage, InboxEntry, InboxState
from hermes.domain.outbound import OutboxEntry, OutboxState, Target
from hermes.domain.ports.ledger import Admission, Arrival
from hermes.domain.wording import clean_text
from hermes.state.sqlite.base import LedgerPart, change, check_session, one, row_of, transaction
from hermes.state.sqlite.rows import columns, dump, reader

read_inbox = reader(InboxEntry, json={"message": InboundMessage})
read_outbox = reader(OutboxEntry, inner=("target",))


class InboxPart(LedgerPart):
    async def admit(self, arrival: Arrival) -> Admission:
        text = dump(arrival.message)
        return await self._write(lambda db: admit(db, arrival, text))

    async def came_before(self, message: InboundMessage) -> bool:
        native = (message.platform, message.account, message.native_id)
        return await self._get(read_inbox, "inbox.by_native", native) is not None

    async def queued(self, platforms: Sequence[str]) -> list[InboxEntry]:
        return await self._list(read_inbox, "inbox.queued", (dump(list(platforms)),))

    async def waiting(self, session_id: str) -> list[InboxEntry]:
        return await self._few(read_inbox, "inbox.waiting", (session_id,))

    async def sessions_waiting(self) -> list[str]:
        return await self._list(lambda row: str(row["session_id"]), "inbox.sessions_waiting")

    async def mark_answered(self, turn_id: str) -> int:
        return await self._write(lambda db: change(db, "inbox.mark_answered", (turn_id,)))

    async def asked_before(self, entry: InboxEntry, since: float) -> list[int]:
        message = entry.message
        values = {
            "id": entry.id,
            "since": since,
            "platform": message.platform,
            "account": message.account,
            "chat_id": message.chat.id,
            "session_id": entry.session_id,
        }
        return await self._few(lambda row: int(row["id"]), "inbox.asked_before", values)

    async def unanswered(self, platforms: Sequence[str]) -> list[InboxEntry]:
        return await self._list(read_inbox, "inbox.unanswered", (dump(list(platforms)),))

    async def entry(self, inbox_id: int) -> InboxEntry | None:
        return await self._get(read_inbox, "inbox.get", (inbox_id,))

    async def entries_of_turn(self, turn_id: str) -> list[InboxEntry]:
        return await self._few(read_inbox, "inbox.of_turn", (turn_id,))

    @transaction
    def drop(self, db: Connection, inbox_ids: Sequence[int], reason: str) -> None:
        # What a turn has taken already stays taken.
        for inbox_id in inbox_ids:
            change(db, "inbox.drop", (reason, inbox_id))


class OutboxPart(LedgerPart):
    @transaction
    def enqueue(self, db: Connection, entry: OutboxEntry) -> OutboxEntry:
        change(db, "outbox.insert", columns(entry) | columns(entry.target))
        return read_outbox(row_of(db, "outbox.get", (entry.id,)))

    async def outbox_entry(self, entry_id: str) -> OutboxEntry | None:
        return await self._get(read_outbox, "outbox.get", (entry_id,))

    async def claim_send(self, entry_id: str, at: float) -> OutboxEntry | None:
        return await self._change(read_outbox, "outbox.claim", {"id": entry_id, "at": at})

    async def update_outbox(
        self,
        entry_id: str,
        *,
        state: OutboxState,
        at: float,
        native_id: str | None = None,
        content: str | None = None,
        error: str | None = None,
    ) -> OutboxEntry:
        values = {
            "id": entry_id,
            "state": state,
            "at": at,
            "native_id": native_id,
            "content": content and clean_text(content),
            "error": error and clean_text(error),
        }
        found = await self._change(read_outbox, "outbox.update", values)
        if found is None:
            raise NotFound(
                f"There is no outbox entry `{entry_id}`.", hint="Its session may have been deleted."
            )
        return found

    async def outbox_of_turn(self, turn_id: str) -> list[OutboxEntry]:
        return await self._few(read_outbox, "outbox.of_turn", (turn_id,))

    async def outbox(self, states: Sequence[OutboxState], *, limit: int = 100) -> list[OutboxEntry]:
        values = {"states": dump(list(states)), "limit": limit}
        return await self._list(read_outbox, "outbox.in_states", values)

    async def seen_in_chat(self, target: Target, account: str) -> dict[str, float]:
        values = {"platform": target.platform, "account": account, "chat_id": target.chat_id}
        return dict(await self._list(tuple, "outbox.seen_in_chat", values))


def admit(db: Connection, arrival: Arrival, text: str) -> Admission:
    """Commit a message, of which `text` is the stored form, unless it is known."""
    message = arrival.message
    native = (message.platform, message.account, message.native_id)
    known = one(db, "inbox.by_native", native)
    state = InboxState.DROPPED if arrival.handled_as else arrival.state
    queued = InboxState.QUEUED
    if known is not None and (state is queued or known["state"] != queued):
        return Admission(entry=read_inbox(known), duplicate=True)
    check_session(db, arrival.session_id)
    values = asdict(message) | asdict(arrival) | {"message": text, "state": state}
    entry = read_inbox(row_of(db, "inbox.insert" if known is None else "inbox.dequeue", values))
    return Admission(entry=entry, duplicate=False)


def take_entries(db: Connection, session_id: str, turn_id: str, inbox_ids: Sequence[int]) -> None:
    """Give waiting entries to a turn; all of them or none."""
    values = {"session_id": session_id, "turn_id": turn_id}
    gone = [i for i in inbox_ids if not change(db, "inbox.take", values | {"id": i})]
    if gone:
        raise Conflict(
            f"Inbox entries are no longer waiting in this session: {', '.join(map(str, gone))}.",
            hint="Read the inbox again; another turn has taken them.",
        )
