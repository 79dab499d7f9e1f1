"""Which session a run continues: its own, a named one, or where another run ended."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from fakes.ledgers import after, answer_run, arrival, ended_as, new_run, reply, say, texts, turn
from fakes.ledgers import session as a_session
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.messages import InputKind, Message, ToolMessage, UserMessage
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import NewRun, RunState, SessionChoice
from hermes.domain.session import Lineage, Session
from hermes.domain.turn import TurnState


async def session(ledger: Ledger, session_id: str) -> Session:
    found = await ledger.session(session_id)
    assert found is not None
    return found


async def test_a_new_session_begins_with_the_history_it_is_given(ledger: Ledger) -> None:
    said: tuple[Message, ...] = (
        UserMessage(content="what time is it?"),
        reply("", "c1"),
        ToolMessage(call_id="c1", name="tool_c1", content="noon"),
        reply("It is noon."),
    )
    await ledger.open_run(new_run(history=said))
    stored = await ledger.history("s-r1")
    assert [one.message for one in stored] == list(said)
    assert [one.seq for one in stored] == [1, 2, 3, 4]
    assert {one.turn_id for one in stored} == {None}
    opened = await session(ledger, "s-r1")
    assert (opened.message_count, opened.tool_call_count) == (4, 1)
    assert opened.preview == "what time is it?"
    begun = await ledger.begin_turn(turn("t1", session_id="s-r1", says="and now?"))
    assert begun.inputs[0].seq == 5


async def test_a_run_in_a_named_session_leaves_its_history_alone(ledger: Ledger) -> None:
    await ledger.create_session(a_session("s1"))
    await say(ledger, "first", turn_id="t1")
    in_session = SessionChoice(session_id="s1")
    seed = (UserMessage(content="not for you"),)
    opened = await ledger.open_run(new_run(choice=in_session, history=seed))
    assert opened.run.session_id == "s1"
    assert await ledger.session("s-r1") is None
    await answer_run(ledger, opened)
    assert texts(await ledger.history("s1")) == ["first", "ok", "hi", "ok"]
    with pytest.raises(NotFound, match="nowhere"):
        await ledger.open_run(new_run("r2", choice=SessionChoice(session_id="nowhere")))
    assert await ledger.run("r2") is None


async def test_a_session_key_opens_a_session_once_and_then_finds_it(ledger: Ledger) -> None:
    keyed = SessionChoice(key="agent:main:api_server:dm:ada")
    first = await ledger.open_run(
        new_run("r1", choice=keyed, history=(UserMessage(content="before"),))
    )
    again = await ledger.open_run(new_run("r2", choice=keyed, history=(UserMessage(content="x"),)))
    assert first.run.session_id == again.run.session_id == "s-r1"
    assert texts(await ledger.history("s-r1")) == ["before"]
    bound = await ledger.session_for_key("agent:main:api_server:dm:ada")
    assert bound == await session(ledger, "s-r1")
    assert await ledger.session("s-r2") is None


async def test_a_run_goes_on_where_another_ended(ledger: Ledger) -> None:
    first = await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    assert first.through_seq == 2
    opened = await ledger.open_run(new_run("r2", choice=after("r1"), text="two"))
    assert (opened.run.session_id, opened.run.branched) == ("s-r1", False)
    assert opened.run.previous_id == "r1"
    second = await answer_run(ledger, opened)
    assert second.through_seq == 4
    third = await ledger.open_run(new_run("r3", choice=after("r2"), text="three"))
    assert third.run.session_id == "s-r1"
    assert texts(await ledger.history("s-r1")) == ["one", "ok", "two", "ok"]


async def test_going_on_from_an_earlier_end_makes_a_branch(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    await ledger.freeze_prompt("s-r1", "You are Hermes.")
    await answer_run(ledger, await ledger.open_run(new_run("r2", choice=after("r1"), text="two")))
    opened = await ledger.open_run(new_run("r3", choice=after("r1"), text="other"))
    assert (opened.run.session_id, opened.run.branched) == ("s-r3", True)
    assert texts(await ledger.history("s-r3")) == ["one", "ok"]
    branch = await session(ledger, "s-r3")
    assert (branch.parent_id, branch.lineage) == ("s-r1", Lineage.BRANCH)
    assert (branch.system_prompt, branch.message_count) == ("You are Hermes.", 2)
    ended = await answer_run(ledger, opened)
    assert ended.through_seq == 4
    assert texts(await ledger.history("s-r3")) == ["one", "ok", "other", "ok"]
    assert texts(await ledger.history("s-r1")) == ["one", "ok", "two", "ok"]
    onward = await ledger.open_run(new_run("r4", choice=after("r3")))
    assert (onward.run.session_id, onward.run.branched) == ("s-r3", False)


async def test_of_many_who_go_on_at_once_one_stays_in_the_session(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    opened = await asyncio.gather(
        *(ledger.open_run(new_run(f"n{n}", choice=after("r1"))) for n in range(20))
    )
    stayed = [one.run for one in opened if not one.run.branched]
    assert [run.session_id for run in stayed] == ["s-r1"]
    branches = {one.run.session_id for one in opened if one.run.branched}
    assert len(branches) == 19
    for branch in branches:
        assert texts(await ledger.history(branch)) == ["one", "ok"]


async def test_something_said_since_makes_a_branch(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    await say(ledger, "by somebody else", session_id="s-r1", turn_id="t9")
    opened = await ledger.open_run(new_run("r2", choice=after("r1")))
    assert opened.run.branched
    assert texts(await ledger.history("s-r2")) == ["one", "ok"]


async def test_something_waiting_or_under_way_makes_a_branch(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    entry = (await ledger.admit(arrival("n1", session_id="s-r1"))).entry
    assert (await ledger.open_run(new_run("r2", choice=after("r1")))).run.branched
    await ledger.begin_turn(turn("t9", session_id="s-r1", says=None, inbox_ids=(entry.id,)))
    opened = await ledger.open_run(new_run("r3", choice=after("r1")))
    assert opened.run.branched
    assert texts(await ledger.history("s-r3")) == ["one", "ok"]
    await ledger.finish_turn("t9", TurnState.DONE, None, 9.0)
    assert not (await ledger.open_run(new_run("r4", choice=after("r1")))).run.branched


async def test_only_a_run_that_has_ended_can_be_gone_on_from(ledger: Ledger) -> None:
    await ledger.open_run(new_run("r1"))
    with pytest.raises(Conflict, match=r"r1.*not ended"):
        await ledger.open_run(new_run("r2", choice=after("r1")))
    with pytest.raises(NotFound, match="nobody"):
        await ledger.open_run(new_run("r2", choice=after("nobody")))
    assert await ledger.run("r2") is None
    await ledger.delete_session("s-r1")
    await ledger.finish_run("r1", ended_as(RunState.CANCELLED), [], 3.0)
    with pytest.raises(NotFound, match="s-r1"):
        await ledger.open_run(new_run("r2", choice=after("r1")))


async def test_a_run_ends_with_its_turn_even_if_the_next_one_is_faster(ledger: Ledger) -> None:
    opened = await ledger.open_run(new_run("r1", text="one"))
    await ledger.begin_turn(turn("t1", session_id="s-r1", says="one", inbox_ids=(opened.entry.id,)))
    await ledger.record_reply("t1", reply("ok"), None, 3.0)
    await ledger.finish_turn("t1", TurnState.DONE, None, 4.0)
    await ledger.begin_turn(turn("t2", session_id="s-r1", says="two"))
    await ledger.finish_run("r1", ended_as(), [], 5.0)
    ended = await ledger.run("r1")
    assert ended is not None
    assert ended.through_seq == 2
    branch = await ledger.open_run(new_run("r2", choice=after("r1")))
    assert branch.run.branched
    assert texts(await ledger.history("s-r2")) == ["one", "ok"]


async def test_a_run_taken_out_of_the_queue_ends_before_the_turn_that_runs(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    queued = await ledger.open_run(new_run("r2", choice=SessionChoice(session_id="s-r1")))
    await ledger.begin_turn(turn("t9", session_id="s-r1", says="two"))
    await ledger.record_reply("t9", reply("", "c1"), None, 3.0)
    await ledger.drop([queued.entry.id], "stopped")
    await ledger.finish_run("r2", ended_as(RunState.CANCELLED), [], 4.0)
    assert (await ledger.open_run(new_run("r3", choice=after("r2")))).run.branched
    assert texts(await ledger.history("s-r3")) == ["one", "ok"]


async def test_a_branch_has_the_history_from_before_a_later_compaction(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    early = UserMessage(content="early summary", kind=InputKind.SUMMARY)
    await ledger.compact("s-r1", 1, early)
    await answer_run(ledger, await ledger.open_run(new_run("r2", choice=after("r1"), text="two")))
    await answer_run(ledger, await ledger.open_run(new_run("r3", choice=after("r2"), text="three")))
    late = UserMessage(content="late summary", kind=InputKind.SUMMARY)
    await ledger.compact("s-r1", 5, late)
    assert texts(await ledger.history("s-r1")) == ["late summary", "ok"]
    await ledger.open_run(new_run("b1", choice=after("r1")))
    assert texts(await ledger.history("s-b1")) == ["one", "ok"]
    await ledger.open_run(new_run("b2", choice=after("r2")))
    assert texts(await ledger.history("s-b2")) == ["early summary", "ok", "two", "ok"]
    onward = await ledger.open_run(new_run("b3", choice=after("r3")))
    assert not onward.run.branched, "compacting says nothing new"


async def test_what_was_undone_stays_undone_in_a_branch(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    await answer_run(ledger, await ledger.open_run(new_run("r2", choice=after("r1"), text="two")))
    await ledger.rewind("s-r1", 3)
    await say(ledger, "three", session_id="s-r1", turn_id="t9")
    await ledger.open_run(new_run("b2", choice=after("r2")))
    assert texts(await ledger.history("s-b2")) == ["one", "ok"]


async def test_a_refused_branch_leaves_nothing_behind(ledger: Ledger) -> None:
    await answer_run(ledger, await ledger.open_run(new_run("r1", text="one")))
    await ledger.open_run(new_run("r2", choice=after("r1")))
    taken = msgspec.structs.replace(new_run("r3", choice=after("r1")), session=a_session("s-r1"))
    with pytest.raises(Conflict, match="s-r1"):
        await ledger.open_run(taken)
    assert await ledger.run("r3") is None
    assert (await ledger.stats()).sessions == 1


async def test_an_id_that_two_keys_choose_at_once_is_that_of_the_first(ledger: Ledger) -> None:
    def choosing(run_id: str, key_id: str) -> NewRun:
        new = new_run(run_id, key_id=key_id, choice=SessionChoice(session_id="mine", opened=True))
        return replace(new, session=replace(new.session, id="mine", user_id=f"key:{key_id}"))

    first = await ledger.open_run(choosing("r1", "k1"))
    again = await ledger.open_run(choosing("r2", "k1"))
    assert first.run.session_id == again.run.session_id == "mine"
    with pytest.raises(Conflict, match="taken a moment ago"):
        await ledger.open_run(choosing("r3", "k2"))
    assert await ledger.run("r3") is None
