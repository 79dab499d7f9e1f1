import asyncio

import msgspec
import pytest

from fakes.ledgers import arrival, reply, result, session, texts, turn, usage
from hermes.domain.errors import Conflict, NotFound, SessionBusy
from hermes.domain.inbound import InboxState
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    FinishReason,
    ImagePart,
    InputKind,
    Reasoning,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import NewTurn, TurnError, TurnState


async def test_a_turn_begins_with_its_inputs_in_the_history(ledger: Ledger) -> None:
    await ledger.create_session(session())
    begun = await ledger.begin_turn(turn(says="hello"))
    assert begun.turn.state is TurnState.RUNNING
    assert begun.turn.agent_id == "main"
    assert await ledger.turn("t1") == begun.turn
    assert await ledger.history("s1") == list(begun.inputs)
    found = await ledger.session("s1")
    assert found is not None
    assert (found.message_count, found.preview, found.updated_at) == (1, "hello", 2.0)


async def test_a_session_has_one_open_turn_at_most(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn("t1"))
    with pytest.raises(SessionBusy):
        await ledger.begin_turn(turn("t2", says="nothing of this stays"))
    assert texts(await ledger.history("s1")) == ["hello"]
    await ledger.finish_turn("t1", TurnState.DONE, None, 3.0)
    await ledger.begin_turn(turn("t2"))


async def test_of_turns_that_begin_at_once_one_wins(ledger: Ledger) -> None:
    await ledger.create_session(session())
    outcomes = await asyncio.gather(
        *(ledger.begin_turn(turn(f"t{n}", says=str(n))) for n in range(20)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, SessionBusy)]
    assert len(refused) == 19
    assert len(await ledger.history("s1")) == 1


