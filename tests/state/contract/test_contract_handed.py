"""Calls that a turn hands to its client get their results with the next turn."""

from fakes.ledgers import after, answer_run, new_run, reply, result, say, session, texts, turn
from hermes.domain.messages import TextPart, ToolMessage, ToolOutcome
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import ClientResult, NewTurn, TurnState

NOT_ANSWERED = "The client did not answer this call."


async def hand_out(ledger: Ledger) -> None:
    """Have a turn that answers `c1` itself and hands out `c2` and `c3`."""
    await ledger.create_session(session())
    await ledger.begin_turn(turn("t1", says="go"))
    await ledger.record_reply("t1", reply("work", "c1", "c2", "c3"), None, 3.0)
    await ledger.record_result("t1", result("c1", "one"), 3.5)
    await ledger.finish_turn("t1", TurnState.DONE, None, 4.0, handed=True)


async def test_late_results_stand_in_the_seats_of_their_calls(ledger: Ledger) -> None:
    await hand_out(ledger)
    begun = await ledger.begin_turn(
        turn("t2", says="next", results={"c3": "three", "c2": "two", "c9": "nobody asked"})
    )
    assert texts(list(begun.inputs)) == ["next"]
    history = await ledger.history("s1")
    assert texts(history) == ["go", "work", "one", "two", "three", "next"]
    assert [stored.seq for stored in history] == [1, 2, 3, 4, 5, 6]
    two = history[3]
    assert two.message == ToolMessage(call_id="c2", name="tool_c2", content="two")
    assert (two.turn_id, two.at) == ("t1", 2.0)
    found = await ledger.session("s1")
    assert found is not None
    assert found.message_count == 6


async def test_a_call_the_client_does_not_answer_says_so(ledger: Ledger) -> None:
    await hand_out(ledger)
    await ledger.begin_turn(turn("t2", says="never mind", results={"c2": "two"}))
    history = await ledger.history("s1")
    assert texts(history) == ["go", "work", "one", "two", NOT_ANSWERED, "never mind"]
    assert history[4].message == ToolMessage(
        call_id="c3", name="tool_c3", content=NOT_ANSWERED, outcome=ToolOutcome.SKIPPED
    )


async def test_a_turn_may_begin_with_results_alone(ledger: Ledger) -> None:
    await hand_out(ledger)
    results = (
        ClientResult(call_id="c2", content=(TextPart("two"),)),
        ClientResult(call_id="c3", content="three"),
    )
    new = NewTurn(id="t2", session_id="s1", owner="o", inputs=(), results=results, at=5.0)
    assert (await ledger.begin_turn(new)).inputs == ()
    history = await ledger.history("s1")
    assert len(history) == 5
    assert history[3].message == ToolMessage(
        call_id="c2", name="tool_c2", content=(TextPart("two"),)
    )
    reply_of_next = await ledger.record_reply("t2", reply("done"), None, 6.0)
    assert reply_of_next.seq == 6


async def test_results_are_taken_once_and_only_from_turns_that_handed_out(ledger: Ledger) -> None:
    await hand_out(ledger)
    await ledger.begin_turn(turn("t2", says=None, results={"c2": "two", "c3": "three"}))
    await ledger.record_reply("t2", reply("", "c1"), None, 6.0)
    await ledger.finish_turn("t2", TurnState.DONE, None, 7.0)
    before = await ledger.history("s1")
    await ledger.begin_turn(turn("t3", says=None, results={"c1": "late", "c2": "again"}))
    assert await ledger.history("s1") == before


async def test_a_handed_call_is_found_until_it_has_a_result(ledger: Ledger) -> None:
    await ledger.create_session(session("s2"))
    assert await ledger.handed_call("c2") is None
    await hand_out(ledger)
    assert await ledger.handed_call("c1") is None, "answered here"
    assert await ledger.handed_call("c2") == "s1"
    assert await ledger.handed_call("c3") == "s1"
    await say(ledger, "unrelated", session_id="s2", turn_id="t8")
    assert await ledger.handed_call("c2") == "s1"
    await ledger.begin_turn(turn("t2", says=None, results={"c2": "two"}))
    assert await ledger.handed_call("c2") is None
    assert await ledger.handed_call("c3") is None


async def test_of_equal_call_ids_the_latest_handed_one_is_meant(ledger: Ledger) -> None:
    await hand_out(ledger)
    await ledger.create_session(session("s2"))
    await ledger.begin_turn(turn("t5", session_id="s2"))
    await ledger.record_reply("t5", reply("", "c2"), None, 5.0)
    await ledger.finish_turn("t5", TurnState.DONE, None, 6.0, handed=True)
    assert await ledger.handed_call("c2") == "s2"
    await ledger.begin_turn(turn("t6", session_id="s2", results={"c2": "here"}))
    assert await ledger.handed_call("c2") == "s1"
    await ledger.delete_session("s1")
    assert await ledger.handed_call("c2") is None


async def test_a_call_that_was_undone_waits_for_nothing(ledger: Ledger) -> None:
    await hand_out(ledger)
    await ledger.rewind("s1", 2)
    assert await ledger.handed_call("c2") is None
    await ledger.begin_turn(turn("t2", says="else", results={"c2": "two"}))
    assert texts(await ledger.history("s1")) == ["go", "else"]


async def test_a_branch_by_hand_says_that_nobody_answered_there(ledger: Ledger) -> None:
    await hand_out(ledger)
    branch = await ledger.branch_session("s1", session("s2"))
    assert texts(await ledger.history("s2")) == ["go", "work", "one", NOT_ANSWERED, NOT_ANSWERED]
    assert branch.message_count == 5
    assert await ledger.session("s2") == branch
    assert await ledger.handed_call("c2") == "s1", "the origin still waits"


async def test_each_who_goes_on_from_a_run_gives_results_of_his_own(ledger: Ledger) -> None:
    first = await ledger.open_run(new_run("r1", text="go"))
    await answer_run(ledger, first, reply("work", "c1", "c2"))
    mine = await ledger.open_run(
        new_run("r2", choice=after("r1"), text="two", results={"c1": "mine", "c2": "mine too"})
    )
    await answer_run(ledger, mine)
    theirs = await ledger.open_run(
        new_run("r3", choice=after("r1"), text="other", results={"c1": "theirs"})
    )
    assert theirs.run.branched
    await answer_run(ledger, theirs)
    assert texts(await ledger.history("s-r1")) == ["go", "work", "mine", "mine too", "two", "ok"]
    assert texts(await ledger.history("s-r3")) == [
        "go",
        "work",
        "theirs",
        NOT_ANSWERED,
        "other",
        "ok",
    ]
