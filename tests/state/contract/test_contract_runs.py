"""Runs: opened once, logged without gaps, ended once."""

import asyncio

import msgspec
import pytest

from fakes.ledgers import answer_run, ended_as, new_run, reply, session, turn
from hermes.domain.errors import Conflict
from hermes.domain.events import MessageCompleted, TextDelta, ToolStarted, TurnEvent, TurnFinished
from hermes.domain.inbound import InboxState
from hermes.domain.messages import AssistantMessage, Reasoning, ToolCall, UserMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import (
    RETRIED_WITHIN,
    RunEnding,
    RunKind,
    RunOutcome,
    RunQuery,
    RunState,
    SessionChoice,
)
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage


async def test_opening_a_run_commits_the_run_its_session_and_its_message(ledger: Ledger) -> None:
    opened = await ledger.open_run(new_run(text="hello", logged=True))
    run = opened.run
    assert not opened.duplicate
    assert (run.id, run.kind, run.key_id, run.state) == ("r1", RunKind.RUN, "k1", RunState.QUEUED)
    assert (run.session_id, run.agent_id, run.logged) == ("s-r1", "main", True)
    assert run.request == {"model": "hermes", "n": 1}
    assert run.turn_id is None
    assert run.outcome is None
    assert await ledger.run("r1") == run
    assert await ledger.session("s-r1") is not None
    assert await ledger.waiting("s-r1") == [opened.entry]
    assert opened.entry.id == run.inbox_id
    assert opened.entry.message.text == "hello"
    assert opened.entry.session_key == "agent:main:api_server:dm:r1"
    assert await ledger.run("r2") is None


async def test_a_run_knows_the_turn_that_took_its_message(ledger: Ledger) -> None:
    opened = await ledger.open_run(new_run(idempotency_key="once"))
    ended = await answer_run(ledger, opened)
    assert ended.turn_id == "t-r1"
    (entry,) = await ledger.entries_of_turn("t-r1")
    assert (entry.id, entry.state) == (opened.entry.id, InboxState.ANSWERED)
    assert await ledger.unanswered(["api_server"]) == []
    assert await ledger.entries_of_turn("nobody") == []


async def test_a_run_in_a_session_of_its_own_begins_with_its_turn(ledger: Ledger) -> None:
    first = turn("t1", session_id="s-r1", says="hello")
    opened = await ledger.open_run(msgspec.structs.replace(new_run(), turn=first))
    assert opened.turn is not None
    assert (opened.turn.id, opened.turn.state) == ("t1", TurnState.RUNNING)
    assert opened.run.turn_id == "t1"
    assert await ledger.waiting("s-r1") == []
    (entry,) = await ledger.entries_of_turn("t1")
    assert (entry.id, entry.state) == (opened.entry.id, InboxState.TAKEN)
    (asked,) = await ledger.history("s-r1")
    assert (asked.turn_id, asked.message) == ("t1", first.inputs[0])


async def test_a_run_tells_its_turn_what_the_ledger_would(ledger: Ledger) -> None:
    said = (UserMessage(content="and \ud800 then?"), AssistantMessage(text="then this"))
    first = turn("t1", session_id="s-r1", says="hel\udfffo")
    opened = await ledger.open_run(msgspec.structs.replace(new_run(history=said), turn=first))
    assert opened.opening is not None
    assert opened.opening.session == await ledger.session("s-r1")
    assert list(opened.opening.history) == await ledger.history("s-r1")


