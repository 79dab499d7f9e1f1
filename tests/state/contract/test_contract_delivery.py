import asyncio

import msgspec
import pytest

from fakes.ledgers import arrival, outgoing, request, session, turn, usage
from hermes.domain.approvals import ApprovalState, Choice, Decision
from hermes.domain.errors import Conflict, NotFound
from hermes.domain.inbound import ChatKind, InboxState
from hermes.domain.outbound import OutboxState
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import TurnState


async def test_a_message_is_admitted_once(ledger: Ledger) -> None:
    await ledger.create_session(session())
    first = await ledger.admit(arrival("n1", "hello"))
    assert not first.duplicate
    assert first.entry.state is InboxState.WAITING
    assert first.entry.message.text == "hello"
    again = await ledger.admit(arrival("n1", "hello, edited", at=9.0))
    assert again.duplicate
    assert again.entry == first.entry
    other_account = await ledger.admit(arrival("n1", account="second-bot"))
    assert not other_account.duplicate


async def test_of_copies_that_arrive_at_once_one_is_admitted(ledger: Ledger) -> None:
    await ledger.create_session(session())
    admitted = await asyncio.gather(*(ledger.admit(arrival("n1")) for _ in range(10)))
    assert sum(not admission.duplicate for admission in admitted) == 1
    assert len({admission.entry.id for admission in admitted}) == 1
    assert len(await ledger.waiting("s1")) == 1


async def test_what_waits_is_listed_in_order_of_admission(ledger: Ledger) -> None:
    for name in ("s1", "s2", "s3"):
        await ledger.create_session(session(name))
    for n, name in enumerate(("s2", "s1", "s2")):
        await ledger.admit(arrival(f"n{n}", str(n), session_id=name))
    assert [entry.message.text for entry in await ledger.waiting("s2")] == ["0", "2"]
    assert await ledger.sessions_waiting() == ["s2", "s1"]


async def test_what_is_queued_leaves_the_queue_once(ledger: Ledger) -> None:
    for name in ("s1", "s2"):
        await ledger.create_session(session(name))
    queued, begun = (
        msgspec.structs.replace(arrival(name, text), state=InboxState.QUEUED)
        for name, text in (("n1", "first"), ("n2", "/help"))
    )
    assert [(await ledger.admit(each)).duplicate for each in (queued, begun, queued)][2]
    assert await ledger.waiting("s1") == []
    assert (await ledger.stats()).inbox_waiting == 2
    moved = await ledger.admit(arrival("n1", "first, read", session_id="s2"))
    assert not moved.duplicate
    assert (await ledger.waiting("s2"))[0].message.text == "first, read"
    assert (await ledger.admit(arrival("n1", session_id="s1"))).duplicate
    await ledger.admit(msgspec.structs.replace(begun, state=InboxState.BEGUN))
    (left,) = await ledger.queued(["telegram"])
    assert (left.message.text, left.state) == ("/help", InboxState.BEGUN)
    assert await ledger.queued(["elsewhere"]) == []
    await ledger.drop([left.id], "command")
    assert await ledger.queued(["telegram"]) == []
    assert (await ledger.admit(queued)).duplicate


async def test_a_message_for_an_unknown_session_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        await ledger.admit(arrival("n1"))


async def test_dropping_records_the_reason_and_spares_what_was_taken(ledger: Ledger) -> None:
    await ledger.create_session(session())
    taken = (await ledger.admit(arrival("n1"))).entry.id
    dropped = (await ledger.admit(arrival("n2"))).entry.id
    await ledger.begin_turn(turn(inbox_ids=(taken,)))
    await ledger.drop([taken, dropped, 999], "not for us")
    first = (await ledger.admit(arrival("n1"))).entry
    second = (await ledger.admit(arrival("n2"))).entry
    assert (first.state, first.drop_reason) == (InboxState.TAKEN, None)
    assert (second.state, second.drop_reason) == (InboxState.DROPPED, "not for us")
    assert await ledger.sessions_waiting() == []


async def test_an_admitted_message_is_found_as_it_stands(ledger: Ledger) -> None:
    await ledger.create_session(session())
    new = arrival("n1")
    noted = msgspec.structs.replace(new.message, reply_context='{"token": "x"}')
    admitted = (await ledger.admit(msgspec.structs.replace(new, message=noted))).entry
    assert await ledger.entry(admitted.id) == admitted
    assert admitted.message.reply_context == '{"token": "x"}'
    await ledger.begin_turn(turn(inbox_ids=(admitted.id,)))
    taken = await ledger.entry(admitted.id)
    assert taken is not None
    assert (taken.state, taken.turn_id) == (InboxState.TAKEN, "t1")
    assert await ledger.entry(admitted.id + 1) is None


