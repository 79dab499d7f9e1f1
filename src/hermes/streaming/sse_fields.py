"""What runs and sessions say alike about approvals, usage, errors and calls."""

from collections.abc import Callable
from typing import Any

from hermes.domain.approvals import ApprovalRequest, Decision
from hermes.domain.messages import ToolCall
from hermes.domain.turn import TurnError
from hermes.domain.usage import Usage

__all__ = [
    "approval_fields",
    "decision_fields",
    "error_fields",
    "tool_call_fields",
    "usage_fields",
]

Fields = dict[str, Any]


def approval_fields(request: ApprovalRequest, redact: Callable[[str], str]) -> Fields:
    """Return what a person has to know to answer an approval or a question."""
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
    """Return how an approval or a question was answered."""
    return {
        "state": decision.state.value,
        "choice": None if decision.choice is None else decision.choice.value,
        "text": decision.text,
        "by": decision.by,
    }


def usage_fields(usage: Usage, cost_usd: float | None) -> Fields:
    """Return tokens and money."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": cost_usd,
    }


def error_fields(error: TurnError | None) -> Fields:
    """Return why a run failed."""
    if error is None:
        return {"code": "failed", "message": "The run failed."}
    return {"code": error.code, "message": f"{error.message} {error.hint}".strip()}


def tool_call_fields(call: ToolCall) -> Fields:
    """Return a call of a client tool in the form that OpenAI clients know."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
