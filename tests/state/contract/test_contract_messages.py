import pytest

from fakes.ledgers import reply, result, say, session, texts, turn
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.messages import AssistantMessage, InputKind, UserMessage
from hermes.domain.ports.ledger import Ledger

SUMMARY = UserMessage(content="in short", kind=InputKind.SUMMARY)


async def test_rewinding_hides_messages_but_keeps_them(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await say(ledger, "one", turn_id="t1")
    await say(ledger, "two", turn_id="t2")
    assert await ledger.rewind("s1", 3) == 2
    assert texts(await ledger.history("s1")) == ["one", "ok"]
    kept = await ledger.transcript("s1")
    assert texts(kept) == ["one", "ok", "two", "ok"]
    assert [message.active for message in kept] == [True, True, False, False]
    assert await ledger.rewind("s1", 3) == 0
    await say(ledger, "three", turn_id="t3")
    assert texts(await ledger.history("s1")) == ["one", "ok", "three", "ok"]


async def test_messages_are_appended_and_hidden_without_a_turn(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await say(ledger, "one", turn_id="t1")
    added = await ledger.append_messages(
        "s1", [UserMessage(content="two"), AssistantMessage(text="said")], 5.0
    )
    assert [each.seq for each in added] == [3, 4]
    await say(ledger, "three", turn_id="t2")
    assert texts(await ledger.history("s1")) == ["one", "ok", "two", "said", "three", "ok"]
    assert await ledger.hide_messages("s1", [added[0].id, 999]) == 1
    assert texts(await ledger.history("s1")) == ["one", "ok", "said", "three", "ok"]


async def test_the_history_stays_put_under_an_open_turn(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    with pytest.raises(Conflict):
        await ledger.rewind("s1", 1)
    with pytest.raises(Conflict):
        await ledger.append_messages("s1", [SUMMARY], 2.0)
    with pytest.raises(Conflict):
        await ledger.hide_messages("s1", [1])
    with pytest.raises(NotFound):
        await ledger.rewind("s2", 1)


async def test_a_summary_takes_the_place_of_what_it_summarises(ledger: Ledger) -> None:
    await ledger.create_session(session())
    for n in range(1, 4):
        await say(ledger, str(n), turn_id=f"t{n}")
    stored = await ledger.compact("s1", 4, SUMMARY)
    assert stored.seq == 4
    assert texts(await ledger.history("s1")) == ["in short", "3", "ok"]
    assert texts(await ledger.transcript("s1")) == ["1", "ok", "2", "ok", "in short", "3", "ok"]
    await ledger.compact("s1", 5, UserMessage(content="shorter", kind=InputKind.SUMMARY))
    assert texts(await ledger.history("s1")) == ["shorter", "ok"]


async def test_compaction_can_happen_inside_a_turn_and_results_still_find_their_seats(
    ledger: Ledger,
) -> None:
    await ledger.create_session(session())
    await say(ledger, "old", turn_id="t1")
    await ledger.begin_turn(turn("t2", says="new"))
    await ledger.record_reply("t2", reply("", "c1", "c2"), None, 5.0)
    await ledger.record_result("t2", result("c2", "two"), 5.5)
    await ledger.compact("s1", 2, SUMMARY)
    await ledger.record_result("t2", result("c1", "one"), 6.0)
    assert texts(await ledger.history("s1")) == ["in short", "new", "", "one", "two"]


async def test_compacting_nothing_is_refused(ledger: Ledger) -> None:
    await ledger.create_session(session())
    with pytest.raises(Conflict):
        await ledger.compact("s1", 10, SUMMARY)
    with pytest.raises(NotFound):
        await ledger.compact("s2", 10, SUMMARY)


async def test_the_preview_is_the_first_thing_a_person_said_on_one_line(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn(says="  first\nline " + "x" * 200))
    found = await ledger.session("s1")
    assert found is not None
    assert found.preview == ("first line " + "x" * 200)[:80]
