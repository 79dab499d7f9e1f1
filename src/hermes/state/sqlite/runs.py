"""Runs over HTTP and their event logs.

A run is opened in one transaction: its session, the admission of its message and its
row. A run that goes on from another one claims the end of it. The first to come goes on
in the session, provided that nothing has been said there since and nothing is under way;
everybody else gets a branch with the history as that run left it.

A web chat sends everything with each request, and hardly anybody asks for an earlier request
of it any more. So an ordinary one that another continues is folded into its session with its
turn: what was said is in the history, and its id and the place where it ended are kept with
the last message of the answer (`messages.turn_id` or, if there is more of the turn,
`messages.run`; `messages.ends`), from which it can be told. What such turns spent is kept by
the hour.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from sqlite3 import Connection, Row
from typing import Any

import msgspec

from hermes.domain.errors import Conflict, NotFound
from hermes.domain.events import TurnEvent
from hermes.domain.ports.ledger import Arrival
from hermes.domain.runs import (
    RETRIED_WITHIN,
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunKind,
    RunOutcome,
    RunQuery,
    RunState,
    SessionChoice,
)
from hermes.domain.session import Lineage, Opening
from hermes.state.sqlite.base import LedgerPart, change, check_session, many, one, row_of
from hermes.state.sqlite.delivery import admit, read_inbox
from hermes.state.sqlite.errors import id_taken
from hermes.state.sqlite.messages import answer_copies, put_all, waiting_session
from hermes.state.sqlite.rows import columns, dump, read_message, reader
from hermes.state.sqlite.run_ends import RunEnd, append_events
from hermes.state.sqlite.sessions import insert_session, read_session
from hermes.state.sqlite.turns import begin, settle_usage

AT_ONCE = 200
"""Runs that are pruned: other writers get their turn between two batches."""

SAME_QUESTION = 20
"""Runs that are looked at: answers to one question, asked again and again."""

read_row = reader(Run, json={"request": dict[str, Any], "outcome": RunOutcome})
read_event = reader(LoggedEvent, json={"event": TurnEvent})


def read_run(row: Row) -> Run:
    run = read_row(row)
    if run.outcome is None or row["said"] is None:
        return run
    outcome = msgspec.structs.replace(run.outcome, text=row["said"])
    return msgspec.structs.replace(run, outcome=outcome)


class RunPart(LedgerPart):
    async def open_run(self, new: NewRun) -> OpenedRun:
        return await self._write(RunOpening(new))

    async def run(self, run_id: str) -> Run | None:
        return await self._quick(lambda db: _find(db, run_id))

    async def runs(self, query: RunQuery) -> list[Run]:
        last = -1 if query.limit is None else query.limit + query.offset
        values = columns(query) | {"limit": last, "offset": 0}

        def work(db: Connection) -> list[Run]:
            found = [read_run(row) for row in many(db, _listing(query), values)]
            if not _only_open(query):
                found += map(_folded_run, many(db, "runs.ends_matching", values))
                found.sort(key=lambda run: -run.created_at)
            return found[query.offset :][: query.limit]

        return await self._read(work)

    async def run_under(self, key_id: str, idempotency_key: str) -> Run | None:
        return await self._get(read_run, "runs.under", (key_id, idempotency_key))

    async def note_delivery(self, run_id: str) -> None:
        await self._write(lambda db: change(db, "runs.note_delivery", (run_id,)))

    async def runs_retried(
        self, key_id: str, fingerprint: str, at: float, *, since: float = 0.0
    ) -> list[Run]:
        values = {"key_id": key_id, "fingerprint": fingerprint, "at": at, "since": since}
        values["ended_since"] = at - RETRIED_WITHIN
        return await self._list(read_run, "runs.retried", values)

    async def runs_after(self, key_id: str, agent_id: str, digest: str) -> list[Run]:
        asked = (key_id, agent_id, digest)

        def work(db: Connection) -> list[Run]:
            whole = map(read_run, many(db, "runs.after", (*asked, SAME_QUESTION)))
            ends = many(db, "runs.ends", (_ends(*asked), SAME_QUESTION))
            return [*whole, *map(_folded_run, ends)]

        return await self._read(work)

    async def log_run(self, run_id: str, events: Sequence[TurnEvent], at: float) -> int:
        texts = [dump(event) for event in events]

        def work(db: Connection) -> int:
            values = {"id": run_id, "events": len(texts), "at": at}
            row = one(db, "runs.count_events", values)
            if row is not None:
                append_events(db, run_id, row["last_event"], texts, at)
                return int(row["last_event"])
            # A run that has ended, or is gone, gets no more events.
            row = one(db, "runs.last_event", (run_id,))
            return 0 if row is None else int(row["last_event"])

        return await self._write(work)

    async def run_log(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        return await self._list(read_event, "runs.log", (run_id, after, limit))

    async def finish_run(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> bool:
        return await self._write(RunEnd(run_id, outcome, events, at))

    async def delete_run(self, run_id: str) -> bool:
        return await self._write(lambda db: change(db, "runs.delete", (run_id,)) > 0)

    async def prune_runs(self, *, logs_before: float, runs_before: float) -> int:
        pruned = 0
        while gone := await self._write(
            lambda db: change(db, "runs.prune", {"before": runs_before, "limit": AT_ONCE})
        ):
            pruned += gone
        while await self._write(lambda db: _drop_logs(db, logs_before)):
            pass
        await self._write(lambda db: change(db, "sessions.drop_prompts"))
        return pruned

    async def handed_call(self, call_id: str) -> str | None:
        return await self._quick(lambda db: waiting_session(db, call_id))


class RunOpening:
    """One transaction that opens a run, or finds it under its idempotency key."""

    def __init__(self, new: NewRun) -> None:
        self._new = new
        # Encoded here, on the caller's thread: the writer serves everybody.
        self._message = dump(new.message)
        self._request = dump(new.request)

    def __call__(self, db: Connection) -> OpenedRun:
        new = self._new
        found = self._found(db)
        if found is not None:
            return found
        if one(db, "runs.exists", (new.id,)):
            raise id_taken("run", new.id)
        session_id, branched = self._session(db)
        arrival = Arrival(
            agent_id=new.agent_id,
            session_key=new.session_key,
            session_id=session_id,
            message=new.message,
            at=new.at,
        )
        admission = admit(db, arrival, self._message)
        if admission.duplicate:
            raise id_taken("message", new.message.native_id)
        entry = admission.entry
        if (turn_id := new.choice.turn_id) is not None:
            taken = {"id": entry.id, "session_id": session_id, "turn_id": turn_id}
            change(db, "inbox.take", taken)
            entry = read_inbox(row_of(db, "inbox.get", (entry.id,)))
        values = msgspec.structs.asdict(new) | {
            "session_id": session_id,
            "inbox_id": entry.id,
            "request": self._request,
            "previous_id": new.choice.after_run,
            "branched": branched,
        }
        change(db, "runs.insert", values)
        turn, opening = None, None
        if new.turn is not None and new.choice == SessionChoice():
            first = msgspec.structs.replace(new.turn, inbox_ids=(entry.id,))
            turn = begin(db, first, first=True).turn
            opening = _opening(db, session_id)
        row = row_of(db, "runs.get", (new.id,))
        return OpenedRun(run=read_run(row), entry=entry, turn=turn, opening=opening)

    def _found(self, db: Connection) -> OpenedRun | None:
        new = self._new
        if new.idempotency_key is None:
            return None
        row = one(db, "runs.under", (new.key_id, new.idempotency_key))
        if row is None:
            return None
        if row["fingerprint"] != new.fingerprint:
            raise Conflict(
                f"The idempotency key `{new.idempotency_key}` was used for another request.",
                hint="Repeat that request unchanged, or use a new idempotency key.",
            )
        entry = read_inbox(row_of(db, "inbox.get", (row["inbox_id"],)))
        return OpenedRun(run=read_run(row), entry=entry, duplicate=True)

    def _session(self, db: Connection) -> tuple[str, bool]:
        """Return the session of the run, and whether it is a branch made for it."""
        choice = self._new.choice
        if choice.session_id is not None:
            if choice.opened and self._is_new(db, choice.session_id):
                return self._own_session(db), False
            check_session(db, choice.session_id)
            return choice.session_id, False
        if choice.after_run is not None:
            return self._go_on(db, choice.after_run)
        if choice.key is None:
            return self._own_session(db), False
        bound = one(db, "sessions.id_for_key", (choice.key,))
        if bound is not None:
            return str(bound["session_id"]), False
        session_id = self._own_session(db)
        change(db, "sessions.bind_key", (choice.key, session_id, self._new.at))
        return session_id, False

    def _is_new(self, db: Connection, session_id: str) -> bool:
        """Tell whether a session has yet to be opened; another key may just have done that."""
        found = one(db, "sessions.get", (session_id,))
        if found is None:
            return True
        if _owner(found["user_id"]) != _owner(self._new.session.user_id):
            raise Conflict("This session id was taken a moment ago.", hint="Send it again.")
        return False

    def _own_session(self, db: Connection) -> str:
        new = self._new
        insert_session(db, new.session)
        if new.history:
            put_all(db, new.history, session_id=new.session.id, turn_id=None, at=new.at)
        return new.session.id

    def _go_on(self, db: Connection, run_id: str) -> tuple[str, bool]:
        row = one(db, "runs.get", (run_id,))
        if row is None:
            return self._go_on_in_chat(db, run_id)
        earlier = read_run(row)
        if earlier.outcome is None:
            raise Conflict(
                f"Run `{run_id}` has not ended yet.",
                hint="Wait for its end, then go on from there.",
            )
        check_session(db, earlier.session_id)
        if one(db, "runs.is_free", (run_id,)):
            if _is_ordinary(earlier):
                _fold(db, earlier, row)
            return earlier.session_id, False
        assert earlier.through_seq is not None
        asked = earlier.outcome.asked is not None
        self._branch(db, earlier.session_id, earlier.through_seq, row["through_id"], asked=asked)
        return self._new.session.id, True

    def _go_on_in_chat(self, db: Connection, run_id: str) -> tuple[str, bool]:
        """Go on from a run that another one continued before."""
        end = one(db, "runs.end_of", (run_id.removeprefix(_CHAT),))
        if end is None:
            hint = "It may have been deleted, or forgotten with time."
            raise NotFound(f"There is no run `{run_id}`.", hint=hint)
        if one(db, "runs.is_last", (end["id"],)):
            return str(end["session_id"]), False
        self._branch(db, end["session_id"], end["seq"], end["id"])
        return self._new.session.id, True

    def _branch(
        self,
        db: Connection,
        session_id: str,
        through_seq: int,
        through_id: int,
        *,
        asked: bool = False,
    ) -> None:
        new = self._new
        child = msgspec.structs.replace(new.session, parent_id=session_id, lineage=Lineage.BRANCH)
        insert_session(db, child)
        values = {"from": session_id, "to": child.id, "through_id": through_id}
        change(db, "sessions.copy_prompt", values)
        change(db, "runs.copy_messages", values)
        change(db, "sessions.copy_counters", values)
        change(db, "runs.set_next_seat", (through_seq + 1, child.id))
        answer_copies(db, values | {"handed": None}, new.message.results, new.at, asked=asked)


_CHAT = "chatcmpl-"


def _opening(db: Connection, session_id: str) -> Opening:
    session = read_session(row_of(db, "sessions.get", (session_id,)))
    return Opening(session, tuple(map(read_message, many(db, "messages.history", (session_id,)))))


def _find(db: Connection, run_id: str) -> Run | None:
    row = one(db, "runs.get", (run_id,))
    if row is not None:
        return read_run(row)
    end = one(db, "runs.end_of", (run_id[len(_CHAT) :],)) if run_id.startswith(_CHAT) else None
    return None if end is None else _folded_run(end)


def _ends(key_id: str, agent_id: str, digest: str) -> str:
    """Return under what the end of a request is found: 96 bits are enough for equality."""
    said = f"{key_id}\0{agent_id}\0{digest}".encode()
    return urlsafe_b64encode(hashlib.sha256(said).digest()[:12]).decode()


def _owner(user_id: str | None) -> str:
    """Return the key of a session, without the person that it was opened for."""
    return (user_id or "").partition("/")[0]


def _folded_run(row: Row) -> Run:
    """Return what is known of a run that another one continued."""
    key, _, user = (row["user_id"] or "").removeprefix("key:").partition("/")
    return Run(
        id=f"{_CHAT}{row['run']}",
        kind=RunKind.CHAT,
        key_id=key,
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        inbox_id=0,
        turn_id=row["turn_id"],
        state=RunState.COMPLETED,
        request={"user": user or None},
        created_at=row["timestamp"],
        updated_at=row["timestamp"],
        outcome=RunOutcome(state=RunState.COMPLETED, text=row["content"]),
        through_seq=row["seq"],
    )


def _is_ordinary(run: Run) -> bool:
    """Tell whether nothing is known of a run that its session would not tell as well."""
    told, outcome = run.request.get("section") or {}, run.outcome
    return (
        run.kind is RunKind.CHAT
        and run.id.startswith(_CHAT)
        and not (run.idempotency_key or run.logged or run.branched)
        and run.state is RunState.COMPLETED
        and not run.request.get("prefill")
        and not {"note", "after", "progress"} & {name for name, value in told.items() if value}
        and outcome is not None
        and not (outcome.handed or outcome.error or outcome.logprobs or outcome.asked)
    )


def _fold(db: Connection, run: Run, row: Row) -> None:
    """Keep of a run and its turn what their session does not tell, if a message can hold it."""
    if row["digest"] is None or row["said_id"] is None or row["through_id"] != row["said_id"]:
        return
    values: dict[str, Any] = {"said_id": row["said_id"], "through_seq": run.through_seq}
    values["ends"] = _ends(run.key_id, run.agent_id, row["digest"])
    values |= {"run": run.id.removeprefix(_CHAT), "turn_id": run.turn_id}
    values["session_id"] = run.session_id
    question = one(db, "runs.question", values)
    if not change(db, "runs.note_end", values | {"question": question is not None}):
        return
    if question is not None:
        change(db, "runs.settle_question", (question["id"],))
    change(db, "runs.delete", (run.id,))
    if change(db, "runs.forget_turn", {"turn_id": run.turn_id}):
        change(db, "runs.count_settled", (run.session_id,))
        settle_usage(db, run.session_id, run.turn_id)


def _listing(query: RunQuery) -> str:
    """Name the query that looks at the fewest rows."""
    if query.session_id is not None:
        return "runs.matching_in_session"
    return "runs.matching_open" if _only_open(query) else "runs.matching"


def _only_open(query: RunQuery) -> bool:
    return bool(query.states) and all(state.open for state in query.states)


def _drop_logs(db: Connection, before: float) -> int:
    """Forget the logs of some runs; return of how many."""
    old = many(db, "runs.old_logs", (before, AT_ONCE))
    for row in old:
        change(db, "runs.drop_log", (row["id"],))
        change(db, "runs.note_no_log", (row["id"],))
    return len(old)
