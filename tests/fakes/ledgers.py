"""Short ways to say what ledger tests say all the time."""

import sqlite3
from pathlib import Path

from hermes.domain.approvals import ApprovalKind, ApprovalRequest
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.jobs import Instant
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.outbound import OutboxEntry, OutboxKind, Target
from hermes.domain.ports.ledger import Arrival, Ledger
from hermes.domain.runs import NewRun, OpenedRun, Run, RunKind, RunOutcome, RunState, SessionChoice
from hermes.domain.session import NewSession, StoredMessage
from hermes.domain.turn import ClientResult, NewTurn, TurnState
from hermes.domain.usage import Usage, UsageRecord
from hermes.state.sqlite.rows import columns


def session(
    session_id: str = "s1",
    *,
    title: str | None = None,
    source: str = "cli",
    agent_id: str = "main",
    at: float = 1.0,
    user_id: str | None = None,
) -> NewSession:
    return NewSession(
        id=session_id,
        agent_id=agent_id,
        source=source,
        started_at=at,
        title=title,
        model="m",
        user_id=user_id,
    )


def turn(
    turn_id: str = "t1",
    *,
    session_id: str = "s1",
    says: str | None = "hello",
    inbox_ids: tuple[int, ...] = (),
    results: dict[str, str] | None = None,
    owner: str = "host-1-aa",
    at: float = 2.0,
) -> NewTurn:
    inputs = () if says is None else (UserMessage(content=says),)
    return NewTurn(
        id=turn_id,
        session_id=session_id,
        owner=owner,
        inputs=inputs,
        inbox_ids=inbox_ids,
        results=client_results(results),
        at=at,
    )


def client_results(results: dict[str, str] | None) -> tuple[ClientResult, ...]:
    return tuple(ClientResult(call_id=i, content=text) for i, text in (results or {}).items())


def reply(text: str = "", *call_ids: str) -> AssistantMessage:
    calls = tuple(ToolCall(id=i, name=f"tool_{i}", arguments="{}") for i in call_ids)
    finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    return AssistantMessage(text=text, tool_calls=calls, finish=finish)


def result(call_id: str, text: str = "done") -> ToolMessage:
    return ToolMessage(call_id=call_id, name=f"tool_{call_id}", content=text)


def inbound(native_id: str, text: str = "hi", *, account: str = "bot") -> InboundMessage:
    return InboundMessage(
        platform="telegram",
        account=account,
        native_id=native_id,
        chat=Chat(kind=ChatKind.PRIVATE, id="7"),
        sender=Sender(id="7", name="Ada"),
        text=text,
        sent_at=1.0,
    )


def arrival(
    native_id: str,
    text: str = "hi",
    *,
    session_id: str = "s1",
    account: str = "bot",
    at: float = 1.5,
) -> Arrival:
    return Arrival(
        agent_id="main",
        session_key="agent:main:telegram:dm:7",
        session_id=session_id,
        message=inbound(native_id, text, account=account),
        at=at,
    )


def outgoing(
    entry_id: str = "o1",
    *,
    turn_id: str | None = None,
    part: int = 0,
    at: float = 1.0,
    platform: str = "telegram",
    session_id: str | None = None,
) -> OutboxEntry:
    return OutboxEntry(
        id=entry_id,
        agent_id="main",
        target=Target(platform=platform, account="bot", chat_id="7"),
        kind=OutboxKind.REPLY,
        content="text",
        created_at=at,
        updated_at=at,
        turn_id=turn_id,
        session_id=session_id,
        part=part,
    )


def request(
    approval_id: str = "a1",
    *,
    session_id: str = "s1",
    turn_id: str = "t1",
    call_id: str = "c1",
    at: float = 3.0,
    expires_at: float | None = None,
) -> ApprovalRequest:
    return ApprovalRequest(
        id=approval_id,
        kind=ApprovalKind.APPROVAL,
        agent_id="main",
        session_id=session_id,
        turn_id=turn_id,
        call_id=call_id,
        tool="terminal",
        arguments_hash="abc",
        subject="rm -r build",
        reason="deletes files",
        pattern="rm *",
        choices=("once", "session", "always", "deny"),
        created_at=at,
        expires_at=expires_at,
    )


