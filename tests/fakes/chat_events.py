"""Turns as events, and the chat completion chunks they give."""

import json
from typing import Any

from hermes.domain.events import (
    MessageCompleted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import Usage
from hermes.streaming.wire.chat import ChatStream

__all__ = [
    "CALL",
    "USAGE",
    "chunks",
    "content",
    "finished",
    "message",
    "named",
    "parsed",
    "started",
    "stream",
]

USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=64, reasoning_tokens=7)
CALL = ToolCall(id="call_1", name="read_file", arguments='{"path":"a"}')


def started(*earlier: AssistantMessage) -> TurnStarted:
    return TurnStarted(
        turn_id="turn_1", session_id="s1", agent_id="main", model="m", earlier=earlier
    )


def message(
    text: str, *calls: ToolCall, finish: FinishReason = FinishReason.STOP
) -> MessageCompleted:
    return MessageCompleted(
        message_id=1, message=AssistantMessage(text=text, tool_calls=calls, finish=finish)
    )


def finished(
    text: str = "",
    outcome: TurnState = TurnState.DONE,
    error: TurnError | None = None,
    handed: tuple[ToolCall, ...] = (),
) -> TurnFinished:
    return TurnFinished(
        outcome=outcome,
        text=text,
        usage=USAGE,
        cost_usd=None,
        model_calls=1,
        error=error,
        handed=handed,
    )


def stream(*events: TurnEvent, include_usage: bool = False) -> bytes:
    fold = ChatStream("chatcmpl-1", 1700000000.9, "hermes", include_usage=include_usage)
    return fold.opening() + b"".join(fold.feed(event) for event in events)


def parsed(wire: bytes) -> list[tuple[str | None, Any]]:
    """Read a stream the way a strict client does; `[DONE]` has to be its end."""
    assert wire.endswith(b"\n\n")
    blocks = wire.decode().removesuffix("\n\n").split("\n\n")
    assert blocks[-1] == "data: [DONE]"
    assert wire.count(b"[DONE]\n") == 1
    events: list[tuple[str | None, Any]] = []
    for block in blocks[:-1]:
        lines = block.split("\n")
        name = lines[0].removeprefix("event: ") if lines[0].startswith("event: ") else None
        [data] = lines[1:] if name else lines
        assert data.startswith("data: ")
        events.append((name, json.loads(data[6:])))
    return events


def chunks(wire: bytes) -> list[Any]:
    return [data for name, data in parsed(wire) if name is None]


def content(wire: bytes) -> str:
    """Return the text as a client collects it that knows nothing of event names."""
    return "".join(
        choice["delta"].get("content") or ""
        for _, data in parsed(wire)
        for choice in data["choices"]
    )


def named(wire: bytes) -> list[tuple[str, Any]]:
    return [(name, data) for name, data in parsed(wire) if name is not None]
