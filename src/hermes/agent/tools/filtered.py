"""Filtered: only some of the tools, for subagents, cron jobs and channels."""

from collections.abc import Iterable

from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec

__all__ = ["Filtered"]


class Filtered:
    """Shows and runs only the tools in `allowed_names`."""

    def __init__(self, inner: ToolRunner, allowed_names: Iterable[str]) -> None:
        self._inner = inner
        self._allowed = frozenset(allowed_names)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the allowed tools, sorted by name."""
        return tuple(spec for spec in self._inner.specs() if spec.name in self._allowed)

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is allowed."""
        return self._inner.spec(name) if name in self._allowed else None

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call` if its tool is allowed."""
        if call.name not in self._allowed and self._inner.spec(call.name) is not None:
            return ToolResult(
                content=f"The tool `{call.name}` is not allowed here.",
                outcome=ToolOutcome.REFUSED,
            )
        return await self._inner.run(call, context)
