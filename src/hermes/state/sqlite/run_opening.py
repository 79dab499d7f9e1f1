"""How a run is opened: its session, the admission of its message and its row together.

A run that goes on from another one claims the end of it. The first to come
goes on in the session, provided that nothing has been said there since and
nothing is under way; everybody else gets a branch with the history as that
run left it.
"""

import sqlite3

import msgspec

from hermes.domain.ports.ledger import Arrival
from hermes.domain.runs import NewRun, OpenedRun, Run
from hermes.domain.session import Lineage
from hermes.state.refusals import id_taken, idempotency_mismatch, run_open, unknown_run
from hermes.state.sqlite import codec
from hermes.state.sqlite.handed import answer_copies
from hermes.state.sqlite.inbox import admit
from hermes.state.sqlite.part import change, one
from hermes.state.sqlite.run_codec import read_run
from hermes.state.sqlite.seats import put, take_seats
from hermes.state.sqlite.sessions import check_session, insert_session

__all__ = ["RunOpening"]


class RunOpening:
    """One transaction that opens a run, or finds it under its idempotency key."""

    def __init__(self, new: NewRun) -> None:
        self._new = new
        # Encoded here, on the caller's thread: the writer serves everybody.
        self._message = codec.dump(new.message)
        self._request = codec.dump(new.request)

    def __call__(self, connection: sqlite3.Connection) -> OpenedRun:
        """Do it."""
        new = self._new
        found = self._found(connection)
        if found is not None:
            return found
        if one(connection, "runs.exists", (new.id,)):
            raise id_taken("run", new.id)
        session_id, branched = self._session(connection)
        arrival = Arrival(
            agent_id=new.agent_id,
            session_key=new.session_key,
            session_id=session_id,
            message=new.message,
            at=new.at,
        )
        admission = admit(connection, arrival, self._message)
        if admission.duplicate:
            raise id_taken("message", new.message.native_id)
        columns = self._columns(session_id, admission.entry.id, branched=branched)
        change(connection, "runs.insert", columns)
        row = one(connection, "runs.get", (new.id,))
        assert row is not None
        return OpenedRun(run=read_run(row), entry=admission.entry)

    def _found(self, connection: sqlite3.Connection) -> OpenedRun | None:
        new = self._new
        if new.idempotency_key is None:
            return None
        row = one(connection, "runs.under", (new.key_id, new.idempotency_key))
        if row is None:
            return None
        if row["fingerprint"] != new.fingerprint:
            raise idempotency_mismatch(new.idempotency_key)
        entry = one(connection, "inbox.get", (row["inbox_id"],))
        assert entry is not None
        return OpenedRun(run=read_run(row), entry=codec.inbox_entry(entry), duplicate=True)

    def _session(self, connection: sqlite3.Connection) -> tuple[str, bool]:
        """Return the session of the run, and whether it is a branch made for it."""
        choice = self._new.choice
        if choice.session_id is not None:
            check_session(connection, choice.session_id)
            return choice.session_id, False
        if choice.after_run is not None:
            return self._go_on(connection, choice.after_run)
        if choice.key is None:
            return self._own_session(connection), False
        bound = one(connection, "sessions.id_for_key", (choice.key,))
        if bound is not None:
            return str(bound["session_id"]), False
        session_id = self._own_session(connection)
        change(connection, "sessions.bind_key", (choice.key, session_id, self._new.at))
        return session_id, False

    def _own_session(self, connection: sqlite3.Connection) -> str:
        new = self._new
        insert_session(connection, new.session)
        session_id, said = new.session.id, new.history
        if said:
            first = take_seats(connection, session_id, new.at, seats=len(said), messages=said)
            for seq, message in enumerate(said, start=first):
                put(connection, message, session_id=session_id, turn_id=None, seq=seq, at=new.at)
        return session_id

    def _go_on(self, connection: sqlite3.Connection, run_id: str) -> tuple[str, bool]:
        row = one(connection, "runs.get", (run_id,))
        if row is None:
            raise unknown_run(run_id)
        earlier = read_run(row)
        if earlier.outcome is None:
            raise run_open(run_id)
        check_session(connection, earlier.session_id)
        if one(connection, "runs.is_free", (run_id,)):
            return earlier.session_id, False
        self._branch(connection, earlier, row["through_id"])
        return self._new.session.id, True

    def _branch(self, connection: sqlite3.Connection, earlier: Run, through_id: int) -> None:
        new = self._new
        assert earlier.through_seq is not None
        child = msgspec.structs.replace(
            new.session, parent_id=earlier.session_id, lineage=Lineage.BRANCH
        )
        insert_session(connection, child)
        values = {"from": earlier.session_id, "to": child.id, "through_id": through_id}
        change(connection, "sessions.copy_prompt", values)
        change(connection, "runs.copy_messages", values)
        change(connection, "sessions.copy_counters", values)
        change(connection, "runs.set_next_seat", (earlier.through_seq + 1, child.id))
        answer_copies(connection, values | {"handed": None}, new.message.results, new.at)

    def _columns(self, session_id: str, inbox_id: int, *, branched: bool) -> dict[str, object]:
        new = self._new
        return {
            "id": new.id,
            "kind": new.kind.value,
            "key_id": new.key_id,
            "agent_id": new.agent_id,
            "session_id": session_id,
            "inbox_id": inbox_id,
            "request": self._request,
            "idempotency_key": new.idempotency_key,
            "fingerprint": new.fingerprint,
            "logged": new.logged,
            "at": new.at,
            "previous_id": new.choice.after_run,
            "branched": branched,
        }