def usage(
    *,
    session_id: str | None = "s1",
    turn_id: str | None = "t1",
    model: str = "m",
    tokens: int = 10,
    cost: float | None = 0.5,
    at: float = 3.0,
) -> UsageRecord:
    return UsageRecord(
        session_id=session_id,
        turn_id=turn_id,
        agent_id="main",
        provider="p",
        model=model,
        task="turn",
        usage=Usage(input_tokens=tokens, output_tokens=1),
        cost_usd=cost,
        at=at,
    )


async def say(ledger: Ledger, text: str, *, session_id: str = "s1", turn_id: str) -> None:
    """Have a whole turn: `text`, and an answer."""
    await ledger.begin_turn(turn(turn_id, session_id=session_id, says=text))
    await ledger.record_reply(turn_id, reply("ok"), None, 3.0)
    await ledger.finish_turn(turn_id, TurnState.DONE, None, 4.0)


def texts(messages: list[StoredMessage]) -> list[str]:
    """Return what was said, in order."""
    return [
        stored.message.text
        if isinstance(stored.message, AssistantMessage)
        else str(stored.message.content)
        for stored in messages
    ]


CHOOSE_NOTHING = SessionChoice()


def new_run(
    run_id: str = "r1",
    *,
    choice: SessionChoice = CHOOSE_NOTHING,
    key_id: str = "k1",
    text: str = "hi",
    history: tuple[Message, ...] = (),
    results: dict[str, str] | None = None,
    idempotency_key: str | None = None,
    fingerprint: str = "f",
    logged: bool = False,
    at: float = 1.0,
) -> NewRun:
    """A request whose own session, if it opens one, is `s-<run>`."""
    message = InboundMessage(
        platform="api_server",
        account="main",
        native_id=run_id,
        chat=Chat(kind=ChatKind.PRIVATE, id="7"),
        sender=Sender(id="7", name="Ada"),
        text=text,
        sent_at=at,
        results=client_results(results),
    )
    return NewRun(
        id=run_id,
        kind=RunKind.RUN,
        key_id=key_id,
        agent_id="main",
        choice=choice,
        session=session(f"s-{run_id}", source="api_server", at=at),
        history=history,
        message=message,
        session_key=f"agent:main:api_server:dm:{run_id}",
        request={"model": "hermes", "n": 1},
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
        logged=logged,
        at=at,
    )


def after(run_id: str) -> SessionChoice:
    return SessionChoice(after_run=run_id)


def ended_as(state: RunState = RunState.COMPLETED, text: str = "ok") -> RunOutcome:
    return RunOutcome(state=state, text=text, usage=Usage(input_tokens=3), cost_usd=0.25)


async def answer_run(
    ledger: Ledger, opened: OpenedRun, answer: AssistantMessage | None = None
) -> Run:
    """Have the turn of a run, with one reply, and end both."""
    run, entry = opened.run, opened.entry
    turn_id = f"t-{run.id}"
    results = {r.call_id: str(r.content) for r in entry.message.results}
    await ledger.begin_turn(
        turn(
            turn_id,
            session_id=run.session_id,
            says=entry.message.text,
            inbox_ids=(entry.id,),
            results=results,
        )
    )
    said = answer or reply("ok")
    await ledger.record_reply(turn_id, said, None, 3.0)
    handed = bool(said.tool_calls)
    await ledger.finish_turn(turn_id, TurnState.DONE, None, 4.0, handed=handed)
    assert await ledger.finish_run(run.id, ended_as(), [], 5.0)
    ended = await ledger.run(run.id)
    assert ended is not None
    return ended


def damage(path: Path) -> list[str]:
    """Look for damage in a database; return what was found, nothing if all is well."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        strays = [str(row) for row in connection.execute("PRAGMA foreign_key_check")]
    finally:
        connection.close()
    return [problem for problem in found if problem != "ok"] + strays


def record_instant(path: Path, instant: Instant) -> None:
    """Write down what became of a due instant, in the database at `path`."""
    values = columns(instant)
    names = ", ".join(values)
    seats = ", ".join(f":{name}" for name in values)
    with sqlite3.connect(path) as db:
        db.execute(f"INSERT INTO job_instants ({names}) VALUES ({seats})", values)
    db.close()
