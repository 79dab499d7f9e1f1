"""Seats: how messages get their place in a session.

An assistant message with k tool calls takes seat n and reserves n+1 .. n+k for
the results, so results stand in call order whatever order they arrive in.
"""

import sqlite3
from collections.abc import Sequence

from hermes.domain.messages import AssistantMessage, InputKind, Message, UserMessage, content_text
from hermes.domain.session import StoredMessage
from hermes.state.refusals import unknown_session
from hermes.state.sqlite import codec
from hermes.state.sqlite.part import one
from hermes.state.sqlite.queries import sql
from hermes.state.titles import clean_text, preview

__all__ = ["put", "take_seats"]


def take_seats(
    connection: sqlite3.Connection,
    session_id: str,
    at: float,
    *,
    seats: int,
    messages: Sequence[Message],
) -> int:
    """Advance the seats and counters of a session; return the first seat taken."""
    replies = (message for message in messages if isinstance(message, AssistantMessage))
    row = one(
        connection,
        "messages.take_seats",
        {
            "session_id": session_id,
            "seats": seats,
            "messages": len(messages),
            "calls": sum(len(reply.tool_calls) for reply in replies),
            "at": at,
            "preview": _preview_of(messages),
        },
    )
    if row is None:
        raise unknown_session(session_id)
    return int(row["next_seq"]) - seats


def put(
    connection: sqlite3.Connection,
    message: Message,
    *,
    session_id: str,
    turn_id: str | None,
    seq: int,
    at: float,
) -> StoredMessage:
    """Write a message into a seat."""
    columns = codec.message_columns(message)
    columns["session_id"] = session_id
    columns["turn_id"] = turn_id
    columns["seq"] = seq
    columns["timestamp"] = at
    cursor = connection.execute(sql("messages.insert"), columns)
    assert cursor.lastrowid is not None
    return StoredMessage(
        id=cursor.lastrowid,
        session_id=session_id,
        turn_id=turn_id,
        seq=seq,
        at=at,
        message=message,
    )


def _preview_of(messages: Sequence[Message]) -> str:
    """Return the preview that the first thing a person said gives."""
    for message in messages:
        if isinstance(message, UserMessage) and message.kind is InputKind.USER:
            return preview(clean_text(content_text(message.content)))
    return ""
