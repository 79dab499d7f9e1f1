"""How a run is opened: its session, the admission of its message and its row together."""

import msgspec

from hermes.domain.messages import AssistantMessage, InputKind, UserMessage
from hermes.domain.ports.state import Arrival
from hermes.domain.runs import NewRun, OpenedRun, Run
from hermes.domain.session import Lineage, NewSession, StoredMessage
from hermes.state.memory.inbox import InboxPart
from hermes.state.memory.sessions import SessionPart
from hermes.state.refusals import id_taken, idempotency_mismatch, run_open, unknown_run

__all__ = ["RunOpeningPart"]


class RunOpeningPart(SessionPart, InboxPart):
    """Opens runs."""

    def _open_run(self, new: NewRun) -> OpenedRun:
        found = self._found(new)
        if found is not None:
            return found
        if new.id in self._tables.runs:
            raise id_taken("run", new.id)
        self._check_choice(new)
        message = new.message
        if (message.platform, message.account, message.native_id) in self._tables.by_native:
            raise id_taken("message", message.native_id)
        session_id, branched = self._choose(new)
        arrival = Arrival(
            agent_id=new.agent_id,
            session_key=new.session_key,
            session_id=session_id,
            message=message,
            at=new.at,
        )
        entry = self._admit(arrival).entry
        run = Run(
            id=new.id,
            kind=new.kind,
            key_id=new.key_id,
            agent_id=new.agent_id,
            session_id=session_id,
            inbox_id=entry.id,
            request=msgspec.json.decode(msgspec.json.encode(new.request)),
            idempotency_key=new.idempotency_key,
            logged=new.logged,
            created_at=new.at,
            updated_at=new.at,
            previous_id=new.choice.after_run,
            branched=branched,
        )
        self._tables.runs[run.id] = run
        self._tables.fingerprints[run.id] = new.fingerprint
        return OpenedRun(run=run, entry=entry)

    def _joined(self, run: Run) -> Run:
        """Return the run with the turn that has taken its message."""
        return msgspec.structs.replace(run, turn_id=self._tables.inbox[run.inbox_id].turn_id)

    def _under(self, key_id: str, idempotency_key: str) -> Run | None:
        for run in self._tables.runs.values():
            if (run.key_id, run.idempotency_key) == (key_id, idempotency_key):
                return run
        return None

    def _found(self, new: NewRun) -> OpenedRun | None:
        if new.idempotency_key is None:
            return None
        found = self._under(new.key_id, new.idempotency_key)
        if found is None:
            return None
        if self._tables.fingerprints[found.id] != new.fingerprint:
            raise idempotency_mismatch(new.idempotency_key)
        entry = self._tables.inbox[found.inbox_id]
        return OpenedRun(run=self._joined(found), entry=entry, duplicate=True)

    def _check_choice(self, new: NewRun) -> None:
        """Refuse what cannot be, before anything is changed."""
        choice = new.choice
        if choice.session_id is not None:
            self._session(choice.session_id)
        elif choice.after_run is not None:
            earlier = self._tables.runs.get(choice.after_run)
            if earlier is None:
                raise unknown_run(choice.after_run)
            if earlier.outcome is None:
                raise run_open(choice.after_run)
            self._session(earlier.session_id)
            if not self._is_free(earlier):
                self._check_insertable(_branch_of(new, earlier))
        elif choice.key is None or choice.key not in self._tables.keys:
            self._check_insertable(new.session)

    def _choose(self, new: NewRun) -> tuple[str, bool]:
        """Return the session of the run, and whether it is a branch made for it."""
        choice = new.choice
        if choice.session_id is not None:
            return choice.session_id, False
        if choice.after_run is not None:
            earlier = self._tables.runs[choice.after_run]
            if self._is_free(earlier):
                return earlier.session_id, False
            self._branch(new, earlier)
            return new.session.id, True
        if choice.key is None:
            return self._own_session(new), False
        bound = self._tables.keys.get(choice.key)
        if bound is None:
            bound = self._tables.keys[choice.key] = self._own_session(new)
        return bound, False

    def _own_session(self, new: NewRun) -> str:
        session_id, said = new.session.id, new.history
        self._insert(new.session)
        if not said:
            return session_id
        first = self._take_seats(session_id, new.at, seats=len(said), messages=said)
        for seq, message in enumerate(said, start=first):
            self._put(message, session_id=session_id, turn_id=None, seq=seq, at=new.at)
        replies = (message for message in said if isinstance(message, AssistantMessage))
        calls = sum(len(reply.tool_calls) for reply in replies)
        self._change_session(session_id, tool_call_count=calls)
        return session_id

    def _is_free(self, earlier: Run) -> bool:
        """Tell whether a run can go on in its session: nothing said since, nothing under way."""
        session_id = earlier.session_id
        return (
            self._tables.next_seq[session_id] - 1 == earlier.through_seq
            and self._open_turn_of(session_id) is None
            and not any(entry.session_id == session_id for entry in self._waiting())
            and not any(
                run.previous_id == earlier.id and not run.branched
                for run in self._tables.runs.values()
            )
        )

    def _branch(self, new: NewRun, earlier: Run) -> None:
        assert earlier.through_seq is not None
        origin = self._session(earlier.session_id)
        through_id = self._tables.run_ends[earlier.id].message_id
        unanswered = self._unanswered(origin.id, through_id)
        kept = self._left_by_then(origin.id, through_id)
        self._insert(_branch_of(new, earlier))
        self._copy(origin, new.session.id, kept, earlier.through_seq + 1)
        self._answer_copies(new.session.id, unanswered, new.message.results, new.at)

    def _left_by_then(self, session_id: str, through_id: int) -> list[StoredMessage]:
        """Return the history when a message was the last one; what was undone stays undone."""
        there = [m for m in self._messages_of(session_id) if m.id <= through_id]
        summaries = [m for m in there if _is_summary(m)]
        return [
            m
            for m in there
            if (m.active or m.id in self._tables.compacted)
            and not any(s.id > m.id and s.seq >= m.seq for s in summaries)
        ]


def _branch_of(new: NewRun, earlier: Run) -> NewSession:
    return msgspec.structs.replace(
        new.session, parent_id=earlier.session_id, lineage=Lineage.BRANCH
    )


def _is_summary(stored: StoredMessage) -> bool:
    message = stored.message
    return isinstance(message, UserMessage) and message.kind is InputKind.SUMMARY
