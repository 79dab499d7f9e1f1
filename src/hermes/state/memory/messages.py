"""The history of sessions: reading, undoing, compacting and searching it."""

import msgspec

from hermes.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage, content_text
from hermes.domain.ports.state import SearchHit, SearchQuery
from hermes.domain.session import StoredMessage
from hermes.state.memory.tables import MemoryPart
from hermes.state.refusals import nothing_to_compact, turn_open
from hermes.state.search_text import (
    MAX_CANDIDATES,
    MAX_SEARCHED,
    Plan,
    calls_text,
    fold,
    plans_for,
    score,
    snippet,
)

__all__ = ["MessagePart"]


class MessagePart(MemoryPart):
    """Implements `MessageStore`."""

    async def history(self, session_id: str) -> list[StoredMessage]:
        """Return the active messages in order: what the model is shown."""
        return [message for message in self._messages_of(session_id) if message.active]

    async def transcript(self, session_id: str) -> list[StoredMessage]:
        """Return every message in order, also undone and compacted ones."""
        return self._messages_of(session_id)

    async def rewind(self, session_id: str, seq: int) -> int:
        """Deactivate the messages from `seq` on; return how many."""
        self._session(session_id)
        if self._open_turn_of(session_id) is not None:
            raise turn_open(session_id)
        undone = [m for m in self._messages_of(session_id) if m.active and m.seq >= seq]
        self._deactivate(undone)
        return len(undone)

    async def compact(
        self, session_id: str, through_seq: int, summary: UserMessage
    ) -> StoredMessage:
        """Replace the active messages up to `through_seq` by `summary`, in one step."""
        self._session(session_id)
        covered = [m for m in self._messages_of(session_id) if m.active and m.seq <= through_seq]
        if not covered:
            raise nothing_to_compact(session_id)
        self._deactivate(covered)
        self._tables.compacted.update(message.id for message in covered)
        last = covered[-1]
        self._take_seats(session_id, last.at, seats=0, messages=[summary])
        return self._put(summary, session_id=session_id, turn_id=None, seq=last.seq, at=last.at)

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Search all messages, in any language, by words or by substring."""
        for plan in plans_for(query.text):
            if hits := self._search(plan, query):
                return hits
        return []

    async def rebuild_index(self) -> int:
        """Return how many messages there are; nothing is indexed here."""
        return len(self._tables.messages)

    def _deactivate(self, messages: list[StoredMessage]) -> None:
        for message in messages:
            self._tables.messages[message.id] = msgspec.structs.replace(message, active=False)

    def _search(self, plan: Plan, query: SearchQuery) -> list[SearchHit]:
        found: list[tuple[StoredMessage, str, str]] = []
        for message in reversed(self._tables.messages.values()):
            text = _search_text(message.message)
            folded = fold(text)
            if self._fits(message, query) and plan.matches(folded):
                found.append((message, text, folded))
        found = found[: max(MAX_CANDIDATES, query.limit)]
        if not query.newest_first:
            found.sort(key=lambda hit: -score(plan, hit[2]))
        return [self._hit(plan, *hit) for hit in found[: max(0, query.limit)]]

    def _fits(self, message: StoredMessage, query: SearchQuery) -> bool:
        session = self._tables.sessions[message.session_id]
        return (
            query.session_id in (None, session.id)
            and query.agent_id in (None, session.agent_id)
            and query.user_id in (None, session.user_id)
            and session.id not in query.exclude_session_ids
            and session.source not in query.exclude_sources
            and (not query.roles or _role(message.message) in query.roles)
        )

    def _hit(self, plan: Plan, message: StoredMessage, text: str, folded: str) -> SearchHit:
        session = self._tables.sessions[message.session_id]
        return SearchHit(
            session_id=session.id,
            title=session.title,
            source=session.source,
            message_id=message.id,
            seq=message.seq,
            role=_role(message.message),
            at=message.at,
            snippet=snippet(plan, text, folded),
        )


def _role(message: Message) -> str:
    match message:
        case UserMessage():
            return "user"
        case AssistantMessage():
            return "assistant"
        case ToolMessage():
            return "tool"


def _search_text(message: Message) -> str:
    return _said(message)[:MAX_SEARCHED] + "  "


def _said(message: Message) -> str:
    match message:
        case UserMessage():
            return content_text(message.content)
        case AssistantMessage(tool_calls=()):
            return message.text
        case AssistantMessage():
            return f"{message.text} {calls_text(message)}"
        case ToolMessage():
            return f"{content_text(message.content)} {message.name}"
