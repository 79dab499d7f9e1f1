"""Notices a model that is going round in circles.

The same call failing again, or the same tool failing over and over, gets a
sentence added to its result. Nothing is blocked: the model is told, and the
call budget of the turn is the hard stop.
"""

from collections import Counter

from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec

__all__ = ["Guarded"]

SAME_CALL_FAILURES = 2
SAME_TOOL_FAILURES = 3


class Guarded:
    """Adds advice to repeated failures within one turn."""

    def __init__(self, inner: ToolRunner) -> None:
        self._inner = inner
        self._call_failures: Counter[tuple[str, str]] = Counter()
        self._tool_failures: Counter[str] = Counter()

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the inner tools."""
        return self._inner.specs()

    def spec(self, name: str) -> ToolSpec | None:
        """Return one of the inner tools."""
        return self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run the call and comment on a failure that repeats an earlier one."""
        result = await self._inner.run(call, context)
        if result.outcome is not ToolOutcome.ERROR:
            self._tool_failures[call.name] = 0
            return result
        self._call_failures[call.name, call.arguments] += 1
        self._tool_failures[call.name] += 1
        advice = self._advice(call)
        if not advice or not isinstance(result.content, str):
            return result
        return ToolResult(
            content=f"{result.content}\n\n{advice}", outcome=result.outcome, diff=result.diff
        )

    def _advice(self, call: ToolCall) -> str:
        same_call = self._call_failures[call.name, call.arguments]
        if same_call >= SAME_CALL_FAILURES:
            return (
                f"This exact call has now failed {same_call} times. Do not repeat it unchanged: "
                "find out why it fails, or take another way."
            )
        same_tool = self._tool_failures[call.name]
        if same_tool >= SAME_TOOL_FAILURES:
            return f"{call.name} has failed {same_tool} times in a row. Reconsider the approach."
        return ""
