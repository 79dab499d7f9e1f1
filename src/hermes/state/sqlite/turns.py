"""Turns: what they write, what they ask of people and what they cost."""

from collections.abc import Sequence
from sqlite3 import Connection, IntegrityError

import msgspec
from msgspec.structs import replace

from hermes.domain.approvals import (
    TURN_STOPPED,
    Approval,
    ApprovalRequest,
    ApprovalState,
    Choice,
    Decision,
)
from hermes.domain.errors import Conflict, HermesError, NotFound
from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage
from hermes.domain.ports.ledger import BegunTurn
from hermes.domain.runs import RunEnding
from hermes.domain.session import StoredMessage
from hermes.domain.turn import NewTurn, Turn, TurnError, TurnState
from hermes.domain.usage import Spent, TurnUsage, UsageRecord
from hermes.state.sqlite.base import LedgerPart, change, many, one, row_of, transaction
from hermes.state.sqlite.delivery import take_entries
from hermes.state.sqlite.errors import id_taken, session_busy, unknown_session
from hermes.state.sqlite.messages import Seat, answer_handed, put, put_all, put_late, take_seats
from hermes.state.sqlite.rows import columns, dump, reader
from hermes.state.sqlite.run_ends import RunEnd
from hermes.state.sqlite.sessions import freeze

read_turn = reader(Turn, json={"error": TurnError})
read_approval = reader(
    Approval, json={"choices": tuple[str, ...], "decision": Decision}, inner=("request",)
)
read_spent = reader(Spent)
read_turn_usage = reader(TurnUsage, inner=("usage",))
STOPPED = Decision(state=ApprovalState.DENIED, choice=Choice.DENY, text=TURN_STOPPED)


class TurnPart(LedgerPart):
    @transaction
    def begin_turn(self, db: Connection, new: NewTurn) -> BegunTurn:
        return begin(db, new)

    @transaction
    def add_inputs(
        self,
        db: Connection,
        turn_id: str,
        inputs: Sequence[UserMessage],
        inbox_ids: Sequence[int],
        at: float,
    ) -> list[StoredMessage]:
        session_id = _touch(db, turn_id, at)
        take_entries(db, session_id, turn_id, inbox_ids)
        return put_all(db, inputs, session_id=session_id, turn_id=turn_id, at=at)

    async def record_reply(
        self,
        turn_id: str,
        message: AssistantMessage,
        usage: UsageRecord | None,
        at: float,
        *,
        ends: bool | RunEnding = False,
        prompt: str | None = None,
    ) -> StoredMessage:
        run = ends if isinstance(ends, RunEnding) else None
        end = RunEnd(run.run_id, run.outcome, (), at) if run is not None else None

        def work(db: Connection) -> StoredMessage:
            stored = _put_reply(db, turn_id, message, usage, at)
            if prompt is not None:
                freeze(db, stored.session_id, prompt)
            if ends:
                _finish(db, turn_id, TurnState.DONE, None, at)
            if end is not None:
                end(db, stored)
            return stored

        return await self._write(work)

    @transaction
    def start_call(self, db: Connection, turn_id: str, call_id: str, at: float) -> None:
        _touch(db, turn_id, at)
        if change(db, "turns.start_call", (at, turn_id, call_id)):
            return
        _call_seat(db, turn_id, call_id)
        raise Conflict(
            f"Tool call `{call_id}` was already started.", hint="Its effect may have happened."
        )

    async def started_calls(self, turn_id: str) -> frozenset[str]:
        found = await self._quick(lambda db: many(db, "turns.started_calls", (turn_id,)))
        return frozenset(row["call_id"] for row in found)

    @transaction
    def record_result(
        self, db: Connection, turn_id: str, message: ToolMessage, at: float
    ) -> StoredMessage:
        session_id = _touch(db, turn_id, at)
        seq = _call_seat(db, turn_id, message.call_id)
        seat = Seat(session_id=session_id, turn_id=turn_id, seq=seq, timestamp=at)
        try:
            return put_late(db, message, seat)
        except IntegrityError as error:
            raise Conflict(
                f"Tool call `{message.call_id}` already has a result.", hint="Read it from history."
            ) from error

    @transaction
    def set_waiting(self, db: Connection, turn_id: str, *, waiting: bool, at: float) -> None:
        state = TurnState.WAITING if waiting else TurnState.RUNNING
        values = {"id": turn_id, "state": state, "at": at}
        if one(db, "turns.set_state", values) is None:
            raise _not_open(db, turn_id)

    @transaction
    def finish_turn(
        self,
        db: Connection,
        turn_id: str,
        state: TurnState,
        error: TurnError | None,
        at: float,
        *,
        handed: bool = False,
    ) -> None:
        if state.open:
            raise ValueError(f"a turn cannot end as {state.value}")
        session_id = _finish(db, turn_id, state, error, at, handed=handed)
        change(db, "turns.touch_session", {"id": session_id, "at": at})

    async def turn(self, turn_id: str) -> Turn | None:
        return await self._get(read_turn, "turns.get", (turn_id,))

    async def open_turns(self, session_id: str | None = None) -> list[Turn]:
        if session_id is None:
            return await self._list(read_turn, "turns.open")
        return await self._list(read_turn, "turns.open_in_session", (session_id,))

    async def release_turn(self, turn_id: str, at: float) -> None:
        await self._write(lambda db: change(db, "turns.release", {"id": turn_id, "at": at}))

    async def claim_turn(
        self, turn_id: str, *, owner: str, previous: str, at: float
    ) -> Turn | None:
        values = {"id": turn_id, "owner": owner, "previous": previous, "at": at}
        return await self._change(read_turn, "turns.claim", values)


