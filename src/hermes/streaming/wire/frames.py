"""Server-sent events on the wire: one event is a few lines and an empty one.

Data is JSON and therefore one line; names and ids come from us.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import asdict

from hermes.domain.approvals import ApprovalRequest, Decision
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDelta,
    SteerTaken,
    ToolProgress,
    TurnFinished,
    UsageReported,
)
from hermes.domain.messages import ToolCall, openai_call
from hermes.domain.runs import RunOutcome
from hermes.domain.turn import TurnError

DONE = b"data: [DONE]\n\n"


def frame(data: bytes, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002 (the field's name)
    """Return one event; `data` must not contain a line break."""
    if event is None and id is None:
        return b"data: %b\n\n" % data
    head = "" if id is None else f"id: {id}\n"
    if event is not None:
        head += f"event: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


def told_logprobs(told: str) -> Any:
    """Return the JSON of `ModelReply.logprobs` as what is written into an answer unread."""
    return Raw(told.encode())


Fields = dict[str, Any]
Named = tuple[str, Fields]
"""The name of an event and what it tells."""


def aside_fields(
    event: CallDelta | ToolProgress | ApprovalAsked | ApprovalAnswered | SteerTaken,
    redact: Callable[[str], str],
) -> Named:
    """Return an event that runs and sessions tell in the same way."""
    match event:
        case ToolProgress(call_id=call_id, text=text):
            return "tool.progress", {"call_id": call_id, "text": text}
        case ApprovalAsked(request=request):
            return "approval.request", approval_fields(request, redact)
        case ApprovalAnswered(approval_id=approval_id, decision=decision):
            return "approval.responded", {"id": approval_id, **decision_fields(decision)}
        case CallDelta(call_id=call_id, name=name, arguments=arguments):
            return "tool_call.delta", {"call_id": call_id, "tool": name, "delta": arguments}
        case SteerTaken(text=text):
            return "steer.taken", {"text": text}


def approval_fields(request: ApprovalRequest, redact: Callable[[str], str]) -> Fields:
    return {
        "id": request.id,
        "kind": request.kind.value,
        "tool": request.tool,
        "call_id": request.call_id,
        "command": redact(request.subject),
        "description": redact(request.reason),
        "pattern_key": redact(request.pattern),
        "choices": list(request.choices),
        "created_at": request.created_at,
        "expires_at": request.expires_at,
    }


def decision_fields(decision: Decision) -> Fields:
    return {
        "state": decision.state.value,
        "choice": None if decision.choice is None else decision.choice.value,
        "text": decision.text,
        "by": decision.by,
    }


def usage_fields(used: UsageReported | TurnFinished | RunOutcome) -> Fields:
    total = {"total_tokens": used.usage.total_tokens, "cost_usd": used.cost_usd}
    return asdict(used.usage) | total


def error_fields(error: TurnError | None) -> Fields:
    if error is None:
        return {"code": "failed", "message": "The run failed."}
    return {"code": error.code, "message": f"{error.message} {error.hint}".strip()}


def handed_fields(calls: Sequence[ToolCall]) -> Fields:
    """Return the field of calls that the client has to carry out; nothing if there are none."""
    return {"tool_calls": [openai_call(call) for call in calls]} if calls else {}
