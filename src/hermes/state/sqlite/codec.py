"""Rows of the database to values of the domain, and back.

Text goes into columns of its own, where it can be searched and read with any
SQLite tool; what has structure goes beside it as JSON.
"""

import sqlite3
from typing import Any

import msgspec

from hermes.domain.approvals import (
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Decision,
)
from hermes.domain.inbound import InboundMessage, InboxEntry, InboxState
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    InputKind,
    Message,
    Part,
    Reasoning,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.session import Lineage, Session, StoredMessage
from hermes.domain.turn import Turn, TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.state.search_text import MAX_SEARCHED, calls_text
from hermes.state.titles import clean_text

__all__ = [
    "approval",
    "decision_json",
    "dump",
    "inbox_entry",
    "load_any",
    "message_columns",
    "outbox_columns",
    "outbox_entry",
    "session",
    "stored_message",
    "time",
    "tool_calls",
    "turn",
]

_dumps = msgspec.json.Encoder().encode
_parts = msgspec.json.Decoder(tuple[Part, ...])
_calls = msgspec.json.Decoder(tuple[ToolCall, ...])
_reasoning = msgspec.json.Decoder(Reasoning)
_inbound = msgspec.json.Decoder(InboundMessage)
_decision = msgspec.json.Decoder(Decision)
_turn_error = msgspec.json.Decoder(TurnError)
_choices = msgspec.json.Decoder(tuple[str, ...])
load_any = msgspec.json.Decoder().decode

Row = sqlite3.Row


def dump(value: Any) -> str:
    """Return `value` as JSON text."""
    try:
        return _dumps(value).decode()
    except UnicodeEncodeError:
        return _dumps(_cleaned(msgspec.to_builtins(value))).decode()


def message_columns(message: Message) -> dict[str, Any]:
    """Return the columns that hold `message`."""
    columns: dict[str, Any] = dict.fromkeys(_MESSAGE_COLUMNS)
    match message:
        case UserMessage():
            columns["role"] = "user"
            columns["content"], columns["parts"] = _content_columns(message.content)
            columns["kind"] = message.kind.value
            columns["sender"] = message.sender and clean_text(message.sender)
        case AssistantMessage():
            columns["role"] = "assistant"
            columns["content"] = clean_text(message.text)
            if message.tool_calls:
                columns["tool_calls"] = dump(message.tool_calls)
                columns["calls_text"] = clean_text(calls_text(message))[:MAX_SEARCHED]
            columns["finish_reason"] = message.finish.value
            columns["reasoning"] = None if message.reasoning is None else dump(message.reasoning)
        case ToolMessage():
            columns["role"] = "tool"
            columns["content"], columns["parts"] = _content_columns(message.content)
            columns["tool_call_id"] = message.call_id
            columns["tool_name"] = clean_text(message.name)
            columns["outcome"] = message.outcome.value
    return columns


_MESSAGE_COLUMNS = (
    "role",
    "content",
    "parts",
    "kind",
    "sender",
    "tool_calls",
    "calls_text",
    "tool_call_id",
    "tool_name",
    "outcome",
    "finish_reason",
    "reasoning",
)


