"""A turn as `/api/sessions/{id}/chat/stream` tells it: named events, numbered.

    event: assistant.delta
    data: {"session_id", "run_id", "seq", "ts", "message_id", "delta"}

    run.started  (message.started  assistant.delta*  message.completed  tool.*)*
    assistant.completed  run.completed | error  done

`assistant.completed` comes once and holds the final answer. `assistant.reset`
voids the deltas of the message it names. A turn that is told after the fact,
with fewer deltas, gives the same text: what a message had not shown by its
end is sent then.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hermes.domain.approvals import ApprovalRequest
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    Notice,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.domain.turn import TurnState
from hermes.streaming.wire.frames import (
    approval_fields,
    decision_fields,
    error_fields,
    frame,
    tool_call_fields,
    usage_fields,
)

__all__ = ["SessionFold"]

Told = tuple[str, dict[str, Any]]

_encode = msgspec.json.Encoder().encode


class SessionFold:
    """Turns the events of one turn into frames; one per stream."""

    def __init__(
        self,
        session_id: str,
        run_id: str,
        *,
        now: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self._head = {"session_id": session_id, "run_id": run_id}
        self._now = now
        self._redact = redact
        self._seq = 0
        self._message = 0
        self._shown: list[str] | None = None
        """The pieces of the message that is being told; None between messages."""
        self._last = ""

    def frames(self, event: TurnEvent) -> bytes:
        """Return the frames of one event; empty if there is nothing to tell."""
        return b"".join(self._frame(name, fields) for name, fields in self._told(event))

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        self._seq += 1
        head = self._head | {"seq": self._seq, "ts": self._now()}
        return frame(_encode(head | fields), event=name)

    def _told(self, event: TurnEvent) -> Sequence[Told]:
        match event:
            case TextDelta(text=text):
                return self._delta(text)
            case TextReset():
                return self._reset()
            case ReasoningDelta(text=text):
                return [("reasoning.delta", {"delta": text})]
            case MessageCompleted(message=message):
                return self._completed(message)
            case TurnStarted():
                return self._started(event)
            case ToolStarted() | ToolProgress() | ToolFinished():
                return [_tool(event)]
            case TurnFinished():
                return self._finished(event)
            case _:
                return _aside(event, self._asked)

    def _asked(self, request: ApprovalRequest) -> dict[str, Any]:
        return approval_fields(request, self._redact)

    def _started(self, event: TurnStarted) -> list[Told]:
        told: list[Told] = [("run.started", {"resumes": event.resumes})]
        for message in event.earlier:
            told += self._completed(message)
        return told

    @property
    def _message_id(self) -> str:
        return f"{self._head['run_id']}.{self._message}"

    def _open(self) -> list[Told]:
        if self._shown is not None:
            return []
        self._shown = []
        self._message += 1
        return [("message.started", {"message": {"id": self._message_id, "role": "assistant"}})]

    def _delta(self, text: str) -> list[Told]:
        told = self._open()
        assert self._shown is not None
        self._shown.append(text)
        return [*told, ("assistant.delta", {"message_id": self._message_id, "delta": text})]

    def _reset(self) -> list[Told]:
        if not self._shown:
            return []
        self._shown = []
        return [("assistant.reset", {"message_id": self._message_id})]

    def _completed(self, message: AssistantMessage) -> list[Told]:
        if self._shown is None and not message.text:
            return []
        told = self._open()
        shown = "".join(self._shown or ())
        if not message.text.startswith(shown):
            told += self._reset()
            shown = ""
        if rest := message.text[len(shown) :]:
            told += self._delta(rest)
        self._shown, self._last = None, message.text
        ended = {"message_id": self._message_id, "content": message.text}
        return [*told, ("message.completed", ended)]

    def _finished(self, event: TurnFinished) -> list[Told]:
        done = event.outcome is TurnState.DONE
        completed = {
            "message_id": self._message_id,
            "content": event.text if done else self._last,
            "completed": done,
            "interrupted": event.outcome is TurnState.INTERRUPTED,
        }
        if event.outcome is TurnState.FAILED:
            return [("error", error_fields(event.error)), ("done", {"completed": False})]
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


def _tool(event: ToolStarted | ToolProgress | ToolFinished) -> Told:
    match event:
        case ToolStarted():
            fields = {"tool_name": event.name, "preview": event.label, "emoji": event.emoji}
            return "tool.started", {"call_id": event.call_id, **fields}
        case ToolProgress(call_id=call_id, text=text):
            return "tool.progress", {"call_id": call_id, "text": text}
        case ToolFinished():
            good = event.outcome is ToolOutcome.OK
            return "tool.completed" if good else "tool.failed", {
                "call_id": event.call_id,
                "tool_name": event.name,
                "outcome": event.outcome.value,
                "duration": round(event.seconds, 3),
                "preview": event.preview,
            }


def _aside(event: TurnEvent, asked: Callable[[ApprovalRequest], dict[str, Any]]) -> list[Told]:
    match event:
        case ApprovalAsked(request=request):
            return [("approval.request", asked(request))]
        case ApprovalAnswered(approval_id=approval_id, decision=decision):
            return [("approval.responded", {"id": approval_id, **decision_fields(decision)})]
        case SteerTaken(text=text):
            return [("steer.taken", {"text": text})]
        case Notice(code=code, text=text):
            return [("notice", {"code": code, "text": text})]
        case UsageReported(usage=usage, cost_usd=cost_usd):
            return [("usage", usage_fields(usage, cost_usd))]
        case _:
            return []
