"""Random requests, step by step: what holds of runs, their logs and their sessions.

A refused verb changes nothing; an outcome is recorded once and stays; logs have
no gaps; the end of a run is claimed once; and another process that opens the
file sees the same.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.ledgers import ended_as, new_run, reply, result, session, turn
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.events import TextDelta
from hermes.domain.messages import AssistantMessage, InputKind, UserMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import Run, RunOutcome, RunQuery, RunState, SessionChoice
from hermes.domain.turn import TurnState
from hermes.state.sqlite.ledger import SqliteLedger

Verb = Callable[[Ledger], Awaitable[Any]]

SESSIONS = ["s1", *(f"s-r{n}" for n in range(1, 6))]

# Few names, so that most steps meet something that is there.
run_ids = st.sampled_from(["r1", "r2", "r3", "r4", "r5"])
session_ids = st.sampled_from(["s1", "s-r1", "s-r2", "s-r3"])
call_ids = st.sampled_from(["c1", "c2"])
times = st.integers(0, 20).map(float)
maybe = st.sampled_from([None, "x"])
results = st.dictionaries(call_ids, st.sampled_from(["mine", "yours"]), max_size=2)
choices = st.one_of(
    st.builds(SessionChoice, after_run=run_ids),
    st.builds(SessionChoice, after_run=run_ids),
    st.builds(SessionChoice, session_id=session_ids),
    st.builds(SessionChoice, key=st.sampled_from(["ka", "kb"])),
    st.just(SessionChoice()),
)
events = st.lists(st.builds(TextDelta, st.sampled_from(["a", "b"])), max_size=2)


class RunMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = self.open()
        self.seen = self.snapshot()
        self.turns = 0
        self.outcomes: dict[str, RunOutcome] = {}

    def open(self) -> SqliteLedger:
        home = Path(self.folder.name)
        return self.runner.run(SqliteLedger.open(home / "state.db", backups=home / "backups"))

    def snapshot(self) -> list[Any]:
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
        self.do(lambda ledger: ledger.open_run(new_run("r1")))
        self.have_a_turn("s-r1", {}, ["c1"], True)
        self.do(lambda ledger: ledger.finish_run("r1", ended_as(), [], 5.0))

    @rule(
        run_id=run_ids,
        choice=choices,
        name=maybe,
        fingerprint=st.sampled_from(["f", "g"]),
        given=results,
        at=times,
    )
    def request(
        self,
        run_id: str,
        choice: SessionChoice,
        name: str | None,
        fingerprint: str,
        given: dict[str, str],
        at: float,
    ) -> None:
        seed = (UserMessage(content="before"), reply("yes"))
        new = new_run(
            run_id,
            choice=choice,
            idempotency_key=name,
            fingerprint=fingerprint,
            results=given,
            history=seed,
            at=at,
        )
        self.do(lambda ledger: ledger.open_run(new))

    @rule(session_id=session_ids, given=results, made=st.lists(call_ids), handed=st.booleans())
    def have_a_turn(
        self, session_id: str, given: dict[str, str], made: list[str], handed: bool
    ) -> None:
        """Take what waits in a session, reply and end."""
        turn_id = self.begin(session_id, given)
        self.do(lambda ledger: ledger.record_reply(turn_id, reply("did", *made), None, 3.0))
        self.do(partial(finish, turn_id, handed))

    @rule(session_id=session_ids, given=results)
    def leave_a_turn_open(self, session_id: str, given: dict[str, str]) -> None:
        self.begin(session_id, given)

    def begin(self, session_id: str, given: dict[str, str]) -> str:
        self.turns += 1
        turn_id = f"t{self.turns}"
        waiting = self.do(lambda ledger: ledger.waiting(session_id))
        new = turn(
            turn_id,
            session_id=session_id,
            inbox_ids=tuple(entry.id for entry in waiting),
            results=given,
        )
        self.do(lambda ledger: ledger.begin_turn(new))
        return turn_id

    @precondition(lambda self: self.turns > 0)
    @rule(call=call_ids, data=st.data())
    def give(self, call: str, data: st.DataObject) -> None:
        turn_id = f"t{data.draw(st.integers(1, self.turns))}"
        self.do(lambda ledger: ledger.record_result(turn_id, result(call), 4.0))

    @rule(handed=st.booleans())
    def finish_all(self, handed: bool) -> None:
        for open_turn in self.do(lambda ledger: ledger.open_turns()):
            self.do(partial(finish, open_turn.id, handed))

    @rule(run_id=run_ids, added=events, at=times)
    def log(self, run_id: str, added: list[TextDelta], at: float) -> None:
        self.do(lambda ledger: ledger.log_run(run_id, added, at))

    @rule(run_id=run_ids, state=st.sampled_from(["completed", "failed"]), last=events, at=times)
    def end(self, run_id: str, state: str, last: list[TextDelta], at: float) -> None:
        ended = ended_as(RunState(state))
        self.do(lambda ledger: ledger.finish_run(run_id, ended, last, at))

    @rule(run_id=run_ids)
    def forget(self, run_id: str) -> None:
        self.do(lambda ledger: ledger.delete_run(run_id))

    @rule(logs=times, runs=times)
    def prune(self, logs: float, runs: float) -> None:
        self.do(lambda ledger: ledger.prune_runs(logs_before=logs, runs_before=runs))

    @rule(session_id=session_ids)
    def delete(self, session_id: str) -> None:
        self.do(lambda ledger: ledger.delete_session(session_id))

    @rule(session_id=session_ids, new_id=st.sampled_from(["s-r4", "s-r5"]))
    def branch(self, session_id: str, new_id: str) -> None:
        self.do(lambda ledger: ledger.branch_session(session_id, session(new_id)))

    @rule(session_id=session_ids, seq=st.integers(1, 6))
    def rewind(self, session_id: str, seq: int) -> None:
        self.do(lambda ledger: ledger.rewind(session_id, seq))

    @rule(session_id=session_ids, seq=st.integers(1, 6))
    def compact(self, session_id: str, seq: int) -> None:
        summary = UserMessage(content="in short", kind=InputKind.SUMMARY)
        self.do(lambda ledger: ledger.compact(session_id, seq, summary))

    @rule()
    def open_again(self) -> None:
        self.runner.run(self.ledger.close())
        self.ledger = self.open()
        assert self.snapshot() == self.seen

    def runs(self) -> list[Run]:
        return self.runner.run(self.ledger.runs(RunQuery(limit=None)))

    @invariant()
    def logs_have_no_gaps_and_ends_are_claimed_once(self) -> None:
        stayed: list[str] = []
        for run in self.runs():
            log = self.runner.run(self.ledger.run_log(run.id))
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            if run.previous_id is not None and not run.branched:
                stayed.append(run.previous_id)
        assert len(stayed) == len(set(stayed))

    @invariant()
    def an_outcome_stays(self) -> None:
        found = {run.id: run for run in self.runs()}
        self.outcomes = {i: outcome for i, outcome in self.outcomes.items() if i in found}
        for run in found.values():
            assert run.state.open == (run.outcome is None)
            if run.outcome is not None:
                assert self.outcomes.setdefault(run.id, run.outcome) == run.outcome
            else:
                assert run.id not in self.outcomes

    @invariant()
    def an_open_run_is_waiting_or_has_a_turn(self) -> None:
        for run in self.runs():
            waiting = self.runner.run(self.ledger.waiting(run.session_id))
            inside = any(entry.id == run.inbox_id for entry in waiting)
            assert not (inside and run.turn_id is not None)

    @invariant()
    def seats_are_taken_once(self) -> None:
        for name in SESSIONS:
            history = self.runner.run(self.ledger.history(name))
            assert len({stored.seq for stored in history}) == len(history)

    @invariant()
    def a_call_waits_where_it_was_made(self) -> None:
        for call_id in ("c1", "c2"):
            name = self.runner.run(self.ledger.handed_call(call_id))
            if name is not None:
                said = [stored.message for stored in self.runner.run(self.ledger.history(name))]
                replies = [m for m in said if isinstance(m, AssistantMessage)]
                assert any(call.id == call_id for m in replies for call in m.tool_calls)


async def finish(turn_id: str, handed: bool, ledger: Ledger) -> None:
    await ledger.finish_turn(turn_id, TurnState.DONE, None, 4.0, handed=handed)


async def call(verb: Verb, ledger: Ledger) -> Any:
    return await verb(ledger)


async def snapshot(ledger: Ledger) -> list[Any]:
    numbers = range(1, 6)
    everything = RunQuery(limit=None)
    still_open = RunQuery(states=(RunState.QUEUED, RunState.RUNNING), limit=None)
    return [
        await ledger.runs(everything),
        await ledger.runs(still_open),
        [await ledger.run_log(f"r{n}") for n in numbers],
        [await ledger.session(name) for name in SESSIONS],
        [await ledger.transcript(name) for name in SESSIONS],
        [await ledger.history(name) for name in SESSIONS],
        [await ledger.waiting(name) for name in SESSIONS],
        [await ledger.handed_call(call) for call in ("c1", "c2")],
        [await ledger.entries_of_turn(f"t{n}") for n in numbers],
        await ledger.run_under("k1", "x"),
    ]


TestRuns = RunMachine.TestCase
TestRuns.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
