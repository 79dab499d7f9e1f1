"""A turn as the chunks of a streamed chat completion.

    role -> content ... (named events between) -> calls for the client
         -> finish reason and usage -> [DONE]

Tools, approvals and notices are events with names of their own and never part
of the content, where clients would keep them as something the model has said.
Client libraries read the data of every event as a chunk, whatever its name:
named events are therefore chunks, too, with an empty delta and further fields.

Only the text of a chunk is encoded for each piece; what is the same in all of
them is encoded once.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.domain.approvals import ApprovalRequest
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    Notice,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.streaming.wire.chat_outcome import (
    SentText,
    chat_usage,
    failure_text,
    finish_reason,
    incomplete,
)
from hermes.streaming.wire.frames import (
    DONE,
    approval_fields,
    decision_fields,
    frame,
    tool_call_fields,
)

__all__ = ["ChatStream"]

_encode = msgspec.json.Encoder().encode
_AFTER = b',"logprobs":null,"finish_reason":null}]}\n\n'


class ChatStream:
    """Folds the events of one turn into server-sent events for one client."""

    def __init__(
        self,
        completion_id: str,
        created: float,
        model: str,
        *,
        include_usage: bool = False,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._head: dict[str, Any] = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": int(created),
            "model": model,
        }
        before = b"data: %b" % _encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._content = before + b'{"content":'
        self._reasoning = before + b'{"reasoning_content":'
        self._before = before
        self._run_id = completion_id
        self._redact = redact
        self._include_usage = include_usage
        self._text = SentText()
        self._said = False
        self._last: AssistantMessage | None = None
        self._labels: dict[str, tuple[str, str]] = {}

    def opening(self) -> bytes:
        """Return the first chunk: the client sees at once that it was heard."""
        return self._delta({"role": "assistant", "content": ""})

    def feed(self, event: TurnEvent) -> bytes:
        """Return what an event gives on the wire: any number of events, or nothing."""
        match event:
            case TextDelta():
                return self._say(self._text.delta(event.text))
            case ReasoningDelta():
                if not event.text:
                    return b""
                return b"%b%b}%b" % (self._reasoning, _encode(event.text), _AFTER)
            case TextReset():
                self._text.reset()
                return b""
            case TurnStarted():
                self._last = event.earlier[-1] if event.earlier else self._last
                return self._say(self._text.started(event.earlier))
            case MessageCompleted():
                self._last = event.message
                return self._say(self._text.completed(event.message))
            case TurnFinished():
                return self._finish(event)
            case _:
                return self._aside(event)

    def _aside(self, event: TurnEvent) -> bytes:
        """Return an event with a name of its own."""
        match event:
            case ToolStarted():
                self._labels[event.call_id] = (event.emoji, event.label)
                return self._tool(event.call_id, event.name, "running")
            case ToolFinished():
                good = event.outcome is ToolOutcome.OK
                return self._tool(event.call_id, event.name, "completed" if good else "failed")
            case ApprovalAsked():
                return self._named("hermes.approval.request", self._approval(event.request))
            case ApprovalAnswered():
                answered = decision_fields(event.decision)
                answered |= {"id": event.approval_id, "run_id": self._run_id}
                return self._named("hermes.approval.responded", {"approval": answered})
            case Notice():
                notice = {"code": event.code, "level": event.level.value, "text": event.text}
                return self._named("hermes.notice", notice)
            case _:
                return b""

    def _say(self, text: str) -> bytes:
        if not text:
            return b""
        self._said = True
        return b"%b%b}%b" % (self._content, _encode(text), _AFTER)

    def _tool(self, call_id: str, name: str, status: str) -> bytes:
        emoji, label = self._labels.get(call_id, ("", ""))
        progress = {
            "tool": name,
            "emoji": emoji,
            "label": label,
            "toolCallId": call_id,
            "status": status,
        }
        return self._named("hermes.tool.progress", progress)

    def _approval(self, request: ApprovalRequest) -> dict[str, Any]:
        where = {
            "run_id": self._run_id,
            "session_id": request.session_id,
            "answer_url": f"/v1/approvals/{request.id}",
        }
        return {"approval": approval_fields(request, self._redact) | where}

    def _finish(self, finished: TurnFinished) -> bytes:
        out = b"" if finished.handed else self._say(self._text.finished(finished.text))
        if finished.handed:
            calls = [
                {"index": index, **tool_call_fields(call)}
                for index, call in enumerate(finished.handed)
            ]
            out += self._delta({"tool_calls": calls})
        reason = finish_reason(finished, self._last)
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        last: dict[str, Any] = {**self._head, "choices": [choice]}
        usage = chat_usage(finished.usage)
        if not self._include_usage:
            last["usage"] = usage
        missing = incomplete(finished, reason, text=self._said)
        if missing is not None:
            last["hermes"] = missing
        if reason == "error":
            last["error"] = {
                "message": failure_text(finished),
                "type": "server_error",
                "code": "agent_incomplete",
                "param": None,
            }
        out += frame(_encode(last))
        if self._include_usage:
            out += frame(_encode({**self._head, "choices": [], "usage": usage}))
        return out + DONE

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return b"%b%b%b" % (self._before, _encode(delta), _AFTER)

    def _named(self, name: str, fields: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
        return frame(_encode({**self._head, "choices": [choice], **fields}), event=name)
