"""A turn as `/api/sessions/{id}/chat/stream` tells it: named events, numbered.

    event: assistant.delta
    data: {"session_id", "run_id", "seq", "ts", "message_id", "delta"}

    run.started  (message.started  assistant.delta*  message.completed  tool.*)*
    assistant.completed  run.completed | error  done

`assistant.completed` comes once and holds the final answer. `assistant.reset`
voids the deltas of the message it names.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.domain.events import (
    Notice,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from hermes.domain.messages import ToolOutcome
from hermes.domain.turn import TurnState
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView
from hermes.streaming.wire.frames import (
    Named,
    aside_fields,
    error_fields,
    frame,
    tool_call_fields,
    usage_fields,
)

_encode = msgspec.json.Encoder().encode


class SessionStream:
    """Makes frames of the events of one turn; one for each stream."""

    def __init__(
        self,
        session_id: str,
        run_id: str,
        *,
        now: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self._head = _encode({"session_id": session_id, "run_id": run_id})[:-1]
        self._run_id = run_id
        self._now = now
        self._redact = redact
        self._view = TurnView()
        self._seq = 0
        self._message = 0
        self._open = False
        """A message is being told."""

    def feed(self, event: TurnEvent) -> bytes:
        """Return the frames of one event; empty if there is nothing to tell."""
        return b"".join(
            self._frame(name, fields)
            for piece in self._view.feed(event)
            for name, fields in self._told(piece)
        )

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        self._seq += 1
        told = _encode({"seq": self._seq, "ts": self._now(), **fields})
        return frame(b"%b,%b" % (self._head, told[1:]), event=name)

    def _told(self, piece: Piece) -> list[Named]:
        match piece:
            case Said(text=text, again=again):
                return self._say(text, again=again)
            case Thought(text=text):
                return [("reasoning.delta", {"delta": text})]
            case Completed():
                return self._complete(piece)
            case TurnFinished():
                return self._finish(piece)
            case ToolStarted() | ToolDone():
                return [_tool(piece)]
            case TurnStarted() | Notice() | UsageReported():
                return [_about(piece)]
            case _:
                return [aside_fields(piece, self._redact)]

    @property
    def _message_id(self) -> str:
        return f"{self._run_id}.{self._message}"

    def _say(self, text: str, *, again: bool) -> list[Named]:
        told: list[Named] = []
        if not self._open:
            self._open = True
            self._message += 1
            message = {"id": self._message_id, "role": "assistant"}
            told.append(("message.started", {"message": message}))
        if again:
            told.append(("assistant.reset", {"message_id": self._message_id}))
        delta = {"message_id": self._message_id, "delta": text}
        return [*told, ("assistant.delta", delta)] if text else told

    def _complete(self, completed: Completed) -> list[Named]:
        text = completed.message.text
        told = self._say(text, again=True) if completed.differs else []
        if not self._open:
            return told
        self._open = False
        ended = {"message_id": self._message_id, "content": text}
        return [*told, ("message.completed", ended)]

    def _finish(self, event: TurnFinished) -> list[Named]:
        if event.outcome is TurnState.FAILED:
            return [("error", error_fields(event.error)), ("done", {"completed": False})]
        done = event.outcome is TurnState.DONE
        last = self._view.last.text if self._view.last else ""
        completed = {
            "message_id": self._message_id,
            "content": event.text if done else last,
            "completed": done,
            "interrupted": not done,
        }
        ended: dict[str, Any] = {
            "completed": done,
            "interrupted": not done,
            "usage": usage_fields(event.usage, event.cost_usd),
        }
        if event.handed:
            ended["tool_calls"] = [tool_call_fields(call) for call in event.handed]
        return [
            ("assistant.completed", completed),
            ("run.completed", ended),
            ("done", {"completed": done}),
        ]


def _about(piece: TurnStarted | Notice | UsageReported) -> Named:
    match piece:
        case TurnStarted(resumes=resumes):
            return "run.started", {"resumes": resumes}
        case Notice(code=code, text=text):
            return "notice", {"code": code, "text": text}
        case UsageReported(usage=usage, cost_usd=cost_usd):
            return "usage", usage_fields(usage, cost_usd)


def _tool(piece: ToolStarted | ToolDone) -> Named:
    if isinstance(piece, ToolStarted):
        fields = {"tool_name": piece.name, "preview": piece.label, "emoji": piece.emoji}
        return "tool.started", {"call_id": piece.call_id, **fields}
    ended = piece.finished
    return "tool.completed" if ended.outcome is ToolOutcome.OK else "tool.failed", {
        "call_id": ended.call_id,
        "tool_name": ended.name,
        "outcome": ended.outcome.value,
        "duration": round(ended.seconds, 3),
        "preview": ended.preview,
    }
