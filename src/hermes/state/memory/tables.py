"""What the in-memory ledger holds, and the small helpers its parts share."""

from collections.abc import Sequence
from itertools import count

import msgspec
from msgspec import Struct

from hermes.domain.approvals import Approval
from hermes.domain.inbound import InboxEntry
from hermes.domain.jobs import Instant
from hermes.domain.keys import ApiKey
from hermes.domain.messages import InputKind, Message, UserMessage, content_text
from hermes.domain.outbound import OutboxEntry
from hermes.domain.runs import LoggedEvent, Run
from hermes.domain.session import Session, StoredMessage
from hermes.domain.turn import Turn
from hermes.domain.usage import UsageRecord
from hermes.domain.webhooks import HookDelivery
from hermes.state.refusals import turn_ended, unknown_session, unknown_turn
from hermes.state.titles import preview

__all__ = ["End", "MemoryPart", "Seat", "Tables"]


class Seat(Struct):
    """Where the result of a call goes."""

    seq: int
    started: bool = False


class End(Struct, frozen=True):
    """How far a history went: its last seat, and the last message there was."""

    seq: int
    message_id: int


class Tables:
    """Everything, by id; dicts keep the order of insertion."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.next_seq: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        self.messages: dict[int, StoredMessage] = {}
        self.compacted: set[int] = set()
        self.message_ids = count(1)
        self.turns: dict[str, Turn] = {}
        self.handed: set[str] = set()
        self.turn_ends: dict[str, End] = {}
        self.seats: dict[tuple[str, str], Seat] = {}
        self.inbox: dict[int, InboxEntry] = {}
        self.inbox_ids = count(1)
        self.by_native: dict[tuple[str, str, str], int] = {}
        self.outbox: dict[str, OutboxEntry] = {}
        self.approvals: dict[str, Approval] = {}
        self.usage: list[UsageRecord] = []
        self.facts: dict[str, bytes] = {}
        self.runs: dict[str, Run] = {}
        self.run_ends: dict[str, End] = {}
        self.fingerprints: dict[str, str] = {}
        self.last_events: dict[str, int] = {}
        self.run_logs: dict[str, list[LoggedEvent]] = {}
        self.api_keys: dict[str, ApiKey] = {}
        self.instants: dict[tuple[str, float], Instant] = {}
        self.hooks: dict[tuple[str, str], HookDelivery] = {}


class MemoryPart:
    """A group of verbs over the shared tables.

    No method awaits anything, so each is one step that nothing interrupts;
    each checks everything before it changes anything.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def _session(self, session_id: str) -> Session:
        found = self._tables.sessions.get(session_id)
        if found is None:
            raise unknown_session(session_id)
        return found

    def _change_session(self, session_id: str, **values: object) -> Session:
        changed = msgspec.structs.replace(self._session(session_id), **values)
        self._tables.sessions[session_id] = changed
        return changed

    def _open_turn(self, turn_id: str) -> Turn:
        found = self._tables.turns.get(turn_id)
        if found is None:
            raise unknown_turn(turn_id)
        if found.finished_at is not None:
            raise turn_ended(turn_id)
        return found

    def _open_turn_of(self, session_id: str) -> Turn | None:
        turns = self._tables.turns.values()
        open_turns = (t for t in turns if t.session_id == session_id and t.finished_at is None)
        return next(open_turns, None)

    def _touch(self, turn: Turn, at: float) -> None:
        changed = msgspec.structs.replace(turn, updated_at=max(turn.updated_at, at))
        self._tables.turns[turn.id] = changed

    def _take_seats(
        self, session_id: str, at: float, *, seats: int, messages: Sequence[Message]
    ) -> int:
        """Advance the seats and counters of a session; return the first seat taken."""
        session = self._session(session_id)
        first = self._tables.next_seq[session_id]
        self._tables.next_seq[session_id] = first + seats
        self._change_session(
            session_id,
            message_count=session.message_count + len(messages),
            updated_at=max(session.updated_at, at),
            preview=session.preview or _preview_of(messages),
        )
        return first

    def _put(
        self, message: Message, *, session_id: str, turn_id: str | None, seq: int, at: float
    ) -> StoredMessage:
        stored = StoredMessage(
            id=next(self._tables.message_ids),
            session_id=session_id,
            turn_id=turn_id,
            seq=seq,
            at=at,
            message=message,
        )
        self._tables.messages[stored.id] = stored
        return stored

    def _forget_run(self, run_id: str) -> bool:
        tables = self._tables
        tables.run_ends.pop(run_id, None)
        tables.fingerprints.pop(run_id, None)
        tables.last_events.pop(run_id, None)
        tables.run_logs.pop(run_id, None)
        return tables.runs.pop(run_id, None) is not None

    def _end_of_session(self, session_id: str) -> End:
        newest = next(reversed(self._tables.messages), 0)
        return End(self._tables.next_seq[session_id] - 1, newest)

    def _messages_of(self, session_id: str) -> list[StoredMessage]:
        found = (m for m in self._tables.messages.values() if m.session_id == session_id)
        return sorted(found, key=lambda m: (m.seq, m.id))


def _preview_of(messages: Sequence[Message]) -> str:
    for message in messages:
        if isinstance(message, UserMessage) and message.kind is InputKind.USER:
            return preview(content_text(message.content))
    return ""