def begin(db: Connection, new: NewTurn, *, first: bool = False) -> BegunTurn:
    """Begin a turn; `first`: the session is new, so that it has neither ended nor handed calls."""
    turn = _insert(db, new)
    if not first:
        change(db, "turns.reopen_session", (new.session_id,))
        answer_handed(db, turn.session_id, new.results, new.at)
    take_entries(db, new.session_id, new.id, new.inbox_ids)
    inputs = put_all(db, new.inputs, session_id=turn.session_id, turn_id=turn.id, at=new.at)
    return BegunTurn(turn=turn, inputs=tuple(inputs))


def _put_reply(
    db: Connection,
    turn_id: str,
    message: AssistantMessage,
    usage: UsageRecord | None,
    at: float,
) -> StoredMessage:
    session_id, calls = _touch(db, turn_id, at), message.tool_calls
    seq = take_seats(db, session_id, at, seats=1 + len(calls), messages=[message])
    for offset, call in enumerate(calls, start=1):
        try:
            change(db, "turns.seat_call", (turn_id, call.id, seq + offset))
        except IntegrityError as error:
            raise Conflict(
                f"Two tool calls of one turn have the id `{call.id}`.",
                hint="Give each call its own id.",
            ) from error
    if usage is not None:
        add_usage(db, usage, session_id)
    seat = Seat(session_id=session_id, turn_id=turn_id, seq=seq, timestamp=at)
    return put(db, message, seat)


def _finish(
    db: Connection,
    turn_id: str,
    state: TurnState,
    error: TurnError | None,
    at: float,
    *,
    handed: bool = False,
) -> str:
    """End an open turn and return its session."""
    text = None if error is None else dump(error)
    values = {"id": turn_id, "state": state, "error": text, "at": at, "handed": handed}
    row = one(db, "turns.finish", values)
    if row is None:
        raise _not_open(db, turn_id)
    denial = dump(replace(STOPPED, at=at)) if state is TurnState.INTERRUPTED else None
    change(db, "approvals.settle", {"turn_id": turn_id, "denial": denial})
    return str(row["session_id"])


def _insert(db: Connection, new: NewTurn) -> Turn:
    values = {"id": new.id, "session_id": new.session_id, "owner": new.owner, "at": new.at}
    try:
        row = one(db, "turns.insert", values)
    except IntegrityError as error:
        if one(db, "turns.open_in_session", (new.session_id,)):
            raise session_busy(new.session_id) from error
        raise id_taken("turn", new.id) from error
    if row is None:
        raise unknown_session(new.session_id)
    return read_turn(row)


