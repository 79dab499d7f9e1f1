"""Token buckets per chat, account and platform: who may call, when, and who goes first."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.control.delivery.rate_limit import Bucket, Pacer, Pacers, Urgency
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities, Limits, Rate
from hermes.domain.ports.platform import LimitScope
from hermes.entry.chat.discord.manifest import PLATFORM as DISCORD_PLATFORM
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.testing import FakeClock

RATE = Rate(13, 10.0, burst=3)
"""Three at once, then one a second."""
TELEGRAM = PLATFORM.capabilities
DISCORD = DISCORD_PLATFORM.capabilities
FINAL, PREVIEW, REACTION, TYPING = (
    Urgency.FINAL,
    Urgency.PREVIEW,
    Urgency.REACTION,
    Urgency.TYPING,
)


def admitted(bucket: Bucket, urgency: Urgency, now: float) -> bool:
    if bucket.wait(urgency, now) > 0:
        return False
    bucket.take(now)
    bucket.done()
    return True


def test_a_quiet_chat_takes_a_short_burst_and_then_one_call_per_interval() -> None:
    bucket = Bucket(RATE, now=0.0)
    assert [admitted(bucket, FINAL, 0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait(FINAL, 0.5) == 0.5
    assert admitted(bucket, FINAL, 1.0)
    assert bucket.wait(FINAL, 1.0) == 1.0


def test_typing_leaves_room_for_previews_and_previews_for_finals() -> None:
    bucket = Bucket(RATE, now=0.0)
    assert admitted(bucket, TYPING, 0.0)
    assert bucket.wait(TYPING, 0.0) == 1.0
    assert bucket.wait(REACTION, 0.0) == 0.0
    assert admitted(bucket, PREVIEW, 0.0)
    assert bucket.wait(PREVIEW, 0.0) == 1.0
    assert admitted(bucket, FINAL, 0.0)


def test_what_is_to_be_done_some_time_leaves_one_for_a_final() -> None:
    bucket = Bucket(RATE, now=0.0)
    assert [admitted(bucket, Urgency.SOME_TIME, 0.0) for _ in range(3)] == [True, True, False]
    assert admitted(bucket, FINAL, 0.0)
    group = Bucket(TELEGRAM.limits.group, now=0.0)
    while admitted(group, Urgency.SOME_TIME, 0.0):
        pass
    assert [admitted(group, FINAL, 0.0) for _ in range(3)] == [True, True, False]


def test_a_rest_is_as_long_as_was_asked_and_leaves_nothing_slower() -> None:
    bucket = Bucket(RATE, now=0.0)
    for _ in range(9):
        bucket.rest(30.0, now=0.0)
    bucket.rest(5.0, now=0.0)
    assert bucket.wait(FINAL, 10.0) == 20.0
    assert [admitted(bucket, FINAL, at) for at in (30.0, 30.0, 31.0, 32.0)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert [admitted(bucket, FINAL, 40.0) for _ in range(4)] == [True, True, True, False]


def test_a_bucket_without_a_limit_only_rests() -> None:
    bucket = Bucket(Rate(), now=0.0)
    assert all(admitted(bucket, urgency, 1.0) for urgency in Urgency for _ in range(5))
    bucket.rest(2.0, now=1.0)
    assert bucket.wait(FINAL, 1.0) == 2.0
    assert admitted(bucket, TYPING, 3.0)


async def test_a_chat_that_nobody_wrote_to_yet_has_room_at_once() -> None:
    class Running(FakeClock):
        """Time passes with every look at it."""

        def monotonic(self) -> float:
            self.advance(1e-6)
            return super().monotonic()

    chat = Target(platform="discord", account="1", chat_id="5", chat_kind=ChatKind.PRIVATE)
    for capabilities in (DISCORD, TELEGRAM):
        pacer = Pacer(Pacers(), capabilities, chat, Running())
        assert [await pacer.wait(each) for each in (TYPING, REACTION, FINAL)] == [True] * 3


calls = st.lists(
    st.tuples(st.floats(0, 3), st.sampled_from(list(Urgency)), st.booleans()), max_size=60
)


@given(calls=calls)
def test_no_span_of_time_sees_more_calls_than_the_figure_allows(
    calls: list[tuple[float, Urgency, bool]],
) -> None:
    bucket, now, times, resting = Bucket(RATE, now=0.0), 0.0, list[float](), 0.0
    for pause, urgency, refused in calls:
        now += pause
        if refused:
            bucket.rest(2.0, now)
            resting = now + 2.0
        if admitted(bucket, urgency, now):
            assert now >= resting
            times.append(now)
    for first in times:
        assert sum(first <= at < first + RATE.seconds - 1e-6 for at in times) <= RATE.calls


@given(urgency=st.sampled_from(list(Urgency)), now=st.floats(0, 1e9), rest=st.floats(0, 1e4))
def test_waiting_as_long_as_told_is_enough(urgency: Urgency, now: float, rest: float) -> None:
    bucket = Bucket(RATE, now)
    bucket.rest(rest, now)
    for _ in range(4):
        seconds = bucket.wait(urgency, now)
        if seconds == 0.0:
            return
        now += seconds
    raise AssertionError("still waiting")


def test_each_place_has_one_bucket_and_full_ones_are_forgotten() -> None:
    pacers = Pacers(most=10)
    first = pacers.of(("telegram", "bot", "1"), RATE, 0.0)
    assert pacers.of(("telegram", "bot", "1"), RATE, 0.0) is first
    assert pacers.of(("telegram", "bot", "2"), RATE, 0.0) is not first
    first.rest(500.0, 0.0)
    for chat in range(100):
        pacers.of(("telegram", "bot", f"c{chat}"), RATE, 100.0 + 3 * chat)
    assert len(pacers) <= 12
    assert pacers.of(("telegram", "bot", "1"), RATE, 400.0) is first


def test_chats_that_rest_are_not_forgotten_when_there_are_many() -> None:
    pacers = Pacers(most=4)
    before = []
    for chat in range(40):
        before.append(pacers.of(("p", "a", str(chat)), RATE, 0.0))
        before[-1].rest(100.0, 0.0)
    again = [pacers.of(("p", "a", str(chat)), RATE, 1.0) for chat in range(40)]
    assert all(old is new for old, new in zip(before, again, strict=True))


# -- who waits for whom ----------------------------------------------------------------------


class Room:
    """An account whose calls are noted when they may go."""

    def __init__(self, capabilities: Capabilities = TELEGRAM) -> None:
        self.clock = FakeClock()
        self.capabilities = capabilities
        self.pacers = Pacers()
        self.tasks: list[asyncio.Task[None]] = []
        self.out: list[tuple[str, float]] = []
        """What went out, and when."""

    def pacer(self, chat: str, kind: ChatKind | None = ChatKind.PRIVATE, bot: str = "a") -> Pacer:
        target = Target(platform="p", account=bot, chat_id=chat, chat_kind=kind)
        return Pacer(self.pacers, self.capabilities, target, self.clock)

    def call(
        self,
        name: str,
        pacer: Pacer,
        urgency: Urgency = FINAL,
        patience: float = 1.0,
        takes: float = 0.0,
    ) -> None:
        async def go() -> None:
            if await pacer.wait(urgency, patience):
                await self.clock.sleep(takes)
                self.out.append((name, self.clock.monotonic()))
                pacer.done()

        self.tasks.append(asyncio.ensure_future(go()))

    async def pass_time(self, seconds: float, step: float = 0.05) -> None:
        """Move the clock on in small steps, so that everybody looks in time."""
        for _ in range(round(seconds / step)):
            await self._settle()
            self.clock.advance(step)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.out]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_six_answers_in_a_group_go_out_at_once_after_typing_and_reactions() -> None:
    room = Room()
    group = room.pacer("-5", ChatKind.GROUP)
    for _ in range(10):
        room.call("typing", group, TYPING)
        room.call("mark", group, REACTION)
        room.call("preview", group, PREVIEW)
    await room.pass_time(1.5)
    room.out.clear()
    for number in range(6):
        room.call(f"answer {number}", group)
    await room.pass_time(2.0)
    assert room.names == [f"answer {number}" for number in range(6)]


async def test_a_group_never_sees_more_than_twenty_calls_a_minute() -> None:
    room = Room()
    for number in range(60):
        room.call(str(number), room.pacer("-5", ChatKind.GROUP))
    await room.pass_time(130.0, 0.5)
    times = [at for _, at in room.out]
    assert room.names == [str(number) for number in range(len(times))]
    assert max(sum(first <= at < first + 60 for at in times) for first in times) <= 20
    await room.close()


async def test_three_hundred_answers_stay_below_the_account_and_keep_their_order() -> None:
    room = Room()
    for number in range(300):
        room.call(str(number), room.pacer(str(number)))
    await room.pass_time(16.0)
    assert room.names == [str(number) for number in range(300)]
    times = [at for _, at in room.out]
    assert max(sum(first <= at < first + 1.0 for at in times) for first in times) <= 30


async def test_calls_that_jam_on_the_way_do_not_arrive_as_a_flood() -> None:
    room = Room()
    for number in range(100):
        jam = 1.5 - room.clock.monotonic() % 1.5
        room.call(str(number), room.pacer(str(number)), takes=jam)
        await room.pass_time(0.05)
    await room.pass_time(10.0)
    times = [at for _, at in room.out]
    assert len(times) == 100
    assert max(sum(first <= at < first + 1.0 for at in times) for first in times) <= 30


async def test_an_answer_of_a_quiet_chat_does_not_wait_behind_busy_ones() -> None:
    room = Room()
    for number in range(300):
        for _ in range(3):
            room.call("preview", room.pacer(str(number)), PREVIEW, patience=60.0)
    busy = room.pacer("busy")
    for _ in range(20):
        room.call("busy", busy)
    await room.pass_time(3.0)
    room.out.clear()
    room.call("quiet", room.pacer("quiet"))
    await room.pass_time(0.1)
    assert "quiet" in room.names[:2]
    await room.close()


async def test_nobody_overtakes_in_a_chat_that_was_told_to_rest() -> None:
    room = Room()
    chat, other = room.pacer("1"), room.pacer("2")
    for number in range(5):
        room.call(str(number), chat)
    await room.pass_time(0.2)
    chat.penalise(4.0)
    room.call("other", other)
    await room.pass_time(3.5)
    assert room.names == ["0", "1", "2", "other"]
    await room.pass_time(3.0)
    assert room.names == ["0", "1", "2", "other", "3", "4"]


async def test_finals_are_never_dropped_and_the_rest_is_in_order_of_what_it_is_worth() -> None:
    room = Room()
    chat = room.pacer("7", ChatKind.GROUP)
    chat.penalise(30.0)
    assert not await chat.wait(TYPING, patience=1e6)
    assert not await chat.wait(REACTION, patience=1.0)
    assert not await chat.wait(PREVIEW, patience=1.0)
    room.call("prompt", chat, Urgency.PROMPT, patience=1.0)
    await room.pass_time(31.0, 0.5)
    assert room.names == ["prompt"]


async def test_while_a_final_waits_nothing_else_goes() -> None:
    room = Room()
    chat = room.pacer("1")
    for number in range(4):
        room.call(f"final {number}", chat)
    room.call("preview", chat, PREVIEW, patience=60.0)
    await room.pass_time(10.0)
    assert room.names == ["final 0", "final 1", "final 2", "final 3", "preview"]


async def test_a_refusal_costs_what_was_asked_and_no_more() -> None:
    """Three of ten calls refused for two seconds: an answer is late by seconds, not by minutes."""
    room = Room()
    chat = room.pacer("1")
    for number in range(10):
        await room.pass_time(5.0)
        began = room.clock.monotonic()
        for _ in range(3 if number % 3 == 0 else 0):
            room.call("refused", chat)
            await room.pass_time(2.1)
            chat.penalise(2.0)
        room.call("answer", chat)
        await room.pass_time(2.1)
        assert room.out[-1][0] == "answer"
        assert room.out[-1][1] - began < 3 * 2.1 + 2.1


@pytest.mark.parametrize(
    ("kind", "rate"),
    [(ChatKind.PRIVATE, "private"), (ChatKind.GROUP, "group"), (None, "group")],
)
async def test_the_kind_of_a_chat_decides_how_much_it_takes(
    kind: ChatKind | None, rate: str
) -> None:
    room = Room(Capabilities(max_length=100, limits=Limits(private=RATE, group=Rate(20, 60.0, 2))))
    for number in range(5):
        room.call(str(number), room.pacer("-5", kind))
    await room.pass_time(0.2)
    assert len(room.out) == getattr(room.capabilities.limits, rate).burst
    await room.close()


@pytest.mark.parametrize("scope", LimitScope)
async def test_a_rest_is_for_the_chat_the_account_or_the_platform(scope: LimitScope) -> None:
    room = Room()
    room.pacer("1").penalise(60.0, scope)
    assert not await room.pacer("1").wait(PREVIEW)
    assert await room.pacer("2").wait(PREVIEW) is (scope is LimitScope.CHAT)
    assert await room.pacer("2", bot="b").wait(PREVIEW) is (scope is not LimitScope.PLATFORM)


async def test_all_accounts_share_what_the_platform_takes() -> None:
    limits = Limits(private=Rate(), platform=Rate(11, 1.0, burst=1))
    room = Room(Capabilities(max_length=100, limits=limits))
    for number in range(10):
        room.call(str(number), room.pacer("1", bot=str(number)))
    await room.pass_time(0.45)
    assert len(room.out) == 5
    await room.close()