def stored_message(row: Row) -> StoredMessage:
    """Read a message with its seat."""
    return StoredMessage(
        id=row["id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        seq=row["seq"],
        at=row["timestamp"],
        message=_message(row),
        active=bool(row["active"]),
    )


def tool_calls(text: str | None) -> tuple[ToolCall, ...]:
    """Read the calls of an assistant message."""
    return () if text is None else _calls.decode(text)


def session(row: Row) -> Session:
    """Read a row of `session_rows`."""
    return Session(
        id=row["id"],
        agent_id=row["agent_id"],
        source=row["source"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        model=row["model"],
        provider=row["provider"],
        cwd=row["cwd"],
        user_id=row["user_id"],
        parent_id=row["parent_session_id"],
        lineage=None if row["lineage"] is None else Lineage(row["lineage"]),
        title=row["title"],
        system_prompt=row["system_prompt"],
        ended_at=row["ended_at"],
        end_reason=row["end_reason"],
        message_count=row["message_count"],
        tool_call_count=row["tool_call_count"],
        usage=Usage(
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cache_read_tokens=row["cache_read_tokens"],
            cache_write_tokens=row["cache_write_tokens"],
            reasoning_tokens=row["reasoning_tokens"],
        ),
        cost_usd=row["estimated_cost_usd"],
        preview=row["preview"],
        state=load_any(row["state"]),
    )


def turn(row: Row) -> Turn:
    """Read a row of `turns`."""
    return Turn(
        id=row["id"],
        session_id=row["session_id"],
        agent_id=row["agent_id"],
        owner=row["owner"],
        state=TurnState(row["state"]),
        started_at=float(row["started_at"]),
        updated_at=float(row["updated_at"]),
        resumes=row["resumes"],
        releases=row["releases"],
        finished_at=time(row["finished_at"]),
        error=None if row["error"] is None else _turn_error.decode(row["error"]),
    )


def inbox_entry(row: Row) -> InboxEntry:
    """Read a row of `inbox`."""
    return InboxEntry(
        id=row["id"],
        agent_id=row["agent_id"],
        session_key=row["session_key"],
        session_id=row["session_id"],
        message=_inbound.decode(row["message"]),
        admitted_at=float(row["admitted_at"]),
        state=InboxState(row["state"]),
        turn_id=row["turn_id"],
        drop_reason=row["drop_reason"],
    )


def outbox_entry(row: Row) -> OutboxEntry:
    """Read a row of `outbox`."""
    return OutboxEntry(
        id=row["id"],
        agent_id=row["agent_id"],
        target=Target(
            platform=row["platform"],
            account=row["account"],
            chat_id=row["chat_id"],
            thread_id=row["thread_id"],
            reply_to=row["reply_to"],
        ),
        kind=OutboxKind(row["kind"]),
        content=row["content"],
        created_at=float(row["created_at"]),
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        part=row["part"],
        attachment=row["attachment"],
        state=OutboxState(row["state"]),
        native_id=row["native_id"],
        attempts=row["attempts"],
        error=row["error"],
        updated_at=float(row["updated_at"]),
    )


def outbox_columns(entry: OutboxEntry) -> dict[str, Any]:
    """Return the columns that hold `entry`."""
    columns = msgspec.structs.asdict(entry)
    target: Target = columns.pop("target")
    columns |= msgspec.structs.asdict(target)
    columns["content"] = clean_text(entry.content)
    columns["kind"] = entry.kind.value
    columns["state"] = entry.state.value
    return columns


def approval(row: Row) -> Approval:
    """Read a row of `approvals`."""
    return Approval(
        request=ApprovalRequest(
            id=row["id"],
            kind=ApprovalKind(row["kind"]),
            agent_id=row["agent_id"],
            session_id=row["session_id"],
            turn_id=row["turn_id"],
            call_id=row["call_id"],
            tool=row["tool"],
            arguments_hash=row["arguments_hash"],
            subject=row["subject"],
            reason=row["reason"],
            pattern=row["pattern"],
            choices=_choices.decode(row["choices"]),
            created_at=float(row["created_at"]),
            expires_at=time(row["expires_at"]),
        ),
        state=ApprovalState(row["state"]),
        decision=None if row["decision"] is None else _decision.decode(row["decision"]),
    )


def decision_json(decision: Decision) -> str:
    """Return `decision` as it is stored."""
    return dump(decision)


def time(value: float | None) -> float | None:
    """Read a time; RETURNING gives back an integral REAL as an integer."""
    return None if value is None else float(value)


def _message(row: Row) -> Message:
    match row["role"]:
        case "user":
            return UserMessage(
                content=_content(row), kind=InputKind(row["kind"]), sender=row["sender"]
            )
        case "assistant":
            calls, reasoning = row["tool_calls"], row["reasoning"]
            return AssistantMessage(
                text=row["content"],
                tool_calls=tool_calls(calls),
                reasoning=None if reasoning is None else _reasoning.decode(reasoning),
                finish=FinishReason(row["finish_reason"]),
            )
        case _:
            return ToolMessage(
                call_id=row["tool_call_id"],
                name=row["tool_name"],
                content=_content(row),
                outcome=ToolOutcome(row["outcome"]),
            )


def _content(row: Row) -> Content:
    return row["content"] if row["parts"] is None else _parts.decode(row["parts"])


def _content_columns(content: Content) -> tuple[str, str | None]:
    text = clean_text(content_text(content))
    return text, None if isinstance(content, str) else dump(content)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value
