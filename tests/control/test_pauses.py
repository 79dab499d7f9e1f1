"""Which turns only wait for a person, and need no time when the process ends."""

from pathlib import Path
from typing import Any

import pytest

from hermes.control.lanes.pauses import pauses
from hermes.domain.approvals import ApprovalKind, ApprovalRequest, ApprovalState, Decision
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnStream,
)
from hermes.domain.messages import AssistantMessage, ToolCall, ToolOutcome, UserMessage
from hermes.domain.session import NewSession
from hermes.domain.turn import NewTurn
from hermes.state.sqlite.ledger import SqliteLedger


def started(call_id: str) -> ToolStarted:
    return ToolStarted(call_id=call_id, name="terminal", arguments={}, emoji="", label="")


def finished(call_id: str) -> ToolFinished:
    done: Any = {"outcome": ToolOutcome.OK, "seconds": 0.0, "preview": "", "output": ""}
    return ToolFinished(call_id=call_id, name="terminal", **done)


def asked(call_id: str) -> ApprovalAsked:
    plain: Any = dict.fromkeys(("tool", "arguments_hash", "subject", "reason", "pattern"), "")
    request = ApprovalRequest(
        id=f"about {call_id}",
        kind=ApprovalKind.APPROVAL,
        agent_id="main",
        session_id="s1",
        turn_id="t1",
        call_id=call_id,
        choices=(),
        created_at=0.0,
        **plain,
    )
    return ApprovalAsked(request=request)


ANSWERED = ApprovalAnswered(
    approval_id="about a", decision=Decision(state=ApprovalState.APPROVED, at=0.0)
)


@pytest.mark.parametrize(
    ("events", "begun", "expected"),
    [
        ([], [], False),
        ([started("a")], [], False),
        ([started("a"), asked("a")], [], True),
        ([started("a"), asked("a"), ANSWERED], ["a"], False),
        ([started("a"), asked("a"), started("b")], ["b"], False),
        ([started("a"), asked("a"), started("b"), finished("b")], ["b"], True),
        ([started("a"), started("b"), asked("b"), asked("a")], [], True),
        ([started("a"), asked("a:b1")], [], True),
        ([started("a"), asked("a:b1")], ["a"], False),
    ],
)
async def test_only_a_turn_that_does_nothing_else_pauses(
    tmp_path: Path, events: list[TurnEvent], begun: list[str], expected: bool
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    new = NewSession(id="s1", agent_id="main", source="cli", started_at=0.0)
    await ledger.create_session(new)
    said = (UserMessage(content="Hi"),)
    await ledger.begin_turn(NewTurn(id="t1", session_id="s1", owner="o", inputs=said, at=0.0))
    calls = tuple(ToolCall(id=each, name="terminal", arguments="{}") for each in "ab")
    await ledger.record_reply("t1", AssistantMessage(tool_calls=calls), None, 0.0)
    for call_id in begun:
        await ledger.start_call("t1", call_id, 0.0)
    stream = TurnStream("t1", "s1")
    for event in events:
        stream.emit(event)
    assert await pauses(ledger, stream) is expected
    await ledger.close()