def _call_seat(db: Connection, turn_id: str, call_id: str) -> int:
    call = one(db, "turns.call", (turn_id, call_id))
    if call is None:
        raise NotFound(
            f"The turn has no tool call `{call_id}`.",
            hint="A call is known once the reply that makes it is recorded.",
        )
    return int(call["seq"])


def _touch(db: Connection, turn_id: str, at: float) -> str:
    """Check that the turn is open and return its session."""
    row = one(db, "turns.touch", {"id": turn_id, "at": at})
    if row is None:
        raise _not_open(db, turn_id)
    return str(row["session_id"])


def _not_open(db: Connection, turn_id: str) -> HermesError:
    if one(db, "turns.exists", (turn_id,)) is None:
        return NotFound(f"There is no turn `{turn_id}`.", hint="Its session may have been deleted.")
    return Conflict(f"Turn `{turn_id}` has already ended.", hint="Begin a new turn.")


class ApprovalPart(LedgerPart):
    @transaction
    def ask(self, db: Connection, request: ApprovalRequest) -> Approval:
        row = one(db, "approvals.for_call", (request.turn_id, request.call_id))
        if row is None:
            if one(db, "approvals.get", (request.id,)):
                raise id_taken("request", request.id)
            change(db, "approvals.insert", columns(request))
            row = row_of(db, "approvals.get", (request.id,))
        return read_approval(row)

    async def approval(self, approval_id: str) -> Approval | None:
        return await self._get(read_approval, "approvals.get", (approval_id,))

    async def decide(self, approval_id: str, decision: Decision) -> Approval | None:
        if decision.state is ApprovalState.PENDING:
            raise ValueError("a decision cannot leave a request pending")
        values = {
            "id": approval_id,
            "state": decision.state,
            "choice": decision.choice,
            "decision": dump(decision),
        }
        return await self._change(read_approval, "approvals.decide", values)

    async def pending_approvals(self, session_id: str | None = None) -> list[Approval]:
        return await self._few(read_approval, "approvals.pending", {"session_id": session_id})

    async def grants(self, agent_id: str, session_id: str) -> list[Approval]:
        values = {"agent_id": agent_id, "session_id": session_id}
        return await self._few(read_approval, "approvals.grants", values)

    async def approvals(self, *, limit: int = 50) -> list[Approval]:
        return await self._list(read_approval, "approvals.newest", (limit,))

    async def revoke(self, approval_id: str, at: float) -> bool:
        values = {"id": approval_id, "at": at}
        return await self._write(lambda db: change(db, "approvals.revoke", values) > 0)


class UsagePart(LedgerPart):
    async def record_usage(self, record: UsageRecord) -> None:
        await self._write(lambda db: add_usage(db, record, record.session_id))

    async def spent(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        since: float | None = None,
    ) -> Spent:
        earliest = float("-inf") if since is None else since
        values = {"agent_id": agent_id, "session_id": session_id, "since": earliest}
        # Two queries, so that each finds its index.
        query = "usage.spent_since" if session_id is None else "usage.spent_in_session"
        return read_spent(await self._read(lambda db: row_of(db, query, values)))

    async def usage_of_turn(self, turn_id: str) -> TurnUsage:
        row = await self._quick(lambda db: row_of(db, "usage.of_turn", (turn_id,)))
        return read_turn_usage(row)

    async def usage_by_model(self, session_id: str | None = None) -> list[tuple[str, str, Spent]]:
        values = {"session_id": session_id}
        found = await self._read(lambda db: many(db, "usage.by_model", values))
        return [(row["provider"], row["model"], read_spent(row)) for row in found]


def add_usage(db: Connection, record: UsageRecord, session_id: str | None) -> None:
    """Write one call down and count it in its session."""
    values = msgspec.structs.asdict(record) | msgspec.structs.asdict(record.usage)
    values["session_id"] = session_id
    if session_id is not None:
        change(db, "usage.count_in_session", values)
    change(db, "usage.insert", values)


def settle_usage(db: Connection, session_id: str, turn_id: str | None) -> None:
    """Add what a forgotten turn spent to what others of its session spent in the same hour."""
    for row in many(db, "usage.of_settled", (session_id, turn_id)):
        added = change(db, "usage.add_to_hour", dict(row))
        change(db, "usage.delete" if added else "usage.leave_turn", (row["id"],))
