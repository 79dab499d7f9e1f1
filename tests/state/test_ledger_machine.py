"""Random operations on both stores, step by step: same answers, same refusals."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakes.ledgers import arrival, outgoing, reply, request, result, session, turn, usage
from hermes.domain.approvals import ApprovalState, Choice, Decision
from hermes.domain.errors import HermesError
from hermes.domain.messages import InputKind, UserMessage
from hermes.domain.outbound import OutboxState
from hermes.domain.ports.state import Ledger, SearchQuery, SessionQuery
from hermes.domain.session import Session
from hermes.domain.turn import TurnState
from hermes.state.memory.ledger import MemoryLedger
from hermes.state.sqlite.ledger import SqliteLedger

Verb = Callable[[Ledger], Awaitable[Any]]

# Few names, so that most steps meet something that is there.
sessions = st.sampled_from(["s1", "s2"])
turns = st.sampled_from(["t1", "t2", "t3"])
calls = st.sampled_from(["c1", "c2"])
natives = st.sampled_from(["n1", "n2", "n3"])
inbox_ids = st.lists(st.integers(1, 4), max_size=2).map(tuple)
entries = st.sampled_from(["o1", "o2", "o3"])
requests = st.sampled_from(["a1", "a2", "a3"])
words = st.sampled_from(["apple pie", "Äpfel", "数据库", "pineapple", "a_b.c", ""])
times = st.integers(0, 20).map(float)
seats = st.integers(0, 8)


class TwoLedgers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.memory = MemoryLedger()
        self.sqlite = self.runner.run(
            SqliteLedger.open(home / "state.db", backups=home / "backups")
        )

    def teardown(self) -> None:
        self.runner.run(self.sqlite.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, verb: Verb) -> None:
        expected = self.runner.run(outcome(verb, self.memory))
        assert self.runner.run(outcome(verb, self.sqlite)) == expected

    @initialize()
    def begin_somewhere(self) -> None:
        for name in ("s1", "s2"):
            self.both(partial(create, name))
        self.both(lambda ledger: ledger.begin_turn(turn("t1", session_id="s1")))
        self.both(lambda ledger: ledger.record_reply("t1", reply("work", "c1", "c2"), None, 3.0))

    @rule(session_id=sessions, title=st.sampled_from([None, "A", "B"]), at=times)
    def create(self, session_id: str, title: str | None, at: float) -> None:
        self.both(lambda ledger: ledger.create_session(session(session_id, title=title, at=at)))

    @rule(session_id=sessions, title=st.sampled_from(["A", "B", "A #2"]))
    def name(self, session_id: str, title: str) -> None:
        self.both(lambda ledger: ledger.name_session(session_id, title))

    @rule(origin=sessions)
    def branch(self, origin: str) -> None:
        self.both(lambda ledger: ledger.branch_session(origin, session("s3")))

    @rule(session_id=st.sampled_from(["s1", "s2", "s3"]))
    def delete(self, session_id: str) -> None:
        self.both(lambda ledger: ledger.delete_session(session_id))

    @rule(session_id=sessions, value=st.one_of(st.none(), st.integers(), st.text(max_size=3)))
    def remember(self, session_id: str, value: Any) -> None:
        self.both(lambda ledger: ledger.remember(session_id, "fact", value))

    @rule(session_id=sessions, native=natives, text=words)
    def admit(self, session_id: str, native: str, text: str) -> None:
        self.both(lambda ledger: ledger.admit(arrival(native, text, session_id=session_id)))

    @rule(ids=inbox_ids)
    def drop(self, ids: tuple[int, ...]) -> None:
        self.both(lambda ledger: ledger.drop(ids, "no"))

    @rule(turn_id=turns, session_id=sessions, text=words, ids=inbox_ids, at=times)
    def begin(
        self, turn_id: str, session_id: str, text: str, ids: tuple[int, ...], at: float
    ) -> None:
        new = turn(turn_id, session_id=session_id, says=text, inbox_ids=ids, at=at)
        self.both(lambda ledger: ledger.begin_turn(new))

    @rule(turn_id=turns, text=words, ids=inbox_ids, at=times)
    def steer(self, turn_id: str, text: str, ids: tuple[int, ...], at: float) -> None:
        inputs = [UserMessage(content=text, kind=InputKind.STEER)]
        self.both(lambda ledger: ledger.add_inputs(turn_id, inputs, ids, at))

    @rule(
        turn_id=turns,
        text=words,
        made=st.lists(calls, max_size=3),
        cost=st.sampled_from([None, 0.5]),
        at=times,
    )
    def answer(
        self, turn_id: str, text: str, made: list[str], cost: float | None, at: float
    ) -> None:
        spent = usage(turn_id=turn_id, cost=cost, at=at)
        self.both(lambda ledger: ledger.record_reply(turn_id, reply(text, *made), spent, at))

    @rule(turn_id=turns, call=calls, at=times)
    def start(self, turn_id: str, call: str, at: float) -> None:
        self.both(lambda ledger: ledger.start_call(turn_id, call, at))

    @rule(turn_id=turns, call=calls, text=words, at=times)
    def give(self, turn_id: str, call: str, text: str, at: float) -> None:
        self.both(lambda ledger: ledger.record_result(turn_id, result(call, text), at))

    @rule(turn_id=turns, waiting=st.booleans(), at=times)
    def wait(self, turn_id: str, waiting: bool, at: float) -> None:
        self.both(lambda ledger: ledger.set_waiting(turn_id, waiting=waiting, at=at))

    @rule(turn_id=turns, at=times)
    def finish(self, turn_id: str, at: float) -> None:
        self.both(lambda ledger: ledger.finish_turn(turn_id, TurnState.DONE, None, at))

    @rule(turn_id=turns, previous=st.sampled_from(["host-1-aa", "x"]))
    def claim(self, turn_id: str, previous: str) -> None:
        self.both(lambda ledger: ledger.claim_turn(turn_id, owner="x", previous=previous, at=9.0))

    @rule(session_id=sessions, seq=seats)
    def rewind(self, session_id: str, seq: int) -> None:
        self.both(lambda ledger: ledger.rewind(session_id, seq))

    @rule(session_id=sessions, seq=seats)
    def compact(self, session_id: str, seq: int) -> None:
        summary = UserMessage(content="in short", kind=InputKind.SUMMARY)
        self.both(lambda ledger: ledger.compact(session_id, seq, summary))

    @rule(entry=entries, group=st.sampled_from([None, "t1"]), part=st.integers(0, 2), at=times)
    def enqueue(self, entry: str, group: str | None, part: int, at: float) -> None:
        made = outgoing(entry, turn_id=group, part=part, at=at, session_id="s1")
        self.both(lambda ledger: ledger.enqueue(made))

    @rule(entry=entries, at=times)
    def send(self, entry: str, at: float) -> None:
        self.both(lambda ledger: ledger.claim_send(entry, at))

    @rule(entry=entries, state=st.sampled_from(OutboxState), text=st.sampled_from([None, "x"]))
    def settle(self, entry: str, state: OutboxState, text: str | None) -> None:
        self.both(lambda ledger: ledger.update_outbox(entry, state=state, at=5.0, native_id=text))

    @rule(name=requests, session_id=sessions, turn_id=turns, call=calls, at=times)
    def ask(self, name: str, session_id: str, turn_id: str, call: str, at: float) -> None:
        made = request(
            name, session_id=session_id, turn_id=turn_id, call_id=call, at=at, expires_at=at + 5
        )
        self.both(lambda ledger: ledger.ask(made))

    @rule(name=requests, choice=st.sampled_from(Choice))
    def decide(self, name: str, choice: Choice) -> None:
        state = ApprovalState.DENIED if choice is Choice.DENY else ApprovalState.APPROVED
        self.both(lambda ledger: ledger.decide(name, Decision(state=state, choice=choice)))

    @rule(now=times)
    def expire(self, now: float) -> None:
        self.both(lambda ledger: ledger.expire_approvals(now))

    @rule(name=requests)
    def revoke(self, name: str) -> None:
        self.both(lambda ledger: ledger.revoke(name, 9.0))

    @rule(text=st.sampled_from(["apple", "äpfel", "数据", "a_b", "nea", "pie OR apfel"]))
    def search(self, text: str) -> None:
        self.both(lambda ledger: ledger.search(SearchQuery(text=text)))

    @invariant()
    def the_same_is_there(self) -> None:
        self.both(snapshot)


async def create(session_id: str, ledger: Ledger) -> Session:
    return await ledger.create_session(session(session_id))


async def outcome(verb: Verb, ledger: Ledger) -> Any:
    """Return the answer, or what the refusal says."""
    try:
        return await verb(ledger)
    except HermesError as error:
        return type(error).__name__, error.message


async def snapshot(ledger: Ledger) -> list[Any]:
    names = ("s1", "s2", "s3")
    stats = await ledger.stats()
    return [
        await ledger.sessions(SessionQuery()),
        [await ledger.transcript(name) for name in names],
        [await ledger.history(name) for name in names],
        [await ledger.waiting(name) for name in names],
        await ledger.sessions_waiting(),
        await ledger.open_turns(),
        [await ledger.started_calls(f"t{n}") for n in range(1, 5)],
        await ledger.outbox(list(OutboxState)),
        await ledger.approvals(),
        await ledger.pending_approvals(),
        [await ledger.grants("main", name) for name in names],
        await ledger.spent(),
        (stats.sessions, stats.messages, stats.turns, stats.open_turns, stats.by_source),
    ]


TestTwoLedgers = TwoLedgers.TestCase
TestTwoLedgers.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
