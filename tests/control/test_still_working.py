"""Notices while a turn takes long, and its end when nothing happens any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fakes.hand_clock import HandClock, settle
from hermes.domain.approvals import (
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Decision,
)
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ReasoningDelta,
    TextDelta,
    ToolStarted,
    TurnFinished,
    TurnStream,
)
from hermes.domain.settings.agent import AgentLoop
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.entry.chat.companion import StillWorking

PATIENCE = AgentLoop()
TOOL = ToolStarted(
    call_id="c", name="terminal", arguments={}, emoji="💻", verb="run", label="make all"
)


class Board:
    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self.stops = 0
        self.notice: str | None = None
        self.final = False
        self.puts: list[str] = []
        self.clears = 0

    async def put(self, text: str, *, final: bool) -> None:
        self.notice, self.final = text, final
        self.puts.append(text)

    async def clear(self) -> None:
        self.notice = None
        self.clears += 1

    def stop(self) -> bool:
        self.stops += 1
        self._bench.finish(TurnState.INTERRUPTED)
        return True


class Bench:
    def __init__(self, patience: AgentLoop = PATIENCE, *, tools_seen: bool = False) -> None:
        self.clock = HandClock()
        self.stream = TurnStream("t1", "s1")
        self.board = Board(self)
        self.watched = StillWorking(
            self.stream,
            self.board,
            self.clock,
            patience,
            tools_seen=tools_seen,
        )

    @property
    def stops(self) -> int:
        return self.board.stops

    def finish(self, outcome: TurnState = TurnState.DONE, error: TurnError | None = None) -> None:
        self.stream.emit(
            TurnFinished(
                outcome=outcome, text="", usage=Usage(), cost_usd=None, model_calls=1, error=error
            )
        )


@asynccontextmanager
async def watching(bench: Bench) -> AsyncIterator[Bench]:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(bench.watched.watch())
        await settle()
        yield bench
        if bench.stream.finished is None:
            bench.finish()


async def test_a_quick_turn_says_nothing() -> None:
    async with watching(Bench()) as bench:
        await bench.clock.pass_by(179)
    assert bench.board.puts == []
    assert bench.board.clears == 0


async def test_a_long_turn_says_that_it_works_and_takes_that_back_at_the_end() -> None:
    async with watching(Bench()) as bench:
        bench.stream.emit(TOOL)
        await bench.clock.pass_by(181)
        assert bench.board.notice == "⏳ Still working after 3 minutes: `run make all`."
        await bench.clock.pass_by(180)
        assert bench.board.notice == "⏳ Still working after 6 minutes: `run make all`."
    assert bench.board.clears == 1


async def test_what_can_be_seen_puts_the_notice_off() -> None:
    async with watching(Bench()) as bench:
        for _ in range(5):
            await bench.clock.pass_by(100)
            bench.stream.emit(TextDelta("more"))
        assert bench.board.puts == []


async def test_tool_calls_count_as_seen_only_where_they_are_shown() -> None:
    for seen, puts in ((True, 0), (False, 1)):
        async with watching(Bench(tools_seen=seen)) as bench:
            await bench.clock.pass_by(100)
            bench.stream.emit(TOOL)
            await bench.clock.pass_by(100)
            assert len(bench.board.puts) == puts


async def test_a_turn_in_which_nothing_happens_is_announced_and_then_stopped() -> None:
    async with watching(Bench()) as bench:
        await bench.clock.pass_by(901)
        assert bench.board.notice == (
            "⚠️ Nothing has happened for 15 minutes; it is stopped in 15 minutes."
            " /stop stops it now."
        )
        assert bench.stops == 0
        await bench.clock.pass_by(900)
        assert bench.stops == 1
    assert bench.board.notice is not None
    assert "Nothing has happened for 30 minutes, so this was stopped." in bench.board.notice
    assert bench.board.final
    assert bench.board.clears == 0


async def test_a_turn_that_does_something_unseen_is_not_stopped() -> None:
    async with watching(Bench()) as bench:
        for _ in range(10):
            await bench.clock.pass_by(800)
            bench.stream.emit(ReasoningDelta("hm"))
        assert bench.stops == 0
        assert not any("Nothing has happened" in text for text in bench.board.puts)


async def test_waiting_for_a_person_is_no_inactivity() -> None:
    request = ApprovalRequest(
        id="a1", kind=ApprovalKind.APPROVAL, agent_id="main", session_id="s1", turn_id="t1",
        call_id="c", tool="terminal", arguments_hash="", subject="rm", reason="deletes",
        pattern="rm", choices=(), created_at=0.0,
    )  # fmt: skip
    async with watching(Bench()) as bench:
        await bench.clock.pass_by(170)
        bench.stream.emit(ApprovalAsked(request=request))
        await bench.clock.pass_by(50_000)
        assert bench.board.puts == []
        decision = Decision(state=ApprovalState.APPROVED, at=0.0)
        bench.stream.emit(ApprovalAnswered(approval_id="a1", decision=decision))
        await bench.clock.pass_by(170)
        assert bench.board.puts == []
        await bench.clock.pass_by(2_000)
        assert bench.stops == 1


async def test_each_part_can_be_switched_off() -> None:
    async with watching(
        Bench(AgentLoop(gateway_notify_interval=0, gateway_timeout_warning=0, gateway_timeout=600))
    ) as bench:
        await bench.clock.pass_by(599)
        assert bench.board.puts == []
        await bench.clock.pass_by(2)
        assert bench.stops == 1
    async with watching(
        Bench(AgentLoop(gateway_notify_interval=60, gateway_timeout_warning=0, gateway_timeout=0))
    ) as bench:
        await bench.clock.pass_by(90_000)
        assert bench.stops == 0


async def test_a_turn_that_goes_on_after_a_restart_keeps_its_notice() -> None:
    async with watching(Bench()) as bench:
        await bench.clock.pass_by(200)
        bench.finish(TurnState.INTERRUPTED, TurnError(code="shutdown", message="stopping"))
    assert bench.board.notice is not None
    assert bench.board.clears == 0
