"""Sessions, their titles, remembered facts and the keys that point at them."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hermes.domain.approvals import ApprovalState, Choice
from hermes.domain.inbound import InboxState
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.state import SessionQuery
from hermes.domain.session import Lineage, NewSession, Session, StoredMessage
from hermes.state.memory.handed import HandedPart
from hermes.state.refusals import ambiguous, id_taken, session_busy, title_taken
from hermes.state.titles import clean_title, numbered, title_scope

__all__ = ["SessionPart"]


class SessionPart(HandedPart):
    """Implements `SessionStore`."""

    async def create_session(self, new: NewSession) -> Session:
        """Open a session; `Conflict` if the id or the title is taken."""
        return self._insert(new)

    async def session(self, session_id: str) -> Session | None:
        """Return one session by its exact id."""
        return self._tables.sessions.get(session_id)

    async def find_session(self, reference: str) -> Session | None:
        """Find by id, by title (the most recently used continuation), or by id prefix."""
        wanted = reference.strip()
        if not wanted:
            return None
        if wanted in self._tables.sessions:
            return self._tables.sessions[wanted]
        title = re.compile(re.escape(wanted) + r"( #[0-9]+)?")
        newest_first = self._newest_first()
        for session in newest_first:
            if session.title is not None and title.fullmatch(session.title):
                return session
        begins = [session for session in newest_first if session.id.startswith(wanted)]
        if len(begins) > 1:
            raise ambiguous(wanted)
        return begins[0] if begins else None

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """List sessions, most recently used first."""
        return self._matching(query)

    async def freeze_prompt(self, session_id: str, prompt: str) -> str:
        """Store the system prompt if there is none yet; return the stored one."""
        stored = self._session(session_id).system_prompt
        if stored is None:
            self._change_session(session_id, system_prompt=prompt)
            return prompt
        return stored

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Set the title a person chose; `Conflict` if it is taken."""
        wanted = clean_title(title)
        self._check_title_free(self._session(session_id), wanted)
        return self._change_session(session_id, title=wanted)

    async def name_session(self, session_id: str, title: str) -> Session:
        """Title a session that has none, numbering the title if it is taken."""
        wanted = clean_title(title)
        current = self._session(session_id)
        if current.title is not None:
            return current
        taken = self._titles_beside(current)
        free, number = wanted, 1
        while free in taken:
            number += 1
            free = numbered(wanted, number)
        return self._change_session(session_id, title=free)

    async def update_session(
        self,
        session_id: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Change what a later turn of the session will use."""
        wanted = {"model": model, "provider": provider, "cwd": cwd}
        return self._change_session(
            session_id, **{name: value for name, value in wanted.items() if value is not None}
        )

    async def end_session(self, session_id: str, reason: str, at: float) -> None:
        """Mark the session as ended."""
        updated_at = max(self._session(session_id).updated_at, at)
        self._change_session(session_id, ended_at=at, end_reason=reason, updated_at=updated_at)

    async def branch_session(self, session_id: str, new: NewSession) -> Session:
        """Open `new` with a copy of the active history and the frozen prompt.

        A turn that is still open stays with the origin.
        """
        origin = self._session(session_id)
        open_turn = self._open_turn_of(session_id)
        self._insert(
            msgspec.structs.replace(
                new, parent_id=new.parent_id or session_id, lineage=new.lineage or Lineage.BRANCH
            )
        )
        copied = [
            m
            for m in self._messages_of(session_id)
            if m.active and (open_turn is None or m.turn_id != open_turn.id)
        ]
        self._copy(origin, new.id, copied, self._tables.next_seq[session_id])
        calls = self._waiting_calls(session_id)
        self._answer_copies(new.id, calls, (), new.started_at)
        return self._session(new.id)

    async def delete_session(self, session_id: str, *, idle: bool = False) -> bool:
        """Delete a session and all that belongs to it; False if unknown.

        Runs go with their logs, except those that are open: whoever follows
        them still has to be told their end. With `idle`, `SessionBusy` if it
        has an open turn or run, or anything waiting.
        """
        if idle and self._is_busy(session_id):
            raise session_busy(session_id)
        return self._delete(session_id)

    def _is_busy(self, session_id: str) -> bool:
        tables = self._tables
        runs = (run for run in tables.runs.values() if run.session_id == session_id)
        entries = (each for each in tables.inbox.values() if each.session_id == session_id)
        return (
            self._open_turn_of(session_id) is not None
            or any(run.outcome is None for run in runs)
            or any(each.state is InboxState.WAITING for each in entries)
        )

    async def prune_sessions(self, query: SessionQuery) -> int:
        """Delete all matching sessions that have no open turn; return how many."""
        idle = [s.id for s in self._matching(query) if self._open_turn_of(s.id) is None]
        return sum(self._delete(session_id) for session_id in idle)

    async def remember(self, session_id: str, name: str, value: Any) -> None:
        """Keep a small JSON-able fact with the session; None removes it."""
        plain = msgspec.json.decode(msgspec.json.encode(value))
        state = dict(self._session(session_id).state)
        state.pop(name, None)
        if plain is not None:
            state[name] = plain
        self._change_session(session_id, state=state)

    async def recall(self, session_id: str, name: str) -> Any:
        """Return a remembered fact, or None."""
        session = self._tables.sessions.get(session_id)
        return None if session is None else session.state.get(name)

    async def bind_key(self, key: str, session_id: str, at: float) -> None:  # noqa: ARG002
        """Point a session key at a session."""
        self._session(session_id)
        self._tables.keys[key] = session_id

    async def session_for_key(self, key: str) -> Session | None:
        """Return the session a key points at."""
        session_id = self._tables.keys.get(key)
        return None if session_id is None else self._tables.sessions[session_id]

    def _insert(self, new: NewSession) -> Session:
        title = self._check_insertable(new)
        values = msgspec.structs.asdict(new) | {"title": title}
        session = Session(updated_at=new.started_at, **values)
        self._tables.sessions[new.id] = session
        self._tables.next_seq[new.id] = 1
        return session

    def _check_insertable(self, new: NewSession) -> str | None:
        """Refuse an id or a title that is taken; return the title as it will be."""
        title = None if new.title is None else clean_title(new.title)
        if new.id in self._tables.sessions:
            raise id_taken("session", new.id)
        if title is not None:
            self._check_title_free(new, title)
        if new.parent_id is not None:
            self._session(new.parent_id)
        return title

    def _copy(
        self, origin: Session, branch_id: str, messages: Sequence[StoredMessage], next_seq: int
    ) -> Session:
        """Give a new session the prompt and some messages of its origin."""
        copied = [
            self._put(m.message, session_id=branch_id, turn_id=None, seq=m.seq, at=m.at)
            for m in messages
        ]
        self._tables.next_seq[branch_id] = next_seq
        replies = (m.message for m in copied if isinstance(m.message, AssistantMessage))
        return self._change_session(
            branch_id,
            system_prompt=origin.system_prompt,
            preview=origin.preview,
            message_count=len(copied),
            tool_call_count=sum(len(reply.tool_calls) for reply in replies),
        )

    def _titles_beside(self, session: Session | NewSession) -> set[str | None]:
        scope = title_scope(session.source, session.user_id)
        return {
            other.title
            for other in self._tables.sessions.values()
            if other.id != session.id and title_scope(other.source, other.user_id) == scope
        }

    def _check_title_free(self, session: Session | NewSession, title: str) -> None:
        if title in self._titles_beside(session):
            raise title_taken(title)

    def _newest_first(self) -> list[Session]:
        opened = reversed(self._tables.sessions.values())
        return sorted(opened, key=lambda session: -session.updated_at)

    def _matching(self, query: SessionQuery) -> list[Session]:
        found = [session for session in self._newest_first() if _fits(session, query)]
        end = None if query.limit is None else query.offset + query.limit
        return found[query.offset : end]

    def _delete(self, session_id: str) -> bool:
        tables = self._tables
        if tables.sessions.pop(session_id, None) is None:
            return False
        del tables.next_seq[session_id]
        gone = {turn.id for turn in tables.turns.values() if turn.session_id == session_id}
        tables.keys = {k: s for k, s in tables.keys.items() if s != session_id}
        tables.messages = {
            i: message for i, message in tables.messages.items() if message.session_id != session_id
        }
        tables.turns = {i: turn for i, turn in tables.turns.items() if i not in gone}
        tables.handed -= gone
        tables.turn_ends = {i: end for i, end in tables.turn_ends.items() if i not in gone}
        tables.seats = {key: seat for key, seat in tables.seats.items() if key[0] not in gone}
        tables.outbox = {i: e for i, e in tables.outbox.items() if e.session_id != session_id}
        tables.approvals = {
            i: approval
            for i, approval in tables.approvals.items()
            if approval.request.session_id != session_id
            or (
                approval.state is ApprovalState.APPROVED
                and approval.decision is not None
                and approval.decision.choice is Choice.ALWAYS
            )
        }
        ended = [r.id for r in tables.runs.values() if r.session_id == session_id and r.outcome]
        for run_id in ended:
            self._forget_run(run_id)
        self._detach(session_id)
        return True

    def _detach(self, session_id: str) -> None:
        """Keep what outlives the session: that it was seen, and what it cost."""
        tables = self._tables
        for child in [s for s in tables.sessions.values() if s.parent_id == session_id]:
            self._change_session(child.id, parent_id=None)
        for entry in [e for e in tables.inbox.values() if e.session_id == session_id]:
            bare = msgspec.structs.replace(
                entry.message,
                text="",
                attachments=(),
                reply_to=None,
                context="",
                options=None,
                results=(),
            )
            changed = msgspec.structs.replace(entry, message=bare)
            if entry.state is InboxState.WAITING:
                changed = msgspec.structs.replace(
                    changed, state=InboxState.DROPPED, drop_reason="session deleted"
                )
            tables.inbox[entry.id] = changed
        tables.usage = [
            msgspec.structs.replace(record, session_id=None, turn_id=None)
            if record.session_id == session_id
            else record
            for record in tables.usage
        ]


def _fits(session: Session, query: SessionQuery) -> bool:
    exact = ("agent_id", "source", "model", "user_id", "cwd")
    wanted = {name: getattr(query, name) for name in exact}
    checks = (
        all(v is None or getattr(session, name) == v for name, v in wanted.items()),
        session.source not in query.exclude_sources,
        session.lineage not in query.exclude_lineages,
        query.title is None or query.title.casefold() in (session.title or "\0").casefold(),
        query.started_before is None or session.started_at < query.started_before,
        query.started_after is None or session.started_at > query.started_after,
        query.updated_before is None or session.updated_at < query.updated_before,
        query.ended is None or (session.ended_at is not None) == query.ended,
        query.min_messages is None or session.message_count >= query.min_messages,
        query.max_messages is None or session.message_count <= query.max_messages,
    )
    return all(checks)
