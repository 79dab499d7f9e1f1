"""One budget per chat for sends, edits, typing and deletes."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.delivery.rate_limit import (
    ChatPacer,
    Pacer,
    Pacers,
    PacingLimits,
    Urgency,
)
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.platform import LimitScope
from hermes.testing.clock import FakeClock

LIMITS = PacingLimits(interval=1.0, burst=3, spared=1)


def test_a_quiet_chat_takes_a_short_burst_and_then_one_call_per_interval() -> None:
    pacer = ChatPacer(LIMITS, now=0.0)
    assert [pacer.admit(Urgency.FINAL, 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert pacer.admit(Urgency.FINAL, 0.5) == 0.5
    assert pacer.admit(Urgency.FINAL, 1.0) == 0.0
    assert pacer.admit(Urgency.FINAL, 1.0) == 1.0


def test_previews_leave_room_for_a_final() -> None:
    pacer = ChatPacer(LIMITS, now=0.0)
    assert [pacer.admit(Urgency.PREVIEW, 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert pacer.admit(Urgency.FINAL, 0.0) == 0.0


def test_while_a_final_waits_previews_stand_back() -> None:
    pacer = ChatPacer(LIMITS, now=0.0)
    for _ in range(3):
        pacer.admit(Urgency.FINAL, 0.0)
    with pacer.final_waiting():
        assert pacer.wait(Urgency.PREVIEW, 0.0) > pacer.wait(Urgency.FINAL, 0.0)
        assert pacer.admit(Urgency.FINAL, 1.0) == 0.0
    assert pacer.admit(Urgency.PREVIEW, 3.0) == 0.0


def test_a_penalty_is_obeyed_by_every_kind_of_call() -> None:
    pacer = ChatPacer(LIMITS, now=0.0)
    pacer.penalty(30.0, now=0.0)
    assert all(pacer.wait(urgency, 10.0) >= 20.0 for urgency in Urgency)
    assert pacer.admit(Urgency.FINAL, 31.0) == 0.0


def test_after_penalties_the_chat_is_slower_and_recovers_step_by_step() -> None:
    pacer = ChatPacer(LIMITS, now=0.0)
    for _ in range(9):
        pacer.penalty(0.0, now=0.0)
    assert pacer.slowness == 16.0
    assert pacer.wait(Urgency.FINAL, 0.0) == 16.0
    pacer.wait(Urgency.FINAL, 121.0)
    assert pacer.slowness == 8.0
    pacer.wait(Urgency.FINAL, 10_000.0)
    assert pacer.slowness == 1.0


async def test_finals_are_never_dropped_and_typing_always_may_be() -> None:
    clock = FakeClock()
    chat = pacer("7", ChatKind.GROUP, Pacers(), clock)
    chat.penalise(30.0)
    assert not await chat.wait(Urgency.TYPING, patience=1e6)
    assert not await chat.wait(Urgency.PREVIEW, patience=1.0)
    waiting = asyncio.ensure_future(chat.wait(Urgency.FINAL, patience=1.0))
    await clock.until_sleeping()
    clock.advance(31.0)
    assert await waiting


calls = st.lists(
    st.tuples(st.floats(0, 3), st.sampled_from(list(Urgency)), st.booleans()), max_size=60
)


@given(calls=calls)
def test_whatever_is_asked_the_budget_holds_over_any_time(
    calls: list[tuple[float, Urgency, bool]],
) -> None:
    pacer, now, admitted, resting = ChatPacer(LIMITS, now=0.0), 0.0, list[float](), 0.0
    for pause, urgency, refused in calls:
        now += pause
        if refused:
            pacer.penalty(2.0, now)
            resting = now + 2.0
        if pacer.admit(urgency, now) == 0.0:
            assert now >= resting
            admitted.append(now)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            span = admitted[last] - admitted[first]
            assert last - first + 1 <= LIMITS.burst + span / LIMITS.interval + 1e-6


@given(urgency=st.sampled_from(list(Urgency)), now=st.floats(0, 1e9), rest=st.floats(0, 1e4))
def test_waiting_as_long_as_told_is_enough(urgency: Urgency, now: float, rest: float) -> None:
    pacer = ChatPacer(LIMITS, now)
    pacer.penalty(rest, now)
    for _ in range(4):
        waiting = pacer.admit(urgency, now)
        if waiting == 0.0:
            return
        now += waiting
    raise AssertionError("still waiting")


def test_a_bucket_without_interval_never_makes_anybody_wait() -> None:
    pacer = ChatPacer(PacingLimits(interval=0.0, burst=1), now=0.0)
    for moment in (0.0, 0.1, 0.2):
        assert pacer.admit(Urgency.FINAL, moment) == 0.0


def test_each_chat_has_one_budget_and_idle_ones_are_forgotten() -> None:
    pacers = Pacers(most=10)
    first = pacers.of(("telegram", "bot", "1"), LIMITS, 0.0)
    assert pacers.of(("telegram", "bot", "1"), LIMITS, 0.0) is first
    assert pacers.of(("telegram", "bot", "2"), LIMITS, 0.0) is not first
    first.penalty(500.0, 0.0)
    for chat in range(100):
        pacers.of(("telegram", "bot", f"c{chat}"), LIMITS, 100.0 + 3 * chat)
    assert len(pacers) <= 12
    assert pacers.of(("telegram", "bot", "1"), LIMITS, 400.0) is first


def test_chats_that_rest_are_not_forgotten_when_there_are_many() -> None:
    all_of_them = Pacers(most=4)
    pacers = [all_of_them.of(("p", "a", str(chat)), LIMITS, 0.0) for chat in range(40)]
    for pacer in pacers:
        pacer.penalty(100.0, 0.0)
    again = [all_of_them.of(("p", "a", str(chat)), LIMITS, 1.0) for chat in range(40)]
    assert all(old is new for old, new in zip(pacers, again, strict=True))


CAN = Capabilities(max_length=100, private_interval=1.0, group_interval=9.0, account_interval=0.5)


def pacer(chat_id: str, kind: ChatKind | None, pacers: Pacers, clock: FakeClock) -> Pacer:
    target = Target(platform="p", account="a", chat_id=chat_id, chat_kind=kind)
    return Pacer(pacers, CAN, target, clock)


@pytest.mark.parametrize(
    ("kind", "interval"),
    [(ChatKind.PRIVATE, 1.0), (ChatKind.GROUP, 9.0), (ChatKind.CHANNEL, 9.0), (None, 9.0)],
)
async def test_the_kind_of_a_chat_decides_how_much_it_takes(
    kind: ChatKind | None, interval: float
) -> None:
    clock = FakeClock()
    chat = pacer("-5", kind, Pacers(), clock)
    for _ in range(3):
        await chat.wait(Urgency.FINAL)
    waiting = asyncio.ensure_future(chat.wait(Urgency.FINAL))
    await clock.until_sleeping()
    clock.advance(interval - 0.1)
    assert not waiting.done()
    clock.advance(0.2)
    assert await waiting


async def test_all_chats_of_an_account_share_its_budget() -> None:
    clock, pacers = FakeClock(), Pacers()
    for number in range(3):
        await pacer(str(number), ChatKind.PRIVATE, pacers, clock).wait(Urgency.FINAL)
    assert not await pacer("9", ChatKind.PRIVATE, pacers, clock).wait(Urgency.TYPING)
    waiting = asyncio.ensure_future(pacer("9", ChatKind.PRIVATE, pacers, clock).wait(Urgency.FINAL))
    await clock.until_sleeping()
    clock.advance(0.6)
    assert await waiting


@pytest.mark.parametrize("scope", LimitScope)
async def test_a_penalty_of_the_account_silences_its_other_chats(scope: LimitScope) -> None:
    clock, pacers = FakeClock(), Pacers()
    pacer("1", ChatKind.PRIVATE, pacers, clock).penalise(60.0, scope)
    other = pacer("2", ChatKind.PRIVATE, pacers, clock)
    assert await other.wait(Urgency.PREVIEW) is (scope is LimitScope.CHAT)