async def test_what_a_platform_needs_to_answer_is_kept_until_it_is_sent(ledger: Ledger) -> None:
    plain = outgoing("o1")
    there = msgspec.structs.replace(
        plain.target, chat_kind=ChatKind.GROUP, context='{"token": "x"}', reply_to="9"
    )
    entry = msgspec.structs.replace(plain, target=there)
    assert await ledger.enqueue(entry) == entry
    assert await ledger.outbox([OutboxState.PENDING]) == [entry]
    claimed = await ledger.claim_send("o1", 2.0)
    assert claimed is not None
    assert claimed.target == there


async def test_enqueuing_twice_is_enqueuing_once(ledger: Ledger) -> None:
    entry = outgoing()
    assert await ledger.enqueue(entry) == entry
    changed = msgspec.structs.replace(entry, content="other")
    assert await ledger.enqueue(changed) == entry
    assert await ledger.outbox_entry("o1") == entry
    assert await ledger.outbox_entry("o2") is None


async def test_an_entry_is_claimed_for_sending_once(ledger: Ledger) -> None:
    await ledger.enqueue(outgoing())
    claims = await asyncio.gather(*(ledger.claim_send("o1", 2.0) for _ in range(5)))
    won = [claim for claim in claims if claim is not None]
    assert len(won) == 1
    assert (won[0].state, won[0].attempts, won[0].updated_at) == (OutboxState.SENDING, 1, 2.0)
    assert await ledger.claim_send("o2", 2.0) is None


async def test_outcomes_change_only_what_is_given(ledger: Ledger) -> None:
    await ledger.enqueue(outgoing())
    await ledger.claim_send("o1", 2.0)
    preview = await ledger.update_outbox(
        "o1", state=OutboxState.SENDING, at=3.0, native_id="m7", content="a"
    )
    assert (preview.native_id, preview.content) == ("m7", "a")
    sent = await ledger.update_outbox("o1", state=OutboxState.SENT, at=4.0, content="all")
    assert (sent.native_id, sent.content, sent.state) == ("m7", "all", OutboxState.SENT)
    assert await ledger.outbox_entry("o1") == sent
    retried = await ledger.update_outbox("o1", state=OutboxState.PENDING, at=5.0, error="429")
    assert (retried.error, retried.attempts) == ("429", 1)
    claimed = await ledger.claim_send("o1", 6.0)
    assert claimed is not None
    assert claimed.attempts == 2
    with pytest.raises(NotFound):
        await ledger.update_outbox("o9", state=OutboxState.SENT, at=1.0)


async def test_the_outbox_is_listed_oldest_first_and_in_order_within_a_turn(
    ledger: Ledger,
) -> None:
    await ledger.enqueue(outgoing("b1", turn_id="b", part=1, at=2.0))
    await ledger.enqueue(outgoing("b0", turn_id="b", part=0, at=3.0))
    await ledger.enqueue(outgoing("x", at=2.5))
    await ledger.enqueue(outgoing("a0", turn_id="a", at=1.0, platform="slack"))
    pending = await ledger.outbox([OutboxState.PENDING])
    assert [entry.id for entry in pending] == ["a0", "b0", "b1", "x"]
    assert [e.id for e in await ledger.outbox([OutboxState.PENDING], limit=2)] == ["a0", "b0"]
    await ledger.claim_send("x", 4.0)
    either = await ledger.outbox([OutboxState.SENDING, OutboxState.FAILED])
    assert [entry.id for entry in either] == ["x"]
    assert await ledger.outbox([]) == []


def approved(choice: Choice) -> Decision:
    return Decision(state=ApprovalState.APPROVED, choice=choice, by="Ada", at=4.0)


async def test_a_call_is_asked_about_once(ledger: Ledger) -> None:
    first = await ledger.ask(request("a1"))
    assert first.state is ApprovalState.PENDING
    assert await ledger.ask(request("a2")) == first
    assert await ledger.approval("a2") is None
    with pytest.raises(Conflict):
        await ledger.ask(request("a1", call_id="c2"))


