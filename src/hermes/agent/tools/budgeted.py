"""Budgeted: bounds what all results of one turn put into the context."""

from collections import OrderedDict

from hermes.agent.tools.results import PREVIEW_CHARS, spill
from hermes.domain.messages import ToolCall
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec

__all__ = ["Budgeted"]

_TURNS_REMEMBERED = 1024


class Budgeted:
    """Spills results to files once a turn's results exceed `max_chars_per_turn`."""

    def __init__(self, inner: ToolRunner, max_chars_per_turn: int = 200_000) -> None:
        self._inner = inner
        self._limit = max_chars_per_turn
        self._used: OrderedDict[str, int] = OrderedDict()

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the available tools, sorted by name."""
        return self._inner.specs()

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""
        return self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call`; short results always pass."""
        result = await self._inner.run(call, context)
        if not isinstance(result.content, str):
            return result
        over = self._used.get(context.turn_id, 0) + len(result.content) > self._limit
        if over and len(result.content) > 2 * PREVIEW_CHARS:
            result = await spill(result, result.content, context)
        self._count(context.turn_id, len(result.content))
        return result

    def _count(self, turn_id: str, chars: int) -> None:
        self._used[turn_id] = self._used.pop(turn_id, 0) + chars
        if len(self._used) > _TURNS_REMEMBERED:
            self._used.popitem(last=False)
