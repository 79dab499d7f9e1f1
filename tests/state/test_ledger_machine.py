"""Random operations on the ledger: what holds after every step, whatever the steps were.

A refused verb changes nothing; what was said never changes; the lists agree with
each other; a search finds what a look at every message finds; and another
process that opens the file sees the same.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Struct

from fakes.ledgers import arrival, outgoing, reply, request, result, session, turn, usage
from hermes.domain.approvals import Approval, ApprovalState, Choice, Decision
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.inbound import InboxEntry
from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    Message,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.outbound import OutboxEntry, OutboxState
from hermes.domain.ports.ledger import Ledger, LedgerStats, SearchQuery, SessionQuery
from hermes.domain.session import Session, StoredMessage
from hermes.domain.turn import Turn, TurnState
from hermes.domain.usage import Spent
from hermes.state.search_text import calls_text, fold, plans_for, score, snippet
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
seats = st.integers(0, 5)


class Snapshot(Struct, kw_only=True):
    """Everything a caller can see."""

    sessions: list[Session]
    transcript: dict[str, list[StoredMessage]]
    history: dict[str, list[StoredMessage]]
    waiting: dict[str, list[InboxEntry]]
    sessions_waiting: list[str]
    open_turns: list[Turn]
    started: list[frozenset[str]]
    outbox: list[OutboxEntry]
    approvals: list[Approval]
    pending: list[Approval]
    grants: list[list[Approval]]
    spent: Spent
    stats: LedgerStats


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = self.open()
        self.seen = self.snapshot()
        self.said: dict[int, StoredMessage] = {}
        self.decided: dict[str, ApprovalState] = {}
        self.costs: list[float] = []
        self.facts: dict[str, Any] = {}

    def open(self) -> SqliteLedger:
        home = Path(self.folder.name)
        return self.runner.run(SqliteLedger.open(home / "state.db", backups=home / "backups"))

    def snapshot(self) -> Snapshot:
        return self.runner.run(snapshot(self.ledger))

    def teardown(self) -> None:
        self.runner.run(self.ledger.close())
        self.runner.close()
        self.folder.cleanup()

    def do(self, verb: Verb) -> Any:
        """Return the answer; a refusal is None, and leaves everything as it was."""
        try:
            answer = self.runner.run(call(verb, self.ledger))
        except (Conflict, NotFound):
            assert self.snapshot() == self.seen
            return None
        self.seen = self.snapshot()
        return answer

    @initialize()
    def begin_somewhere(self) -> None:
        self.do(lambda ledger: ledger.create_session(session("s1")))
        self.do(lambda ledger: ledger.create_session(session("s2")))
        self.do(lambda ledger: ledger.begin_turn(turn("t1", session_id="s1")))
        self.do(lambda ledger: ledger.record_reply("t1", reply("work", "c1", "c2"), None, 3.0))

    @rule(session_id=sessions, title=st.sampled_from([None, "A", "B"]), at=times)
    def create(self, session_id: str, title: str | None, at: float) -> None:
        self.do(lambda ledger: ledger.create_session(session(session_id, title=title, at=at)))

    @rule(session_id=sessions, title=st.sampled_from(["A", "B", "A #2"]))
    def name(self, session_id: str, title: str) -> None:
        self.do(lambda ledger: ledger.name_session(session_id, title))

    @rule(origin=sessions)
    def branch(self, origin: str) -> None:
        self.do(lambda ledger: ledger.branch_session(origin, session("s3")))

    @rule(session_id=st.sampled_from(["s1", "s2", "s3"]))
    def delete(self, session_id: str) -> None:
        self.do(lambda ledger: ledger.delete_session(session_id))
        self.facts.pop(session_id, None)

    @rule(session_id=sessions, value=st.one_of(st.none(), st.integers(), st.text(max_size=3)))
    def remember(self, session_id: str, value: Any) -> None:
        known = any(found.id == session_id for found in self.seen.sessions)
        self.do(lambda ledger: ledger.remember(session_id, "fact", value))
        if known:
            self.facts[session_id] = value

    @rule(session_id=sessions, native=natives, text=words)
    def admit(self, session_id: str, native: str, text: str) -> None:
        self.do(lambda ledger: ledger.admit(arrival(native, text, session_id=session_id)))

    @rule(ids=inbox_ids)
    def drop(self, ids: tuple[int, ...]) -> None:
        self.do(lambda ledger: ledger.drop(ids, "no"))

    @rule(turn_id=turns, session_id=sessions, text=words, ids=inbox_ids, at=times)
    def begin(
        self, turn_id: str, session_id: str, text: str, ids: tuple[int, ...], at: float
    ) -> None:
        new = turn(turn_id, session_id=session_id, says=text, inbox_ids=ids, at=at)
        self.do(lambda ledger: ledger.begin_turn(new))

    @rule(turn_id=turns, text=words, ids=inbox_ids, at=times)
    def steer(self, turn_id: str, text: str, ids: tuple[int, ...], at: float) -> None:
        inputs = [UserMessage(content=text, kind=InputKind.STEER)]
        self.do(lambda ledger: ledger.add_inputs(turn_id, inputs, ids, at))

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
        if self.do(lambda ledger: ledger.record_reply(turn_id, reply(text, *made), spent, at)):
            self.costs.append(cost or 0.0)

    @rule(turn_id=turns, call=calls, at=times)
    def start(self, turn_id: str, call: str, at: float) -> None:
        self.do(lambda ledger: ledger.start_call(turn_id, call, at))

    @rule(turn_id=turns, call=calls, text=words, at=times)
    def give(self, turn_id: str, call: str, text: str, at: float) -> None:
        self.do(lambda ledger: ledger.record_result(turn_id, result(call, text), at))

    @rule(turn_id=turns, waiting=st.booleans(), at=times)
    def wait(self, turn_id: str, waiting: bool, at: float) -> None:
        self.do(lambda ledger: ledger.set_waiting(turn_id, waiting=waiting, at=at))

    @rule(turn_id=turns, at=times)
    def finish(self, turn_id: str, at: float) -> None:
        self.do(lambda ledger: ledger.finish_turn(turn_id, TurnState.DONE, None, at))

    @rule(turn_id=turns, previous=st.sampled_from(["host-1-aa", "x"]))
    def claim(self, turn_id: str, previous: str) -> None:
        self.do(lambda ledger: ledger.claim_turn(turn_id, owner="x", previous=previous, at=9.0))

    @rule(session_id=sessions, seq=seats)
    def rewind(self, session_id: str, seq: int) -> None:
        before = len(self.seen.history[session_id])
        undone = self.do(lambda ledger: ledger.rewind(session_id, seq))
        assert len(self.seen.history[session_id]) == before - (undone or 0)

    @rule(session_id=sessions, seq=seats)
    def compact(self, session_id: str, seq: int) -> None:
        summary = UserMessage(content="in short", kind=InputKind.SUMMARY)
        put = self.do(lambda ledger: ledger.compact(session_id, seq, summary))
        if put is not None:
            assert [s for s in self.seen.history[session_id] if s.seq <= seq] == [put]

    @rule(entry=entries, group=st.sampled_from([None, "t1"]), part=st.integers(0, 2), at=times)
    def enqueue(self, entry: str, group: str | None, part: int, at: float) -> None:
        made = outgoing(entry, turn_id=group, part=part, at=at, session_id="s1")
        self.do(lambda ledger: ledger.enqueue(made))

    @rule(entry=entries, at=times)
    def send(self, entry: str, at: float) -> None:
        self.do(lambda ledger: ledger.claim_send(entry, at))

    @rule(entry=entries, state=st.sampled_from(OutboxState), text=st.sampled_from([None, "x"]))
    def settle(self, entry: str, state: OutboxState, text: str | None) -> None:
        self.do(lambda ledger: ledger.update_outbox(entry, state=state, at=5.0, native_id=text))

    @rule(name=requests, session_id=sessions, turn_id=turns, call=calls, at=times)
    def ask(self, name: str, session_id: str, turn_id: str, call: str, at: float) -> None:
        made = request(
            name, session_id=session_id, turn_id=turn_id, call_id=call, at=at, expires_at=at + 5
        )
        self.do(lambda ledger: ledger.ask(made))

    @rule(name=requests, choice=st.sampled_from(Choice))
    def decide(self, name: str, choice: Choice) -> None:
        state = ApprovalState.DENIED if choice is Choice.DENY else ApprovalState.APPROVED
        self.do(lambda ledger: ledger.decide(name, Decision(state=state, choice=choice)))

    @rule(name=requests)
    def revoke(self, name: str) -> None:
        self.do(lambda ledger: ledger.revoke(name, 9.0))

    @rule(text=st.sampled_from(["apple", "äpfel", "数据", "a_b", "nea", "pie OR apfel"]))
    def search(self, text: str) -> None:
        hits = self.do(lambda ledger: ledger.search(SearchQuery(text=text)))
        found = [(hit.message_id, hit.snippet) for hit in hits]
        assert found == everything_that_matches(text, self.seen.transcript)

    @rule()
    def open_again(self) -> None:
        self.runner.run(self.ledger.close())
        self.ledger = self.open()
        assert self.snapshot() == self.seen

    @invariant()
    def what_was_said_never_changes(self) -> None:
        for stored in chain.from_iterable(self.seen.transcript.values()):
            same = msgspec.structs.replace(stored, active=True)
            assert self.said.setdefault(stored.id, same) == same

    @invariant()
    def histories_are_the_active_messages_in_their_seats(self) -> None:
        for found in self.seen.sessions:
            transcript, history = self.seen.transcript[found.id], self.seen.history[found.id]
            assert history == [stored for stored in transcript if stored.active]
            assert len({stored.seq for stored in history}) == len(history)
            assert transcript == sorted(transcript, key=lambda stored: (stored.seq, stored.id))
            assert found.message_count == len(transcript)

    @invariant()
    def results_follow_their_calls(self) -> None:
        for name in ("s1", "s2"):  # a branch has only the active messages of its origin
            called: set[str] = set()
            for stored in self.seen.transcript[name]:
                match stored.message:
                    case AssistantMessage(tool_calls=made):
                        called.update(call.id for call in made)
                    case ToolMessage(call_id=call_id):
                        assert call_id in called

    @invariant()
    def lists_agree(self) -> None:
        seen, stats = self.seen, self.seen.stats
        running = [found.session_id for found in seen.open_turns]
        assert len(set(running)) == len(running) == stats.open_turns
        assert len(seen.sessions) == stats.sessions == sum(stats.by_source.values())
        assert sum(map(len, seen.transcript.values())) == stats.messages
        assert {name for name, entries in seen.waiting.items() if entries} == set(
            seen.sessions_waiting
        )
        titles = [found.title for found in seen.sessions if found.title is not None]
        assert len(set(titles)) == len(titles)

    @invariant()
    def approvals_are_asked_and_decided_once(self) -> None:
        pending = [a.request.id for a in self.seen.approvals if a.state is ApprovalState.PENDING]
        assert sorted(pending) == sorted(a.request.id for a in self.seen.pending)
        asked = [(a.request.turn_id, a.request.call_id) for a in self.seen.approvals]
        assert len(set(asked)) == len(asked)
        known = {a.request.id for a in self.seen.approvals}
        self.decided = {i: state for i, state in self.decided.items() if i in known}
        for approval in self.seen.approvals:
            if approval.state is not ApprovalState.PENDING:
                state = self.decided.setdefault(approval.request.id, approval.state)
                assert state is approval.state

    @invariant()
    def every_paid_call_is_counted(self) -> None:
        assert self.seen.spent.calls == len(self.costs)
        assert self.seen.spent.cost_usd == sum(self.costs)

    @invariant()
    def facts_are_remembered(self) -> None:
        for session_id, value in self.facts.items():
            assert self.runner.run(self.ledger.recall(session_id, "fact")) == value


async def snapshot(ledger: Ledger) -> Snapshot:
    names = ("s1", "s2", "s3")
    return Snapshot(
        sessions=await ledger.sessions(SessionQuery()),
        transcript={name: await ledger.transcript(name) for name in names},
        history={name: await ledger.history(name) for name in names},
        waiting={name: await ledger.waiting(name) for name in names},
        sessions_waiting=await ledger.sessions_waiting(),
        open_turns=await ledger.open_turns(),
        started=[await ledger.started_calls(f"t{n}") for n in range(1, 5)],
        outbox=await ledger.outbox(list(OutboxState)),
        approvals=await ledger.approvals(),
        pending=await ledger.pending_approvals(),
        grants=[await ledger.grants("main", name) for name in names],
        spent=await ledger.spent(),
        stats=msgspec.structs.replace(await ledger.stats(), bytes=0),
    )


async def call(verb: Verb, ledger: Ledger) -> Any:
    return await verb(ledger)


def everything_that_matches(
    text: str, transcripts: dict[str, list[StoredMessage]]
) -> list[tuple[int, str]]:
    """Look at every message: what a search has to find, best first, newest first."""
    newest_first = sorted(chain.from_iterable(transcripts.values()), key=lambda m: -m.id)
    texts = [(stored.id, searched(stored.message)) for stored in newest_first]
    for plan in plans_for(text):
        found = [(i, said) for i, said in texts if plan.matches(fold(said))]
        if found:
            found.sort(key=lambda hit: -score(plan, fold(hit[1])))
            return [(i, snippet(plan, said, fold(said))) for i, said in found[:20]]
    return []


def searched(message: Message) -> str:
    match message:
        case UserMessage():
            return content_text(message.content) + "  "
        case AssistantMessage(tool_calls=()):
            return message.text + "  "
        case AssistantMessage():
            return f"{message.text} {calls_text(message)}  "
        case ToolMessage():
            return f"{content_text(message.content)} {message.name}  "


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
