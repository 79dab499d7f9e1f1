"""kill -9 at random moments: every session stays consistent and every turn goes on.

Each run asks for a job whose tool calls leave marks in a file. The process is
killed at a seeded random moment; a second process continues the session. A
call that may not be repeated must have left at most one mark, exactly one if
the ledger says that it went well.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from fakes.command import Hermes
from fakes.ledgers import damage
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from hermes.domain.messages import AssistantMessage, ToolMessage, ToolOutcome, UserMessage
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Session
from hermes.state.sqlite.ledger import SqliteLedger

STEPS = 3


def job(number: int) -> Rule:
    """A chain of calls: each leaves a mark and reads a file beside it."""
    steps = [
        Step(
            text=f"step {step}",
            calls=[
                Call(name="terminal", arguments={"command": f"echo {number}-{step} >> marks"}),
                Call(name="read_file", arguments={"path": "marks"}),
            ],
            delay=0.02,
        )
        for step in range(STEPS)
    ]
    return Rule(contains=f"job {number}.", steps=[*steps, Step(text=f"done {number}")])


async def killed_after(hermes: Hermes, number: int, seconds: float) -> None:
    process = await hermes.start("chat", "-q", f"job {number}.", "--yolo")
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
    await process.communicate()


async def check(hermes: Hermes, ledger: SqliteLedger, session: Session) -> Counter[str]:
    """Check one session; return how its calls ended."""
    marks = Counter((hermes.work / "marks").read_text(encoding="utf-8").split())
    commands: dict[str, str] = {}
    outcomes: Counter[str] = Counter()
    history = [stored.message for stored in await ledger.history(session.id)]
    assert isinstance(history[0], UserMessage)
    last = history[-1]
    assert isinstance(last, AssistantMessage)
    assert not last.tool_calls
    for message in history:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                commands[call.id] = call.arguments
        if isinstance(message, ToolMessage):
            arguments = commands.pop(message.call_id)
            outcomes[message.outcome.value] += 1
            if message.name == "terminal":
                mark = arguments.split("echo ")[1].split(" ")[0]
                assert marks[mark] <= 1, f"{mark} ran twice"
                assert message.outcome in {ToolOutcome.OK, ToolOutcome.UNKNOWN}
                assert marks[mark] == 1 or message.outcome is ToolOutcome.UNKNOWN
            else:
                assert message.outcome is ToolOutcome.OK
    assert commands == {}, "a call without a result"
    return outcomes


async def crash_test(folder: Path, runs: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    script = Script(rules=[job(n) for n in range(runs)], default=Step(text="ok"))
    totals: Counter[str] = Counter()
    async with FakeModelServer(script) as server:
        config = {"auxiliary": {"title_generation": {"enabled": False}}}
        hermes = Hermes(folder, server.base_url, config)
        (hermes.work / "marks").touch()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await hermes.run("chat", "-q", "warm up")
        whole = (loop.time() - began) * 1.5
        for number in range(runs):
            await killed_after(hermes, number, chance.uniform(0.3, 1.0) * whole)
        ledger = await SqliteLedger.open(hermes.home / "state.db", backups=hermes.home)
        try:
            sessions = await ledger.sessions(SessionQuery(limit=None))
            cut_off = {turn.session_id for turn in await ledger.open_turns()}
        finally:
            await ledger.close()
        for session in sessions:
            outcome = await hermes.run("chat", "-r", session.id, "-q", "and now?")
            assert outcome.code == 0, outcome.err
        ledger = await SqliteLedger.open(hermes.home / "state.db", backups=hermes.home)
        try:
            assert await ledger.open_turns() == []
            assert damage(hermes.home / "state.db") == []
            for session in sessions:
                totals += await check(hermes, ledger, session)
        finally:
            await ledger.close()
    totals["sessions"] = len(sessions)
    totals["cut off"] = len(cut_off)
    return totals


@pytest.mark.timeout(180)
async def test_killed_processes_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    totals = await crash_test(tmp_path, runs=12, seed=7)
    assert totals["cut off"] >= 2, f"the kills hit nothing: {totals}"
    assert totals["ok"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
async def test_killed_processes_lose_nothing_long_form(tmp_path: Path, seed: int) -> None:
    totals = await crash_test(tmp_path, runs=60, seed=seed)
    assert totals["cut off"] >= 10
