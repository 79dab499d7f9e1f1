"""The events of a run as its followers read them.

    id: <seq>
    data: {"event": "message.delta", "run_id", "timestamp", ...}

Each logged event gives at most one frame under its own id, made from nothing
but that event: a reader that comes back with `Last-Event-ID` gets exactly the
rest. The frames have no `event:` line, because browsers hand named events only
to listeners of that name; the name is in the data, where every client finds it.

Text is built from `message.delta`. `message.reset` voids the deltas since the
last `message.completed`: a model call was repeated, or the run goes on after a
restart, and then `messages` holds what had been said completely until then.
"""

from collections.abc import Callable

import msgspec

from hermes.domain.events import (
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
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.domain.runs import LoggedEvent
from hermes.domain.turn import TurnState
from hermes.streaming.wire.frames import (
    Fields,
    Named,
    aside_fields,
    error_fields,
    frame,
    tool_call_fields,
    usage_fields,
)

_encode = msgspec.json.Encoder().encode


def run_frame(run_id: str, logged: LoggedEvent, redact: Callable[[str], str]) -> bytes:
    name, fields = _told(logged.event, redact)
    head = {"event": name, "run_id": run_id, "timestamp": logged.at}
    return frame(_encode(head | fields), id=str(logged.seq))


def _told(event: TurnEvent, redact: Callable[[str], str]) -> Named:
    match event:
        case TextDelta(text=text):
            return "message.delta", {"delta": text}
        case ReasoningDelta(text=text):
            return "reasoning.delta", {"delta": text}
        case TextReset() | TurnStarted() | MessageCompleted():
            return _message(event)
        case ToolStarted() | ToolFinished():
            return _tool(event)
        case Notice(code=code, text=text, level=level):
            return "notice", {"code": code, "text": text, "level": level.value}
        case UsageReported():
            return "usage", _usage(event)
        case TurnFinished():
            return _finished(event)
        case _:
            return aside_fields(event, redact)


def _message(event: TextReset | TurnStarted | MessageCompleted) -> Named:
    match event:
        case TextReset():
            return "message.reset", {"reason": "retry"}
        case TurnStarted(resumes=0):
            return "run.started", {"session_id": event.session_id, "turn_id": event.turn_id}
        case TurnStarted():
            said = [_said(message) for message in event.earlier]
            return "message.reset", {"reason": "resume", "messages": said}
        case MessageCompleted(message_id=message_id, message=message):
            return "message.completed", {"message_id": message_id, **_said(message)}


def _said(message: AssistantMessage) -> Fields:
    said: Fields = {"text": message.text, "finish_reason": message.finish.value}
    if message.reasoning is not None and message.reasoning.text:
        said["reasoning"] = message.reasoning.text
    if message.tool_calls:
        said["tool_calls"] = [{"id": c.id, "name": c.name} for c in message.tool_calls]
    return said


def _tool(event: ToolStarted | ToolFinished) -> Named:
    if isinstance(event, ToolStarted):
        fields = {"tool": event.name, "preview": event.label, "emoji": event.emoji}
        return "tool.started", {"call_id": event.call_id, **fields}
    return "tool.completed", {
        "call_id": event.call_id,
        "tool": event.name,
        "duration": round(event.seconds, 3),
        "error": event.outcome is not ToolOutcome.OK,
        "outcome": event.outcome.value,
        "preview": event.preview,
    }


def _usage(event: UsageReported) -> Fields:
    context = {"context_tokens": event.context_tokens, "context_window": event.context_window}
    return usage_fields(event.usage, event.cost_usd) | context


def _finished(event: TurnFinished) -> Named:
    usage = {"usage": usage_fields(event.usage, event.cost_usd)}
    if event.outcome is TurnState.FAILED:
        return "run.failed", {"error": error_fields(event.error), **usage}
    if event.outcome is TurnState.INTERRUPTED:
        return "run.cancelled", usage
    handed = [tool_call_fields(call) for call in event.handed]
    return "run.completed", {
        "output": event.text,
        **({"tool_calls": handed} if handed else {}),
        **usage,
    }
