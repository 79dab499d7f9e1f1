"""The approval gate: asked once, answered once, remembered over a restart."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.control.approvals import ApprovalAnswers, LedgerGate
from hermes.domain.approvals import ApprovalState, Choice, Gate, Verdict
from hermes.domain.errors import ToolRefused
from hermes.domain.events import ApprovalAnswered, ApprovalAsked, TurnStream
from hermes.domain.messages import AssistantMessage, ToolCall, UserMessage
from hermes.domain.ports.execution import Environment
from hermes.domain.session import NewSession
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import AgentLoop
from hermes.domain.settings.execution import Approvals
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Intent, ToolContext, ToolSpec
from hermes.domain.turn import NewTurn, TurnState
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

MANUAL = Approvals()
SPEC = ToolSpec(
    name="terminal",
    description="",
    parameters={},
    toolset="terminal",
    intent=lambda arguments: Intent(command=arguments["command"]),
)


class WordPolicy:
    """`block` blocks, `rm` asks with the pattern `rm`, the rest is allowed."""

    async def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        if "block" in intent.command:
            return Verdict(gate=Gate.BLOCK, reason="never")
        if "rm" in intent.command and not trusted and "rm" not in grants:
            return Verdict(gate=Gate.ASK, reason="it deletes", pattern="rm")
        if "$" in intent.command:
            return Verdict(gate=Gate.ASK, reason="it is computed", pattern="$", opaque=True)
        return Verdict(gate=Gate.ALLOW)

    def note(self, intent: Intent, environment: Environment) -> None:
        pass


class Bench:
    def __init__(self, ledger: SqliteLedger, approvals: Approvals, **door: bool) -> None:
        self.ledger = ledger
        self.clock = SystemClock()
        self.answers = ApprovalAnswers(ledger, self.clock)
        self.stream = TurnStream("t1", "s1")
        self.settings = LiveSettings(Settings(approvals=approvals))
        self.door = {"can_ask": True, **door}
        self.judged: list[str] = []
        self.opinion = Gate.ASK

    async def judge(self, subject: str, reason: str) -> Gate:
        self.judged.append(subject)
        return self.opinion

    def gate(self) -> LedgerGate:
        return LedgerGate(
            ledger=self.ledger,
            policy=WordPolicy(),
            answers=self.answers,
            settings=self.settings,
            **self.door,
            stream=self.stream,
            clock=self.clock,
            judge=self.judge,
        )

    async def admit(self, command: str, call_id: str = "c1", spec: ToolSpec = SPEC) -> None:
        call = ToolCall(id=call_id, name=spec.name, arguments=f'{{"command": "{command}"}}')
        await self.gate().admit(call, spec, {"command": command}, context(call_id))

    async def asked(self, count: int = 1) -> list[str]:
        """Wait until this many approvals were asked; return their ids."""
        ids = []
        async for event in self.stream.follow():
            if isinstance(event, ApprovalAsked):
                ids.append(event.request.id)
                if len(ids) == count:
                    return ids
        raise AssertionError


def context(call_id: str) -> ToolContext:
    async def nothing(name: str) -> None:
        return None

    async def keep(name: str, value: object) -> None:
        return None

    return ToolContext(
        agent_id="main",
        session_id="s1",
        turn_id="t1",
        call_id=call_id,
        environment=None,  # type: ignore[arg-type]
        clock=SystemClock(),
        progress=lambda text: None,
        recall=nothing,
        remember=keep,
    )


@asynccontextmanager
async def bench(folder: Path, approvals: Approvals = MANUAL, **door: bool) -> AsyncIterator[Bench]:
    ledger = await SqliteLedger.open(folder / "state.db", backups=folder)
    if await ledger.session("s1") is None:
        await ledger.create_session(
            NewSession(id="s1", agent_id="main", source="cli", started_at=0.0)
        )
        await ledger.begin_turn(
            NewTurn(id="t1", session_id="s1", owner="o", inputs=(UserMessage(content="x"),), at=0.0)
        )
        calls = tuple(ToolCall(id=f"c{n}", name="terminal", arguments="{}") for n in range(5))
        await ledger.record_reply("t1", AssistantMessage(tool_calls=calls), None, 0.0)
    try:
        yield Bench(ledger, approvals, **door)
    finally:
        await ledger.close()


async def test_harmless_actions_are_not_asked_about(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.admit("ls")
        assert await b.ledger.approvals() == []


async def test_what_is_blocked_stays_blocked_whatever_is_set(tmp_path: Path) -> None:
    async with bench(tmp_path, Approvals(mode="off"), yolo=True) as b:
        with pytest.raises(ToolRefused, match="never"):
            await b.admit("block this")


async def test_where_nobody_can_be_asked_the_answer_is_no(tmp_path: Path) -> None:
    async with bench(tmp_path, can_ask=False) as b:
        with pytest.raises(ToolRefused, match="nobody can be asked"):
            await b.admit("rm x")
        assert await b.ledger.approvals() == []


async def test_yolo_asks_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, can_ask=False, yolo=True) as b:
        await b.admit("rm x")
        assert await b.ledger.approvals() == []


async def test_what_cannot_be_read_needs_a_person_in_every_mode(tmp_path: Path) -> None:
    async with bench(tmp_path, can_ask=False, yolo=True) as b:
        with pytest.raises(ToolRefused, match="it is computed"):
            await b.admit("$x")


async def test_a_second_opinion_is_not_enough_for_what_cannot_be_read(tmp_path: Path) -> None:
    async with bench(tmp_path, Approvals(mode="smart"), can_ask=False) as b:
        b.opinion = Gate.ALLOW
        with pytest.raises(ToolRefused, match="it is computed"):
            await b.admit("$x")
        assert b.judged == []


async def test_an_approved_call_runs_and_both_sides_are_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, asyncio.TaskGroup() as group:
        waiting = group.create_task(b.admit("rm x"))
        (approval_id,) = await b.asked()
        turn = await b.ledger.turn("t1")
        assert turn is not None
        assert turn.state is TurnState.WAITING
        assert await b.answers.answer(approval_id, Choice.ONCE, by="ann")
        await waiting
        turn = await b.ledger.turn("t1")
        assert turn is not None
        assert turn.state is TurnState.RUNNING
        kinds = [type(e) async for e in _so_far(b.stream)]
        assert kinds == [ApprovalAsked, ApprovalAnswered]


async def _so_far(stream: TurnStream) -> AsyncIterator[object]:
    position = 0
    async for event in stream.follow():
        position += 1
        yield event
        if position == len(stream):
            return


async def test_a_denial_carries_its_reason_to_the_model(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_refusal(b.admit("rm x")))
            (approval_id,) = await b.asked()
            await b.answers.answer(approval_id, Choice.DENY, by="ann", text="wrong folder")
        assert "wrong folder" in waiting.result()


async def _refusal(admit: object) -> str:
    with pytest.raises(ToolRefused) as refused:
        await admit  # type: ignore[misc]
    return refused.value.message


async def test_an_answer_counts_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with asyncio.TaskGroup() as group:
            group.create_task(b.admit("rm x"))
            (approval_id,) = await b.asked()
            assert await b.answers.answer(approval_id, Choice.ONCE, by="ann")
            assert await b.answers.answer(approval_id, Choice.DENY, by="bob") is None
        stored = await b.ledger.approval(approval_id)
        assert stored is not None
        assert stored.state is ApprovalState.APPROVED


async def test_two_may_wait_at_once_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with asyncio.TaskGroup() as group:
            group.create_task(b.admit("rm one", "c1"))
            refused = group.create_task(_refusal(b.admit("rm two", "c2")))
            await b.asked(2)
            by_call = {
                a.request.call_id: a.request.id for a in await b.ledger.pending_approvals("s1")
            }
            await b.answers.answer(by_call["c2"], Choice.DENY, by="ann")
            await b.answers.answer(by_call["c1"], Choice.ONCE, by="ann")
        assert "refused" in refused.result()


async def test_nobody_answering_is_a_denial(tmp_path: Path) -> None:
    async with bench(tmp_path, Approvals(timeout=0.0)) as b:
        assert "in time" in await _refusal(b.admit("rm x"))
        (stored,) = await b.ledger.approvals()
        assert stored.state is ApprovalState.EXPIRED
        assert await b.answers.answer(stored.request.id, Choice.ONCE, by="late") is None


async def test_a_grant_for_the_session_covers_later_calls_and_can_be_revoked(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        async with asyncio.TaskGroup() as group:
            group.create_task(b.admit("rm one", "c1"))
            (approval_id,) = await b.asked()
            await b.answers.answer(approval_id, Choice.SESSION, by="ann")
        await b.admit("rm two", "c2")
        assert await b.ledger.revoke(approval_id, 1.0)
        b.door["can_ask"] = False
        with pytest.raises(ToolRefused):
            await b.admit("rm three", "c3")


async def test_an_answer_given_after_a_restart_is_found(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        waiting = asyncio.ensure_future(b.admit("rm x"))
        (approval_id,) = await b.asked()
        waiting.cancel()
        await asyncio.wait([waiting])
    async with bench(tmp_path) as b:
        assert len(await b.ledger.pending_approvals("s1")) == 1
        await b.answers.answer(approval_id, Choice.ONCE, by="ann")
        await b.admit("rm x")
        assert len(await b.ledger.approvals()) == 1


async def test_a_destructive_tool_is_always_asked_about(tmp_path: Path) -> None:
    spec = ToolSpec(name="wipe", description="", parameters={}, toolset="t", destructive=True)
    async with bench(tmp_path, can_ask=False) as b:
        with pytest.raises(ToolRefused, match="cannot be undone"):
            await b.admit("ls", spec=spec)


@pytest.mark.parametrize(
    ("opinion", "asked"), [(Gate.ALLOW, False), (Gate.ASK, True), (Gate.BLOCK, True)]
)
async def test_smart_mode_asks_when_the_second_opinion_is_not_a_clear_yes(
    tmp_path: Path, opinion: Gate, asked: bool
) -> None:
    async with bench(tmp_path, Approvals(mode="smart"), can_ask=False) as b:
        b.opinion = opinion
        if asked:
            with pytest.raises(ToolRefused):
                await b.admit("rm x")
        else:
            await b.admit("rm x")
        assert b.judged == ["rm x"]


async def test_a_question_of_a_tool_is_answered_once_and_for_all(tmp_path: Path) -> None:
    async with bench(tmp_path) as it, asyncio.TaskGroup() as group:
        asking = group.create_task(it.gate().question(context("c1"), "Red or blue?", ["red"]))
        [approval_id] = await it.asked()
        turn = await it.ledger.turn("t1")
        assert turn is not None
        assert turn.state is TurnState.WAITING
        assert await it.answers.reply(approval_id, "blue", by="ann") is not None
        assert await asking == "blue"
        # The same question of the same call, for instance after a restart, is not asked again.
        assert await it.gate().question(context("c1"), "Red or blue?", ["red"]) == "blue"


@pytest.mark.parametrize(("typed", "answer"), [("2", "blue"), (" red ", "red"), ("3", "3")])
async def test_the_number_of_a_choice_stands_for_the_choice_at_every_door(
    tmp_path: Path, typed: str, answer: str
) -> None:
    async with bench(tmp_path) as it, asyncio.TaskGroup() as group:
        question = it.gate().question(context("c1"), "Which?", ["red", "blue"])
        asking = group.create_task(question)
        [approval_id] = await it.asked()
        assert await it.answers.reply(approval_id, typed, by="ann") is not None
        assert await asking == answer


async def test_a_question_that_nobody_can_answer_is_refused_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, can_ask=False) as it:
        with pytest.raises(ToolRefused, match="Nobody can be asked"):
            await it.gate().question(context("c1"), "Red or blue?", [])


async def test_a_question_expires(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        soon = AgentLoop(clarify_timeout=0.001)
        it.settings = LiveSettings(Settings(agent=soon))
        with pytest.raises(ToolRefused, match="Nobody answered in time"):
            await it.gate().question(context("c1"), "Red or blue?", [])