async def test_a_request_is_answered_once(ledger: Ledger) -> None:
    await ledger.ask(request())
    answers = await asyncio.gather(
        *(ledger.decide("a1", approved(choice)) for choice in (Choice.ONCE, Choice.ALWAYS))
    )
    decided = [answer for answer in answers if answer is not None]
    assert len(decided) == 1
    assert await ledger.approval("a1") == decided[0]
    assert decided[0].decision is not None
    assert decided[0].decision.by == "Ada"
    assert await ledger.pending_approvals() == []
    assert await ledger.decide("a9", approved(Choice.ONCE)) is None
    with pytest.raises(ValueError, match="pending"):
        await ledger.decide("a1", Decision(state=ApprovalState.PENDING))


async def test_pending_requests_are_listed_oldest_first(ledger: Ledger) -> None:
    await ledger.ask(request("a1", call_id="c1", at=5.0))
    await ledger.ask(request("a2", call_id="c2", at=4.0))
    await ledger.ask(request("a3", call_id="c3", session_id="s2", at=3.0))
    assert [a.request.id for a in await ledger.pending_approvals()] == ["a3", "a2", "a1"]
    assert [a.request.id for a in await ledger.pending_approvals("s1")] == ["a2", "a1"]
    assert [a.request.id for a in await ledger.approvals(limit=2)] == ["a1", "a2"]


async def test_a_turn_that_ends_leaves_no_question_open(ledger: Ledger) -> None:
    await ledger.create_session(session())
    begun = await ledger.begin_turn(turn("t1"))
    await ledger.ask(msgspec.structs.replace(request("a1", call_id="c1"), turn_id=begun.turn.id))
    await ledger.ask(msgspec.structs.replace(request("a2", call_id="c2"), turn_id="another"))
    await ledger.finish_turn("t1", TurnState.INTERRUPTED, None, 3.0)
    assert [a.request.id for a in await ledger.pending_approvals()] == ["a2"]
    assert await ledger.decide("a1", approved(Choice.ALWAYS)) is None
    assert await ledger.grants("main", "s1") == []


async def test_standing_permissions_hold_where_they_were_given(ledger: Ledger) -> None:
    for n, choice in enumerate((Choice.ONCE, Choice.SESSION, Choice.ALWAYS, Choice.ALWAYS)):
        await ledger.ask(request(f"a{n}", call_id=f"c{n}", at=float(n)))
        await ledger.decide(f"a{n}", approved(choice))

    async def granted(agent: str, session_id: str) -> list[str]:
        return [grant.request.id for grant in await ledger.grants(agent, session_id)]

    assert await granted("main", "s1") == ["a1", "a2", "a3"]
    assert await granted("main", "s2") == ["a2", "a3"]
    assert await granted("work", "s1") == []
    assert await ledger.revoke("a2", 9.0)
    assert not await ledger.revoke("a2", 9.0)
    assert not await ledger.revoke("a0", 9.0)
    assert await granted("main", "s2") == ["a3"]
    revoked = await ledger.approval("a2")
    assert revoked is not None
    assert revoked.state is ApprovalState.REVOKED


async def test_spending_is_summed_by_session_agent_time_and_model(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.record_usage(usage(tokens=9, cost=0.5, at=1.0))
    await ledger.record_usage(usage(tokens=19, cost=None, at=2.0, model="free"))
    await ledger.record_usage(usage(tokens=29, cost=0.25, at=3.0, session_id=None))
    total = await ledger.spent()
    assert (total.calls, total.tokens, total.cost_usd, total.unpriced_calls) == (3, 60, 0.75, 1)
    assert (await ledger.spent(session_id="s1")).calls == 2
    assert (await ledger.spent(since=2.0)).calls == 2
    assert (await ledger.spent(session_id="s1", since=2.0)).calls == 1
    assert (await ledger.spent(agent_id="work")).calls == 0
    by_model = await ledger.usage_by_model()
    assert [(model, spent.calls) for _, model, spent in by_model] == [("m", 2), ("free", 1)]
    in_session = await ledger.usage_by_model(session_id="s1")
    assert [(model, spent.calls) for _, model, spent in in_session] == [("m", 1), ("free", 1)]
    found = await ledger.session("s1")
    assert found is not None
    assert (found.usage.input_tokens, found.cost_usd) == (28, 0.5)