async def test_a_run_elsewhere_waits_for_its_turn(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    chosen = new_run(choice=SessionChoice(session_id="s1"))
    opened = await ledger.open_run(msgspec.structs.replace(chosen, turn=turn("t1")))
    assert (opened.turn, opened.opening) == (None, None)
    assert await ledger.waiting("s1") == [opened.entry]


async def test_the_last_reply_ends_the_turn_and_its_run_and_brings_the_prompt(
    ledger: Ledger,
) -> None:
    first = turn("t1", session_id="s-r1", says="hello")
    await ledger.open_run(msgspec.structs.replace(new_run(), turn=first))
    ending = RunEnding(run_id="r1", outcome=ended_as(text="ok"))
    said = await ledger.record_reply("t1", reply("ok"), None, 3.0, ends=ending, prompt="Be kind.")
    run, ended = await ledger.run("r1"), await ledger.turn("t1")
    assert run is not None
    assert ended is not None
    assert (run.state, run.outcome, run.turn_id) == (RunState.COMPLETED, ended_as(text="ok"), "t1")
    assert run.through_seq == said.seq
    assert ended.state is TurnState.DONE
    assert await ledger.unanswered(["api_server"]) == []
    kept = await ledger.session("s-r1")
    assert kept is not None
    assert kept.system_prompt == "Be kind."
    assert not await ledger.finish_run("r1", ended_as(), [], 4.0)


async def test_what_nobody_can_repeat_leaves_the_inbox_when_it_is_answered(ledger: Ledger) -> None:
    opened = await ledger.open_run(new_run())
    ended = await answer_run(ledger, opened)
    assert ended.turn_id == "t-r1"
    assert await ledger.run("r1") == ended
    assert await ledger.entry(opened.entry.id) is None
    assert await ledger.unanswered(["api_server"]) == []


async def test_a_repeated_idempotency_key_finds_the_first_run(ledger: Ledger) -> None:
    first = await ledger.open_run(new_run("r1", idempotency_key="once"))
    again = await ledger.open_run(new_run("r2", idempotency_key="once"))
    assert again.duplicate
    assert again.run == first.run
    assert again.entry == first.entry
    assert await ledger.session("s-r2") is None
    assert await ledger.run_under("k1", "once") == first.run
    ended = await answer_run(ledger, first)
    later = await ledger.open_run(new_run("r3", idempotency_key="once"))
    assert later.run == ended
    assert later.entry.turn_id == "t-r1"


async def test_a_retry_finds_the_runs_of_its_request(ledger: Ledger) -> None:
    for name, fingerprint, key_id in (("r1", "a", "k1"), ("r2", "b", "k1"), ("r3", "a", "k2")):
        await ledger.open_run(new_run(name, fingerprint=fingerprint, key_id=key_id))
    (found,) = await ledger.runs_retried("k1", "a", 100.0)
    assert found.id == "r1"
    ended = await answer_run(ledger, await ledger.open_run(new_run("r4", fingerprint="c")))
    assert await ledger.runs_retried("k1", "c", ended.updated_at + RETRIED_WITHIN) == [ended]
    assert await ledger.runs_retried("k1", "c", ended.updated_at + RETRIED_WITHIN + 1) == []
    now = ended.updated_at
    assert await ledger.runs_retried("k1", "c", now, since=now + 1) == [ended]
    for _ in range(2):
        await ledger.note_delivery(ended.id)
    assert await ledger.runs_retried("k1", "c", now, since=now) == [ended]
    assert await ledger.runs_retried("k1", "c", now, since=now + 1) == []


async def test_an_idempotency_key_belongs_to_one_request_of_one_api_key(ledger: Ledger) -> None:
    await ledger.open_run(new_run("r1", idempotency_key="once", fingerprint="a"))
    with pytest.raises(Conflict, match="once"):
        await ledger.open_run(new_run("r2", idempotency_key="once", fingerprint="b"))
    assert await ledger.run("r2") is None
    other = await ledger.open_run(
        new_run("r3", idempotency_key="once", fingerprint="b", key_id="k2")
    )
    assert not other.duplicate
    assert await ledger.run_under("k3", "once") is None


async def test_of_requests_at_once_with_one_idempotency_key_one_becomes_a_run(
    ledger: Ledger,
) -> None:
    opened = await asyncio.gather(
        *(ledger.open_run(new_run(f"r{n}", idempotency_key="once")) for n in range(20))
    )
    assert len({one.run.id for one in opened}) == 1
    assert sum(not one.duplicate for one in opened) == 1
    assert len(await ledger.runs(RunQuery())) == 1
    assert (await ledger.stats()).sessions == 1


async def test_a_run_needs_ids_of_its_own(ledger: Ledger) -> None:
    await ledger.open_run(new_run("r1"))
    with pytest.raises(Conflict, match="run `r1`"):
        await ledger.open_run(new_run("r1"))
    await ledger.delete_run("r1")
    another = msgspec.structs.replace(new_run("r1"), session=session("fresh"))
    with pytest.raises(Conflict, match="message `r1`"):
        await ledger.open_run(another)
    assert await ledger.session("fresh") is None, "all or nothing"
    await ledger.create_session(session("s-r5"))
    with pytest.raises(Conflict, match="session `s-r5`"):
        await ledger.open_run(new_run("r5"))
    assert await ledger.run("r5") is None


def some_events() -> list[TurnEvent]:
    return [
        TextDelta("Grüße 数"),
        ToolStarted(call_id="c1", name="t", arguments={"a": [1, None]}, emoji="x", label="l"),
        MessageCompleted(
            message_id=7,
            message=msgspec.structs.replace(reply("a", "c1"), reasoning=Reasoning(text="why")),
        ),
    ]


def the_end() -> TurnFinished:
    return TurnFinished(
        outcome=TurnState.FAILED,
        text="",
        usage=Usage(input_tokens=1),
        cost_usd=None,
        model_calls=1,
        error=TurnError(code="x", message="It broke."),
        handed=(ToolCall(id="c1", name="t", arguments="{}"),),
    )


async def test_the_log_counts_from_one_without_a_gap(ledger: Ledger) -> None:
    await ledger.open_run(new_run(logged=True))
    await ledger.open_run(new_run("r2", logged=True))
    assert await ledger.log_run("r1", [], 2.0) == 0
    assert await ledger.log_run("r1", some_events(), 2.0) == 3
    assert await ledger.log_run("r2", some_events()[:1], 2.0) == 1
    assert await ledger.log_run("r1", [TextDelta("more")], 3.0) == 4
    assert await ledger.finish_run("r1", ended_as(), [the_end()], 4.0)
    log = await ledger.run_log("r1")
    assert [event.seq for event in log] == [1, 2, 3, 4, 5]
    assert [event.event for event in log] == [*some_events(), TextDelta("more"), the_end()]
    assert [event.at for event in log] == [2.0, 2.0, 2.0, 3.0, 4.0]
    assert await ledger.run_log("r1", after=3) == log[3:]
    assert await ledger.run_log("r1", after=1, limit=2) == log[1:3]
    assert await ledger.run_log("nobody") == []


async def test_an_outcome_is_recorded_once_with_its_last_events(ledger: Ledger) -> None:
    await ledger.open_run(new_run())
    outcome = RunOutcome(
        state=RunState.FAILED,
        text="half",
        handed=(ToolCall(id="c1", name="t", arguments="{}"),),
        usage=Usage(input_tokens=5, output_tokens=2),
        cost_usd=0.5,
        model_calls=2,
        error=TurnError(code="x", message="It broke.", hint="Try again."),
    )
    assert await ledger.finish_run("r1", outcome, [the_end()], 4.0)
    run = await ledger.run("r1")
    assert run is not None
    assert (run.state, run.outcome, run.updated_at) == (RunState.FAILED, outcome, 4.0)
    assert not await ledger.finish_run("r1", ended_as(), [TextDelta("late")], 5.0)
    assert await ledger.log_run("r1", [TextDelta("late")], 5.0) == 1
    assert await ledger.run("r1") == run
    assert len(await ledger.run_log("r1")) == 1
    assert not await ledger.finish_run("nobody", ended_as(), [], 4.0)
    assert await ledger.log_run("nobody", [TextDelta("x")], 4.0) == 0


async def test_of_many_who_end_a_run_one_does(ledger: Ledger) -> None:
    await ledger.open_run(new_run())
    ends = (ledger.finish_run("r1", ended_as(), [the_end()], 4.0) for _ in range(10))
    assert sum(await asyncio.gather(*ends)) == 1
    assert len(await ledger.run_log("r1")) == 1


async def test_a_run_does_not_end_in_a_state_of_an_open_one(ledger: Ledger) -> None:
    await ledger.open_run(new_run())
    with pytest.raises(ValueError, match="running"):
        await ledger.finish_run("r1", ended_as(RunState.RUNNING), [], 3.0)


async def test_runs_are_listed_newest_first_and_filtered(ledger: Ledger) -> None:
    for number in range(6):
        new = new_run(f"r{number}", key_id=f"k{number % 2}", at=float(number))
        await ledger.open_run(new)
    await ledger.open_run(
        msgspec.structs.replace(
            new_run("chat", at=3.0, choice=SessionChoice(session_id="s-r0")), kind=RunKind.CHAT
        )
    )
    await ledger.finish_run("r2", ended_as(RunState.FAILED), [], 20.0)
    await ledger.finish_run("r3", ended_as(), [], 30.0)

    async def found(query: RunQuery) -> list[str]:
        return [run.id for run in await ledger.runs(query)]

    assert await found(RunQuery()) == ["r5", "r4", "chat", "r3", "r2", "r1", "r0"]
    assert await found(RunQuery(limit=2, offset=1)) == ["r4", "chat"]
    assert await found(RunQuery(limit=None, key_id="k1")) == ["r5", "chat", "r3", "r1"]
    assert await found(RunQuery(session_id="s-r0")) == ["chat", "r0"]
    assert await found(RunQuery(session_id="s-r0", key_id="k0")) == ["r0"]
    assert await found(RunQuery(session_id="s-r3", states=(RunState.QUEUED,))) == []
    assert await found(RunQuery(kinds=(RunKind.CHAT, RunKind.RESPONSE))) == ["chat"]
    assert await found(RunQuery(states=(RunState.FAILED, RunState.COMPLETED))) == ["r3", "r2"]
    still_open = (RunState.QUEUED, RunState.RUNNING, RunState.WAITING)
    assert await found(RunQuery(states=still_open, key_id="k1")) == ["r5", "chat", "r1"]
    assert await found(RunQuery(states=(RunState.FAILED,))) == ["r2"]
    assert await found(RunQuery(updated_before=2.0)) == ["r1", "r0"]
    assert await found(RunQuery(agent_id="other")) == []


async def test_a_deleted_run_takes_its_log_but_not_its_session(ledger: Ledger) -> None:
    opened = await ledger.open_run(new_run(idempotency_key="once"))
    await answer_run(ledger, opened)
    assert await ledger.delete_run("r1")
    assert not await ledger.delete_run("r1")
    assert await ledger.run("r1") is None
    assert await ledger.run_log("r1") == []
    assert len(await ledger.history("s-r1")) == 2
    assert not (await ledger.open_run(new_run("r2", idempotency_key="once"))).duplicate


async def test_old_logs_go_first_and_old_runs_later_but_never_open_ones(ledger: Ledger) -> None:
    for name, ends_at in (("old", 10.0), ("older", 5.0), ("new", 20.0), ("open", None)):
        await ledger.open_run(new_run(name))
        await ledger.log_run(name, some_events(), 2.0)
        if ends_at is not None:
            await ledger.finish_run(name, ended_as(), [], ends_at)
    assert await ledger.prune_runs(logs_before=15.0, runs_before=7.0) == 1
    assert await ledger.run("older") is None
    kept = [len(await ledger.run_log(name)) for name in ("older", "old", "new", "open")]
    assert kept == [0, 0, 3, 3]
    assert await ledger.run("old") is not None
    assert await ledger.prune_runs(logs_before=15.0, runs_before=7.0) == 0


async def test_many_old_runs_go_at_once(ledger: Ledger) -> None:
    names = [f"r{number}" for number in range(450)]
    await asyncio.gather(*(ledger.open_run(new_run(name)) for name in names))
    end = [the_end()]
    await asyncio.gather(*(ledger.finish_run(name, ended_as(), end, 2.0) for name in names))
    assert await ledger.prune_runs(logs_before=3.0, runs_before=1.0) == 0
    assert [await ledger.run_log(name) for name in names] == [[]] * len(names)
    assert await ledger.prune_runs(logs_before=3.0, runs_before=3.0) == len(names)
    assert await ledger.runs(RunQuery()) == []


async def test_a_deleted_session_takes_its_runs_except_open_ones(ledger: Ledger) -> None:
    first = await ledger.open_run(new_run("r1"))
    await answer_run(ledger, first)
    in_session = SessionChoice(session_id="s-r1")
    waiting = await ledger.open_run(new_run("r2", choice=in_session, results={"c1": "secret"}))
    await ledger.log_run("r2", some_events(), 2.0)
    assert await ledger.delete_session("s-r1")
    assert await ledger.run("r1") is None
    assert await ledger.run("r2") == msgspec.structs.replace(waiting.run, updated_at=2.0)
    assert len(await ledger.run_log("r2")) == 3
    assert await ledger.finish_run("r2", ended_as(RunState.CANCELLED), [the_end()], 3.0)
    ended = await ledger.run("r2")
    assert ended is not None
    assert (ended.state, ended.through_seq) == (RunState.CANCELLED, None)
    again = await ledger.open_run(new_run("r3", idempotency_key="x"))
    found = await ledger.open_run(new_run("r4", idempotency_key="x"))
    assert found.entry == again.entry
    assert (await ledger.stats()).inbox_waiting == 1


async def test_what_a_deleted_session_was_told_is_not_kept(ledger: Ledger) -> None:
    new = new_run("r1", text="secret", results={"c1": "secret"}, idempotency_key="once")
    await ledger.open_run(new)
    await ledger.delete_session("s-r1")
    entry = (await ledger.open_run(new_run("r2", idempotency_key="once"))).entry
    assert entry.state is InboxState.DROPPED
    assert "secret" not in msgspec.json.encode(entry.message).decode()


async def test_pruning_sessions_leaves_no_run_behind(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1")))
    await ledger.begin_turn(turn("t9", session_id="s-r1"))
    await ledger.finish_turn("t9", TurnState.DONE, None, 9.0)
    assert await ledger.delete_session("s-r1")
    assert await ledger.runs(RunQuery(limit=None)) == []