async def test_a_turn_needs_a_session_and_an_id_of_its_own(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        await ledger.begin_turn(turn())
    await ledger.create_session(session())
    await ledger.begin_turn(turn("t1"))
    await ledger.finish_turn("t1", TurnState.DONE, None, 3.0)
    with pytest.raises(Conflict):
        await ledger.begin_turn(turn("t1"))


async def test_a_turn_takes_its_inbox_entries_or_does_not_begin(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.create_session(session("s2"))
    first = (await ledger.admit(arrival("n1"))).entry.id
    other = (await ledger.admit(arrival("n2", session_id="s2"))).entry.id
    for missing in (other, 999):
        with pytest.raises(Conflict):
            await ledger.begin_turn(turn("t0", inbox_ids=(first, missing)))
    with pytest.raises(Conflict):
        await ledger.begin_turn(turn("t0", inbox_ids=(first, first)))
    assert await ledger.turn("t0") is None
    assert [entry.id for entry in await ledger.waiting("s1")] == [first]
    await ledger.begin_turn(turn("t1", inbox_ids=(first,)))
    assert await ledger.waiting("s1") == []
    taken = (await ledger.admit(arrival("n1"))).entry
    assert (taken.state, taken.turn_id) == (InboxState.TAKEN, "t1")
    await ledger.finish_turn("t1", TurnState.DONE, None, 3.0)
    with pytest.raises(Conflict):
        await ledger.begin_turn(turn("t2", inbox_ids=(first,)))


async def test_results_stand_in_call_order_whatever_order_they_arrive_in(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.record_reply("t1", reply("work", "c1", "c2", "c3"), None, 3.0)
    await ledger.record_result("t1", result("c3", "three"), 4.0)
    await ledger.record_result("t1", result("c1", "one"), 5.0)
    steer = UserMessage(content="faster", kind=InputKind.STEER)
    await ledger.add_inputs("t1", [steer], [], 5.5)
    await ledger.record_result("t1", result("c2", "two"), 6.0)
    stored = await ledger.history("s1")
    assert texts(stored) == ["hello", "work", "one", "two", "three", "faster"]
    assert [message.seq for message in stored] == [1, 2, 3, 4, 5, 6]
    found = await ledger.session("s1")
    assert found is not None
    assert (found.message_count, found.tool_call_count) == (6, 3)


async def test_a_call_has_one_result(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.record_reply("t1", reply("", "c1"), None, 3.0)
    await ledger.record_result("t1", result("c1"), 4.0)
    with pytest.raises(Conflict):
        await ledger.record_result("t1", result("c1", "again"), 5.0)
    with pytest.raises(NotFound):
        await ledger.record_result("t1", result("c9"), 5.0)
    assert texts(await ledger.history("s1")) == ["hello", "", "done"]


async def test_call_ids_are_unique_within_a_turn_and_may_return_in_the_next(
    ledger: Ledger,
) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn("t1"))
    with pytest.raises(Conflict):
        await ledger.record_reply("t1", reply("twice", "c1", "c1"), usage(), 3.0)
    await ledger.record_reply("t1", reply("", "c1"), None, 3.0)
    with pytest.raises(Conflict):
        await ledger.record_reply("t1", reply("", "c1"), None, 3.0)
    await ledger.record_result("t1", result("c1", "first"), 3.0)
    assert (await ledger.spent()).calls == 0, "a refused reply leaves no usage behind"
    await ledger.finish_turn("t1", TurnState.DONE, None, 4.0)
    await ledger.begin_turn(turn("t2"))
    await ledger.record_reply("t2", reply("", "c1"), None, 5.0)
    await ledger.record_result("t2", result("c1", "second"), 6.0)
    assert texts(await ledger.history("s1"))[-1] == "second"


async def test_a_call_is_started_at_most_once(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.record_reply("t1", reply("", "c1", "c2"), None, 3.0)
    assert await ledger.started_calls("t1") == frozenset()
    await ledger.start_call("t1", "c1", 4.0)
    assert await ledger.started_calls("t1") == {"c1"}
    with pytest.raises(Conflict):
        await ledger.start_call("t1", "c1", 4.0)
    with pytest.raises(NotFound):
        await ledger.start_call("t1", "c9", 4.0)


async def test_a_reply_and_its_usage_are_counted_together(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.record_reply("t1", reply("a"), usage(tokens=10, cost=0.5), 3.0)
    await ledger.record_reply("t1", reply("b"), usage(tokens=20, cost=None), 4.0)
    found = await ledger.session("s1")
    assert found is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (30, 2)
    assert found.cost_usd == 0.5


async def test_a_turn_waits_and_goes_on(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.set_waiting("t1", waiting=True, at=3.0)
    waiting = await ledger.turn("t1")
    assert waiting is not None
    assert (waiting.state, waiting.updated_at) == (TurnState.WAITING, 3.0)
    await ledger.set_waiting("t1", waiting=False, at=4.0)
    running = await ledger.turn("t1")
    assert running is not None
    assert running.state is TurnState.RUNNING


async def test_an_ended_turn_takes_nothing_more(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    await ledger.record_reply("t1", reply("", "c1"), None, 3.0)
    error = TurnError(code="model", message="It broke.", hint="Try again.")
    await ledger.finish_turn("t1", TurnState.FAILED, error, 5.0)
    ended = await ledger.turn("t1")
    assert ended is not None
    assert (ended.state, ended.finished_at, ended.error) == (TurnState.FAILED, 5.0, error)
    for refused in (
        ledger.finish_turn("t1", TurnState.DONE, None, 6.0),
        ledger.record_reply("t1", reply("late"), usage(), 6.0),
        ledger.record_result("t1", result("c1"), 6.0),
        ledger.start_call("t1", "c1", 6.0),
        ledger.set_waiting("t1", waiting=True, at=6.0),
        ledger.add_inputs("t1", [UserMessage(content="x")], [], 6.0),
    ):
        with pytest.raises(Conflict):
            await refused
    assert texts(await ledger.history("s1")) == ["hello", ""]


async def test_an_unknown_turn_is_said_to_be_unknown(ledger: Ledger) -> None:
    assert await ledger.turn("t9") is None
    for refused in (
        ledger.finish_turn("t9", TurnState.DONE, None, 6.0),
        ledger.record_reply("t9", reply("late"), None, 6.0),
        ledger.set_waiting("t9", waiting=True, at=6.0),
    ):
        with pytest.raises(NotFound):
            await refused


async def test_a_turn_cannot_end_in_an_open_state(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    with pytest.raises(ValueError, match="running"):
        await ledger.finish_turn("t1", TurnState.RUNNING, None, 3.0)


async def test_open_turns_are_listed_oldest_first(ledger: Ledger) -> None:
    for n in range(3):
        await ledger.create_session(session(f"s{n}"))
        await ledger.begin_turn(turn(f"t{n}", session_id=f"s{n}", at=float(10 - n)))
    await ledger.finish_turn("t1", TurnState.DONE, None, 11.0)
    assert [found.id for found in await ledger.open_turns()] == ["t2", "t0"]
    assert [found.id for found in await ledger.open_turns("s0")] == ["t0"]
    assert await ledger.open_turns("s1") == []


async def test_a_turn_is_claimed_once_from_its_dead_owner(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn(owner="dead"))
    claims = await asyncio.gather(
        *(ledger.claim_turn("t1", owner=f"o{n}", previous="dead", at=5.0) for n in range(5))
    )
    won = [claim for claim in claims if claim is not None]
    assert len(won) == 1
    assert won[0].resumes == 1
    assert await ledger.claim_turn("t1", owner="x", previous="dead", at=6.0) is None
    again = await ledger.claim_turn("t1", owner="x", previous=won[0].owner, at=6.0)
    assert again is not None
    assert (again.owner, again.resumes) == ("x", 2)
    await ledger.finish_turn("t1", TurnState.DONE, None, 7.0)
    assert await ledger.claim_turn("t1", owner="y", previous="x", at=8.0) is None
    assert await ledger.claim_turn("t9", owner="y", previous="x", at=8.0) is None


async def test_steering_takes_its_inbox_entries(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    entry = (await ledger.admit(arrival("n1", "wait"))).entry
    steer = UserMessage(content="wait", kind=InputKind.STEER)
    await ledger.add_inputs("t1", [steer], [entry.id], 3.0)
    assert await ledger.waiting("s1") == []
    with pytest.raises(Conflict):
        await ledger.add_inputs("t1", [steer], [entry.id], 3.0)
    assert texts(await ledger.history("s1")) == ["hello", "wait"]


async def test_every_kind_of_message_comes_back_as_it_was_written(ledger: Ledger) -> None:
    await ledger.create_session(session())
    parts = (
        TextPart("look"),
        ImagePart(url="data:image/png;base64,AA", media_type="image/png"),
        FilePart(path="/tmp/x.txt", name="x.txt"),
    )
    asked = UserMessage(content=parts, sender="Ada")
    answered = AssistantMessage(
        text="",
        tool_calls=(ToolCall(id="c1", name="read", arguments='{"p":"\\u00fc"}'),),
        reasoning=Reasoning(text="hm", details=({"sig": "x", "n": 1},), protocol="anthropic"),
        finish=FinishReason.TOOL_CALLS,
    )
    gave = ToolMessage(call_id="c1", name="read", content=parts, outcome=ToolOutcome.ERROR)
    await ledger.begin_turn(NewTurn(id="t1", session_id="s1", owner="o", inputs=(asked,), at=2.0))
    await ledger.record_reply("t1", answered, None, 3.0)
    await ledger.record_result("t1", gave, 4.0)
    assert [stored.message for stored in await ledger.history("s1")] == [asked, answered, gave]


async def test_a_turn_that_was_laid_down_says_so_to_whoever_picks_it_up(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.begin_turn(turn("t1", session_id="s1", owner="o1"))
    await ledger.release_turn("t1", 5.0)
    claimed = await ledger.claim_turn("t1", owner="o2", previous="o1", at=6.0)
    assert claimed is not None
    assert (claimed.resumes, claimed.releases) == (1, 1)
    await ledger.finish_turn("t1", TurnState.DONE, None, 7.0)
    await ledger.release_turn("t1", 8.0)
    ended = await ledger.turn("t1")
    assert ended is not None
    assert ended.releases == 1


async def test_what_a_turn_has_used_is_summed_up_without_its_side_calls(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    assert (await ledger.usage_of_turn("t1")).calls == 0
    call = usage(session_id="s1", turn_id="t1", tokens=10, cost=0.5)
    for record in (call, call, msgspec.structs.replace(call, task="title_generation")):
        await ledger.record_usage(record)
    found = await ledger.usage_of_turn("t1")
    assert (found.calls, found.cost_usd) == (2, 1.0)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (20, 2)
    await ledger.record_usage(msgspec.structs.replace(call, cost_usd=None))
    assert (await ledger.usage_of_turn("t1")).cost_usd is None
