"""Tool calls that have no result: found after a crash or an interrupt.

A call that was never started, or whose tool may be repeated, can be run. A
call that was started and may not be repeated had an unknown effect; the model
is told so and decides what to do.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.domain.messages import AssistantMessage, ToolCall, ToolMessage, ToolOutcome
from hermes.domain.session import StoredMessage
from hermes.domain.tools import ToolResult, ToolSpec

__all__ = ["CUT_OFF", "NOT_STARTED", "OpenCalls", "open_calls"]

CUT_OFF = ToolResult(
    outcome=ToolOutcome.UNKNOWN,
    content=(
        "This call was cut off before its result was known. It may or may not have had its "
        "effect. Check before you repeat it."
    ),
)
NOT_STARTED = ToolResult(
    outcome=ToolOutcome.SKIPPED,
    content="This call was not carried out: the turn was interrupted first.",
)


class OpenCalls(Struct, frozen=True, kw_only=True):
    """The calls of the last reply that lack a result."""

    repeatable: tuple[ToolCall, ...]
    cut_off: tuple[ToolCall, ...]

    def __bool__(self) -> bool:
        return bool(self.repeatable or self.cut_off)


def open_calls(
    history: Sequence[StoredMessage],
    started: frozenset[str],
    spec: Callable[[str], ToolSpec | None],
) -> OpenCalls:
    """Find calls without a result in the last reply of `history`."""
    answered: set[str] = set()
    for stored in reversed(history):
        if isinstance(stored.message, ToolMessage):
            answered.add(stored.message.call_id)
        elif isinstance(stored.message, AssistantMessage):
            missing = [call for call in stored.message.tool_calls if call.id not in answered]
            cut_off = [
                call for call in missing if call.id in started and not _repeatable(spec, call)
            ]
            return OpenCalls(
                repeatable=tuple(call for call in missing if call not in cut_off),
                cut_off=tuple(cut_off),
            )
    return OpenCalls(repeatable=(), cut_off=())


def _repeatable(spec: Callable[[str], ToolSpec | None], call: ToolCall) -> bool:
    known = spec(call.name)
    return known is not None and known.replay_safe
