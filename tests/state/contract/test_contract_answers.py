"""What has been answered, and facts that belong to no session."""

from fakes.ledgers import arrival, session, turn
from hermes.domain.inbound import InboxState
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import TurnState


async def test_an_entry_is_unanswered_from_its_taking_to_its_delivery(ledger: Ledger) -> None:
    await ledger.create_session(session())
    first = (await ledger.admit(arrival("1"))).entry
    assert await ledger.unanswered(["telegram"]) == []
    await ledger.begin_turn(turn(inbox_ids=(first.id,)))
    (taken,) = await ledger.unanswered(["telegram"])
    assert (taken.id, taken.state, taken.turn_id) == (first.id, InboxState.TAKEN, "t1")
    assert await ledger.unanswered(["discord"]) == []
    await ledger.finish_turn("t1", TurnState.DONE, None, 3.0)
    assert await ledger.mark_answered("t1") == 1
    assert await ledger.unanswered(["telegram"]) == []
    assert await ledger.mark_answered("t1") == 0


async def test_a_redelivery_of_an_answered_message_is_still_a_duplicate(ledger: Ledger) -> None:
    await ledger.create_session(session())
    first = (await ledger.admit(arrival("1"))).entry
    await ledger.begin_turn(turn(inbox_ids=(first.id,)))
    await ledger.mark_answered("t1")
    again = await ledger.admit(arrival("1"))
    assert again.duplicate
    assert again.entry.state is InboxState.ANSWERED


async def test_facts_are_kept_replaced_and_removed(ledger: Ledger) -> None:
    assert await ledger.kept("cursor:telegram") is None
    await ledger.keep("cursor:telegram", {"offset": 7})
    await ledger.keep("cursor:telegram", {"offset": 8})
    assert await ledger.kept("cursor:telegram") == {"offset": 8}
    await ledger.keep("cursor:telegram", None)
    assert await ledger.kept("cursor:telegram") is None
