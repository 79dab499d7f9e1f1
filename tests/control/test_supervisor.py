"""Adapters under supervision: each on its own, alive end to end, patient and not blind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import pytest

from fakes.adapter import FakeAdapter, ListSink
from hermes.control.supervision.health import GatewayPhase, StateFile, read_gateway_state
from hermes.control.supervision.supervisor import (
    AdapterHealth,
    AdapterState,
    Fleet,
    Supervisor,
    SupervisorSettings,
)
from hermes.domain.errors import Conflict, MissingExtra
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.platforms import Capabilities, ChatPlatform
from hermes.domain.ports.platform import Adapter, FailureAction, InboundSink, PlatformFailure
from hermes.testing import FakeClock

STEADY = SupervisorSettings(jitter=0.0, connect_timeout=5.0)
WRONG_TOKEN = PlatformFailure(FailureAction.FATAL, "The token is wrong.", hint="Set another one.")
NO_NETWORK = PlatformFailure(FailureAction.RETRY, "No connection.")


class Harness:
    """One supervised platform whose every connection the test sees."""

    def __init__(
        self,
        clock: FakeClock,
        name: str = "telegram",
        settings: SupervisorSettings = STEADY,
        account: str = "bot-1",
    ) -> None:
        self.account = account
        self.agent = ""
        self.clock = clock
        self.outcomes: list[Exception | str] = []
        """What the next connections do: an error, or `hang`; else they work."""
        self.made: list[FakeAdapter] = []
        self.states: list[AdapterState] = []
        self.sink = ListSink()
        self._changed = asyncio.Event()
        self.name = name
        self.platform = ChatPlatform(
            name=name.partition(":")[0],
            label="",
            capabilities=Capabilities(max_length=100),
            adapter="",
        )
        self.credential = "token"
        self.hold: Callable[[], AbstractContextManager[object]] = nullcontext
        self.supervisor = Supervisor(self, self._sink, clock, settings, self._note)

    def make(self) -> Adapter:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        failure = outcome if isinstance(outcome, Exception) else None
        adapter = FakeAdapter(failure=failure, hangs=outcome == "hang", account=self.account)
        self.made.append(adapter)
        return adapter

    async def _sink(self, _platform: str, _adapter: Adapter) -> InboundSink:
        return self.sink

    def _note(self, health: AdapterHealth) -> None:
        self.states.append(health.state)
        self._changed.set()

    async def until(self, state: AdapterState, count: int = 1) -> AdapterHealth:
        """Wait until a state has been entered so many times."""
        async with asyncio.timeout(10):
            while self.states.count(state) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.supervisor.health

    async def receiving(self, number: int = 0) -> FakeAdapter:
        """Wait until the connection of that number receives."""
        async with asyncio.timeout(10):
            while len(self.made) <= number:
                self._changed.clear()
                await self._changed.wait()
            await self.made[number].receiving.wait()
        return self.made[number]

    async def pass_time(self, seconds: float) -> None:
        """Let somebody sleep, then move time."""
        async with asyncio.timeout(10):
            await self.clock.until_sleeping()
        self.clock.advance(seconds)


@asynccontextmanager
async def running(*harnesses: Harness) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Fleet([each.supervisor for each in harnesses]).run())
        yield
        task.cancel()


def message() -> InboundMessage:
    return InboundMessage(
        platform="telegram",
        account="bot-1",
        native_id="1",
        chat=Chat(kind=ChatKind.PRIVATE, id="1"),
        sender=Sender(id="1"),
        text="hi",
        sent_at=0.0,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_working_adapter_is_connected_and_shows_when_it_was_last_heard(
    clock: FakeClock,
) -> None:
    harness = Harness(clock)
    async with running(harness):
        adapter = await harness.receiving()
        health = await harness.supervisor.settled()
        assert health.state is AdapterState.CONNECTED
        assert health.account == "bot-1"
        assert harness.supervisor.adapter is adapter
        clock.advance(10)
        assert adapter.sink is not None
        await adapter.sink.message(message())
        assert harness.sink.messages == [message()]
        clock.advance(5)
        adapter.sink.alive()
        harness.supervisor.sent()
        health = harness.supervisor.health
        start = clock.now() - 15
        assert (health.last_in, health.last_alive, health.last_out) == (
            start + 10,
            start + 15,
            start + 15,
        )
    states = [AdapterState.CONNECTING, *[AdapterState.CONNECTED] * 3, AdapterState.STOPPED]
    assert harness.states == states, "what came in and went out is told at once"
    assert adapter.closed.is_set()
    assert harness.supervisor.adapter is None


async def test_a_lost_connection_is_made_again_with_growing_pauses(clock: FakeClock) -> None:
    harness = Harness(clock)
    harness.outcomes = [NO_NETWORK] * 18
    pauses = []
    async with running(harness):
        for number in range(1, 18):
            health = await harness.until(AdapterState.RETRYING, number)
            assert health.attempts == number
            assert health.error == "No connection."
            assert health.next_try is not None
            pauses.append(round(health.next_try - clock.now()))
            await harness.pass_time(pauses[-1])
    assert pauses == [1, 3, *[10] * 12, 30, 60, 120]
    assert all(adapter.closed.is_set() for adapter in harness.made[:17])


async def test_pauses_end_at_five_minutes_and_are_jittered(clock: FakeClock) -> None:
    settings = SupervisorSettings(first_pauses=(), jitter=0.2)
    pauses = []
    harness = Harness(clock, settings=settings)
    harness.outcomes = [NO_NETWORK] * 12
    async with running(harness):
        for number in range(1, 11):
            health = await harness.until(AdapterState.RETRYING, number)
            assert health.next_try is not None
            pauses.append(health.next_try - clock.now())
            await harness.pass_time(pauses[-1])
    assert 24 <= pauses[0] <= 36
    assert all(240 <= pause <= 360 for pause in pauses[5:])
    assert len(set(pauses[5:])) > 1


async def test_the_platforms_own_waiting_time_is_obeyed(clock: FakeClock) -> None:
    harness = Harness(clock)
    harness.outcomes = [PlatformFailure(FailureAction.WAIT, "Slow down.", retry_after=77)]
    async with running(harness):
        health = await harness.until(AdapterState.RETRYING)
        assert health.next_try == clock.now() + 77


async def test_a_connection_that_dies_at_once_does_not_clear_the_count(clock: FakeClock) -> None:
    """A conflict that comes back with every poll must not look like a fresh start."""
    harness = Harness(clock)
    async with running(harness):
        for number in range(4):
            (await harness.receiving(number)).lose(NO_NETWORK)
            health = await harness.until(AdapterState.RETRYING, number + 1)
            assert health.attempts == number + 1
            assert health.restarts == number + 1
            await harness.pass_time(60)
        adapter = await harness.receiving(4)
        clock.advance(61)
        adapter.lose()
        health = await harness.until(AdapterState.RETRYING, 5)
        assert health.attempts == 1
        assert "stopped receiving" in health.error


async def test_a_deaf_adapter_is_restarted_and_reported(clock: FakeClock) -> None:
    harness = Harness(clock)
    async with running(harness):
        deaf = await harness.receiving()
        assert deaf.sink is not None
        await harness.pass_time(149)
        deaf.sink.alive()
        await harness.pass_time(149)
        assert harness.supervisor.health.state is AdapterState.CONNECTED
        await harness.pass_time(2)
        health = await harness.until(AdapterState.RETRYING)
        assert health.error_code == "deaf"
        assert "Nothing was heard for 150 seconds" in health.error
        assert deaf.closed.is_set()
        await harness.pass_time(1)
        await harness.receiving(1)
        assert harness.supervisor.health.restarts == 1
        assert harness.supervisor.health.error == ""


async def test_sending_does_not_prove_that_the_adapter_hears(clock: FakeClock) -> None:
    harness = Harness(clock)
    async with running(harness):
        await harness.receiving()
        await harness.pass_time(149)
        harness.supervisor.sent()
        await harness.pass_time(2)
        assert (await harness.until(AdapterState.RETRYING)).error_code == "deaf"


async def test_a_wrong_token_at_the_start_is_fatal_and_tried_again_when_something_changes(
    clock: FakeClock,
) -> None:
    harness = Harness(clock)
    harness.outcomes = [WRONG_TOKEN]
    async with running(harness):
        health = await harness.supervisor.settled()
        assert health.state is AdapterState.FATAL
        assert (health.error, health.hint) == ("The token is wrong.", "Set another one.")
        assert health.next_try == clock.now() + 30
        harness.supervisor.retry()
        await harness.receiving(1)
        assert harness.supervisor.health.state is AdapterState.CONNECTED


async def test_an_account_that_once_worked_is_tried_seldom_after_three_refusals(
    clock: FakeClock,
) -> None:
    harness = Harness(clock)
    async with running(harness):
        (await harness.receiving()).lose(WRONG_TOKEN)
        harness.outcomes = [WRONG_TOKEN] * 6
        for number in (1, 2):
            await harness.until(AdapterState.RETRYING, number)
            await harness.pass_time(60)
        pauses = []
        for number in range(1, 6):
            health = await harness.until(AdapterState.FATAL, number)
            assert health.next_try is not None
            pauses.append(round(health.next_try - clock.now()))
            await harness.pass_time(pauses[-1])
        assert pauses == [30, 30, 60, 120, 240]
        health = await harness.until(AdapterState.CONNECTED, 2)
        assert (health.error, health.next_try) == ("", None)


async def test_another_credential_is_used_at_once_and_nothing_else_disturbs_a_connection(
    clock: FakeClock,
) -> None:
    harness = Harness(clock)
    async with running(harness):
        first = await harness.receiving()
        harness.supervisor.retry()
        harness.credential = "another"
        harness.supervisor.retry()
        await harness.receiving(1)
        assert first.closed.is_set()
        health = harness.supervisor.health
        assert (health.state, health.restarts) == (AdapterState.CONNECTED, 0)
    assert len(harness.made) == 2


async def test_polls_that_fail_are_seen_and_a_rival_is_not_forgotten_with_one_success(
    clock: FakeClock,
) -> None:
    harness = Harness(clock)
    rival = PlatformFailure(FailureAction.RETRY, "Another process.", hint="Stop it.", status=409)
    async with running(harness):
        adapter = await harness.receiving()
        assert adapter.sink is not None
        adapter.sink.failing(NO_NETWORK, 4.0)
        health = harness.supervisor.health
        assert (health.state, health.error) == (AdapterState.RETRYING, "No connection.")
        assert health.next_try == clock.now() + 4
        assert harness.supervisor.adapter is adapter
        adapter.sink.alive()
        assert harness.supervisor.health.state is AdapterState.CONNECTED
        adapter.sink.failing(rival, 10.0)
        clock.advance(11)
        adapter.sink.alive()
        health = harness.supervisor.health
        assert (health.error_code, health.hint) == ("conflict", "Stop it.")
        clock.advance(60)
        adapter.sink.alive()
        assert harness.supervisor.health.state is AdapterState.CONNECTED
        assert harness.supervisor.health.error == ""


async def test_a_missing_part_is_fatal(clock: FakeClock) -> None:
    harness = Harness(clock)
    harness.outcomes = [MissingExtra("discord", "Discord")]
    async with running(harness):
        health = await harness.until(AdapterState.FATAL)
        assert "pip install" in health.hint


async def test_a_connection_that_takes_too_long_is_given_up(clock: FakeClock) -> None:
    harness = Harness(clock, settings=SupervisorSettings(connect_timeout=0.05, jitter=0.0))
    harness.outcomes = ["hang"]
    async with running(harness):
        health = await harness.until(AdapterState.RETRYING)
        assert "did not answer within 0.05 seconds" in health.error
        assert harness.made[0].closed.is_set()


async def test_one_broken_adapter_never_disturbs_another(clock: FakeClock) -> None:
    good, bad, hanging = (Harness(clock, name) for name in ("telegram", "whatsapp", "irc"))
    bad.outcomes = [ZeroDivisionError("a bug")] * 3
    hanging.outcomes = ["hang"]
    async with running(good, bad, hanging):
        adapter = await good.receiving()
        for number in (1, 2, 3):
            health = await bad.until(AdapterState.RETRYING, number)
            assert "ZeroDivisionError" in health.error
            bad.supervisor.retry()
        await bad.receiving(3)
        assert adapter.sink is not None
        await adapter.sink.message(message())
        assert len(good.made) == 1
    assert good.sink.messages == [message()]


async def test_what_must_be_held_is_held_only_while_connected(clock: FakeClock) -> None:
    held: list[str] = []
    taken = True

    @contextmanager
    def hold() -> Iterator[None]:
        if taken:
            raise Conflict("Another gateway uses the bot.")
        held.append("held")
        try:
            yield
        finally:
            held.append("released")

    harness = Harness(clock)
    harness.hold = hold
    async with running(harness):
        health = await harness.supervisor.settled()
        assert health.state is AdapterState.RETRYING
        assert harness.made == [], "nothing connects without the lock"
        taken = False
        harness.supervisor.retry()
        await harness.until(AdapterState.CONNECTED)
        assert held == ["held"]
    assert held == ["held", "released"]


async def test_the_fleet_knows_its_adapters(clock: FakeClock) -> None:
    one, two = Harness(clock, "one"), Harness(clock, "two")
    two.outcomes = [WRONG_TOKEN]
    fleet = Fleet([one.supervisor, two.supervisor])
    async with running(one, two):
        states = [health.state for health in await fleet.settled()]
        assert states == [AdapterState.CONNECTED, AdapterState.FATAL]
        first, second = fleet.of("one", "1"), fleet.of("two", "")
        assert first is one.supervisor
        assert first.adapter is not None
        assert second is not None
        assert second.adapter is None
        assert fleet.of("three", "") is None
        first.sent()
        assert fleet.health()[0].last_out == clock.now()
        fleet.retry()
        await two.receiving(1)


async def test_the_fleet_tells_accounts_of_a_platform_apart(clock: FakeClock) -> None:
    work = Harness(clock, "chat:work", account="bot-1")
    home = Harness(clock, "chat:home", account="bot-2")
    fleet = Fleet([work.supervisor, home.supervisor])
    async with running(work, home):
        await fleet.settled()
        assert fleet.of("chat", "bot-1") is work.supervisor
        assert fleet.of("chat", "bot-2") is home.supervisor
        assert fleet.of("chat", "") is work.supervisor
        assert fleet.of("chat", "nobody") is None


# -- the state file ----------------------------------------------------------


async def test_the_state_file_shows_phase_adapters_and_warnings(
    clock: FakeClock, tmp_path: Path
) -> None:
    harness = Harness(clock)
    harness.outcomes = [WRONG_TOKEN]
    path = tmp_path / "gateway_state.json"
    board = StateFile(
        path,
        clock,
        argv=("hermes", "gateway", "run"),
        profiles=lambda: ("main",),
        active=lambda: 3,
        adapters=lambda: [harness.supervisor.health],
    )
    board.phase(GatewayPhase.RUNNING)
    board.warn("config", "The configuration on disk does not load.")
    async with running(harness):
        await harness.until(AdapterState.FATAL)
        await board.write()
    state = read_gateway_state(path)
    assert state is not None
    assert (state.gateway_state, state.active_agents) == ("running", 3)
    assert state.warnings == ("The configuration on disk does not load.",)
    telegram = state.platforms["telegram"]
    assert (telegram.state, telegram.error_code) == ("fatal", "platform")
    assert telegram.error_message == "The token is wrong."
    board.warn("config", None)
    await board.write()
    again = read_gateway_state(path)
    assert again is not None
    assert again.warnings == ()


async def test_the_state_file_is_written_on_change_but_not_more_often_than_every_two_seconds(
    clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "gateway_state.json"
    board = StateFile(path, clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(board.run())
        async with asyncio.timeout(10):
            await clock.until_sleeping()
            first = path.stat().st_ino
            for _ in range(20):
                board.phase(GatewayPhase.RUNNING)
                await asyncio.sleep(0)
            assert path.stat().st_ino == first
            clock.advance(2)
            await clock.until_sleeping()
        assert path.stat().st_ino != first
        state = read_gateway_state(path)
        assert state is not None
        assert state.gateway_state == "running"
        task.cancel()


def test_a_state_file_that_cannot_be_read_is_no_state(tmp_path: Path) -> None:
    path = tmp_path / "gateway_state.json"
    assert read_gateway_state(path) is None
    path.write_text("{")
    assert read_gateway_state(path) is None
