"""The way out of the sandbox: asked for with a reason, allowed by a person, once."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from fakes.person import KEY, Person
from fakes.toolbox import Toolbox
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.wrappers import Approved, Journaled
from hermes.control.approvals import ApprovalAnswers, LedgerGate
from hermes.domain.approvals import ApprovalRequest, Choice
from hermes.domain.events import ApprovalAsked, TurnStream
from hermes.domain.messages import AssistantMessage, ToolCall, ToolOutcome, UserMessage
from hermes.domain.session import NewSession
from hermes.domain.settings import Settings
from hermes.domain.settings.execution import Approvals
from hermes.domain.settings.live import LiveSettings
from hermes.domain.turn import NewTurn
from hermes.execution.clock import SystemClock
from hermes.execution.policy.host import HostPolicy
from hermes.state.sqlite.ledger import SqliteLedger

pytestmark = pytest.mark.usefixtures("bubblewrap")


class Turn:
    """A turn of a session in a person's project, with its tools and its gate."""

    def __init__(self, person: Person, ledger: SqliteLedger, *, can_ask: bool) -> None:
        self.ledger = ledger
        self.stream = TurnStream("turn_1", "s1")
        clock = SystemClock()
        self.answers = ApprovalAnswers(ledger, clock)
        self.gate = LedgerGate(
            ledger=ledger,
            policy=HostPolicy(LiveSettings(), {"HOME": str(person.home)}, person.boxes.home),
            answers=self.answers,
            settings=LiveSettings(),
            stream=self.stream,
            clock=clock,
            can_ask=can_ask,
        )
        self.requests: list[ApprovalRequest] = []

    async def box(self, person: Person) -> Toolbox:
        tools = Journaled(ToolRegistry(["terminal"]), self.ledger, SystemClock(), 60.0)
        environment = await person.open()
        return Toolbox(environment, Approved(tools, self.gate), SystemClock(), session_id="s1")

    async def answer(self, choice: Choice) -> None:
        """Give this answer to whatever is asked."""
        async for event in self.stream.follow():
            if isinstance(event, ApprovalAsked):
                self.requests.append(event.request)
                await self.answers.answer(event.request.id, choice, by="person")


async def turn_of(person: Person, folder: Path, *, can_ask: bool = True) -> Turn:
    ledger = await SqliteLedger.open(folder / "state.db", backups=folder)
    await ledger.create_session(NewSession(id="s1", agent_id="main", source="cli", started_at=0.0))
    await ledger.begin_turn(
        NewTurn(id="turn_1", session_id="s1", owner="o", inputs=(UserMessage(content="x"),), at=0.0)
    )
    calls = tuple(ToolCall(id=f"call_{n}", name="terminal", arguments="{}") for n in range(1, 5))
    await ledger.record_reply("turn_1", AssistantMessage(tool_calls=calls), None, 0.0)
    return Turn(person, ledger, can_ask=can_ask)


async def test_a_reason_asks_and_an_approval_runs_it_on_the_host_once(
    person: Person, tmp_path: Path
) -> None:
    turn = await turn_of(person, tmp_path)
    box = await turn.box(person)
    answering = asyncio.ensure_future(turn.answer(Choice.ONCE))
    text = await box.text("terminal", command="cat ~/letter.txt", escalate="the letter is there")
    assert text == KEY
    (request,) = turn.requests
    assert "leaves the sandbox: “The letter is there”" in request.reason
    assert request.choices == ("once", "deny")
    again = await box.text("terminal", command="cat ~/letter.txt; true")
    assert KEY not in again
    answering.cancel()
    await turn.ledger.close()


async def test_a_failure_of_the_walls_offers_the_way_out(person: Person, tmp_path: Path) -> None:
    turn = await turn_of(person, tmp_path)
    box = await turn.box(person)
    answering = asyncio.ensure_future(turn.answer(Choice.ONCE))
    text = await box.text("terminal", command="git config --local alias.st status && echo done")
    assert text == "done"
    (request,) = turn.requests
    assert "read-only" in request.reason
    assert "alias" in (person.project / ".git/config").read_text()
    answering.cancel()
    await turn.ledger.close()


@pytest.mark.parametrize("trusted", ["yolo", "off"])
async def test_what_a_program_prints_takes_nothing_out(
    person: Person, tmp_path: Path, trusted: str
) -> None:
    turn = await turn_of(person, tmp_path)
    live = LiveSettings(Settings(approvals=Approvals(mode="off" if trusted == "off" else "manual")))
    turn.gate = structs.replace(turn.gate, settings=live, yolo=trusted == "yolo")
    box = await turn.box(person)
    (person.project / "build.sh").write_text("cat ~/letter.txt; echo Read-only file system; exit 1")
    text = await box.text("terminal", command="bash build.sh")
    assert KEY not in text
    assert "`escalate`" in text
    assert await box.text("terminal", command="cat ~/letter.txt", escalate="to read it") == KEY
    await turn.ledger.close()


async def test_a_long_reason_does_not_hide_the_question(person: Person, tmp_path: Path) -> None:
    turn = await turn_of(person, tmp_path)
    box = await turn.box(person)
    answering = asyncio.ensure_future(turn.answer(Choice.DENY))
    await box.do("terminal", command="id", escalate="Allowed by policy. " * 1000)
    assert len(turn.requests[0].reason) < 300
    answering.cancel()
    await turn.ledger.close()


async def test_a_refusal_leaves_the_failure_and_says_so(person: Person, tmp_path: Path) -> None:
    turn = await turn_of(person, tmp_path)
    box = await turn.box(person)
    answering = asyncio.ensure_future(turn.answer(Choice.DENY))
    text = await box.text("terminal", command="touch /usr/bin/mine")
    assert "Read-only file system" in text
    assert "The user refused this" in text
    refused = await box.do("terminal", command="id", escalate="to be root")
    assert refused.outcome is ToolOutcome.REFUSED
    answering.cancel()
    await turn.ledger.close()


async def test_where_nobody_can_be_asked_nothing_leaves(person: Person, tmp_path: Path) -> None:
    turn = await turn_of(person, tmp_path, can_ask=False)
    box = await turn.box(person)
    refused = await box.do("terminal", command="cat ~/letter.txt", escalate="to read it")
    assert refused.outcome is ToolOutcome.REFUSED
    assert "nobody can be asked here" in str(refused.content)
    text = await box.text("terminal", command="cat ~/letter.txt")
    assert KEY not in text
    assert "nobody can be asked here" in text
    assert await turn.ledger.approvals() == []
    await turn.ledger.close()
