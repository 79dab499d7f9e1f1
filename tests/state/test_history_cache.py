"""Long histories are kept in memory; what others change is noticed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.ledgers import reply, result, session, texts, turn
from hermes.domain.messages import InputKind, UserMessage
from hermes.domain.turn import TurnState
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.state.sqlite.messages import WORTH_KEEPING


async def long_session(ledger: SqliteLedger) -> None:
    await ledger.create_session(session())
    for number in range(WORTH_KEEPING):
        await one_turn(ledger, f"t{number}")


async def one_turn(ledger: SqliteLedger, turn_id: str) -> None:
    await ledger.begin_turn(turn(turn_id, says=f"ask {turn_id}"))
    await ledger.record_reply(turn_id, reply("", f"{turn_id}-a", f"{turn_id}-b"), None, 3.0)
    await ledger.record_result(turn_id, result(f"{turn_id}-b"), 4.0)
    await ledger.record_result(turn_id, result(f"{turn_id}-a"), 5.0)
    await ledger.finish_turn(turn_id, TurnState.DONE, None, 6.0)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[SqliteLedger]]:
    """Two ledgers on one file, as two processes would have them."""
    path = tmp_path / "state.db"
    ledgers = [await SqliteLedger.open(path, backups=tmp_path) for _ in range(2)]
    yield ledgers
    for ledger in ledgers:
        await ledger.close()


async def assert_same(one: SqliteLedger, other: SqliteLedger, folder: Path) -> None:
    """Both see what a ledger that has kept nothing sees."""
    fresh = await SqliteLedger.open(folder / "state.db", backups=folder)
    expected = await fresh.history("s1")
    await fresh.close()
    assert expected
    assert await one.history("s1") == expected
    assert await other.history("s1") == expected


async def test_what_is_added_here_or_elsewhere_is_seen(
    two: list[SqliteLedger], tmp_path: Path
) -> None:
    one, other = two
    await long_session(one)
    await assert_same(one, other, tmp_path)
    await one_turn(other, "from the other")
    await assert_same(one, other, tmp_path)
    await one_turn(one, "from the first")
    await assert_same(one, other, tmp_path)


async def test_undoing_and_compacting_are_seen(two: list[SqliteLedger], tmp_path: Path) -> None:
    one, other = two
    await long_session(one)
    await assert_same(one, other, tmp_path)
    history = await one.history("s1")
    await other.rewind("s1", history[-4].seq)
    await assert_same(one, other, tmp_path)
    summary = UserMessage(content="summary", kind=InputKind.SUMMARY)
    await other.compact("s1", history[40].seq, summary)
    await assert_same(one, other, tmp_path)
    assert (await one.history("s1"))[0].message == summary


async def test_results_that_come_out_of_order_stand_in_call_order(
    two: list[SqliteLedger], tmp_path: Path
) -> None:
    one, other = two
    await long_session(one)
    await one.history("s1")
    await one.begin_turn(turn("late", says="go"))
    await one.record_reply("late", reply("", "x", "y"), None, 3.0)
    await one.record_result("late", result("y"), 4.0)
    await one.history("s1")
    await one.record_result("late", result("x"), 5.0)
    await assert_same(one, other, tmp_path)
    names = [getattr(s.message, "call_id", "") for s in await one.history("s1")]
    assert names[-2:] == ["x", "y"]


async def test_changing_a_returned_history_changes_nothing_kept(
    two: list[SqliteLedger], tmp_path: Path
) -> None:
    one, other = two
    await long_session(one)
    (await one.history("s1")).clear()
    await assert_same(one, other, tmp_path)


async def test_a_deleted_session_has_no_history(two: list[SqliteLedger]) -> None:
    one, other = two
    await long_session(one)
    await one.history("s1")
    await other.delete_session("s1")
    assert await one.history("s1") == []


async def test_late_results_of_a_client_are_seen_at_their_seats(
    two: list[SqliteLedger], tmp_path: Path
) -> None:
    one, other = two
    await long_session(one)
    await one.begin_turn(turn("handed", says="go"))
    await one.record_reply("handed", reply("", "x", "y"), None, 3.0)
    await one.finish_turn("handed", TurnState.DONE, None, 4.0, handed=True)
    kept = await one.history("s1")
    assert await other.history("s1") == kept
    await other.begin_turn(turn("next", says="on", results={"x": "given"}, at=5.0))
    await assert_same(one, other, tmp_path)
    assert texts(await one.history("s1"))[-4:] == [
        "",
        "given",
        "The client did not answer this call.",
        "on",
    ]
    assert [stored.seq for stored in (await one.history("s1"))[-4:]] == list(
        range(kept[-1].seq, kept[-1].seq + 4)
    )
