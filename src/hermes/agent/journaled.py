"""The innermost policy: a call is on record before it has its effect.

Tools that may be repeated need no record. For all others the ledger learns
that the call is starting, after every approval and before the first side
effect; that is what tells a later process whether running it is safe.
"""

import asyncio

from hermes.agent.durable import durable
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.state import TurnStore
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec

__all__ = ["Journaled"]


class Journaled:
    """Records the start of calls that must not run twice, and bounds their time."""

    def __init__(self, inner: ToolRunner, turns: TurnStore, clock: Clock, seconds: float) -> None:
        self._inner = inner
        self._turns = turns
        self._clock = clock
        self._seconds = seconds

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the inner tools."""
        return self._inner.specs()

    def spec(self, name: str) -> ToolSpec | None:
        """Return one of the inner tools."""
        return self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Record the start where needed, then run the call within the time limit."""
        spec = self._inner.spec(call.name)
        if spec is not None and not spec.replay_safe:
            await durable(self._turns.start_call(context.turn_id, call.id, self._clock.now()))
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                return await self._inner.run(call, context)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{call.name} did not finish within {self._seconds:.0f} seconds and was stopped."
            return ToolResult(outcome=ToolOutcome.ERROR, content=text)
