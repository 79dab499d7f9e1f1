"""Approved: asks the gate before anything happens."""

from hermes.agent.tools.arguments import parse_object
from hermes.domain.errors import ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.ports.approval import ApprovalGate
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec

__all__ = ["Approved"]


class Approved:
    """Runs a call only when the gate has admitted it."""

    def __init__(self, inner: ToolRunner, gate: ApprovalGate) -> None:
        self._inner = inner
        self._gate = gate

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the available tools, sorted by name."""
        return self._inner.specs()

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""
        return self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call` if the gate lets it pass."""
        spec = self._inner.spec(call.name)
        arguments = parse_object(call.arguments)
        if spec is not None and arguments is not None:
            try:
                await self._gate.admit(call, spec, arguments, context)
            except ToolRefused as refusal:
                text = f"{refusal.message} {refusal.hint}".strip()
                return ToolResult(content=text, outcome=ToolOutcome.REFUSED)
        # Unknown tools and unreadable arguments never run: the registry says why.
        return await self._inner.run(call, context)
