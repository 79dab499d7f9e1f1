"""ClientSide: tools that the program which asked carries out itself.

They are shown to the model beside our own and win over one of the same name.
They are never run here: the loop ends the turn with the calls, and the
program brings the results with its next request.
"""

from collections.abc import Sequence

from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.tools import ToolContext, ToolResult, ToolRunner, ToolSpec
from hermes.domain.turn_options import ClientTool

__all__ = ["ClientSide"]


class ClientSide:
    """Adds the tools of the client to ours."""

    def __init__(self, inner: ToolRunner, tools: Sequence[ClientTool]) -> None:
        self._inner = inner
        self._own = {tool.name: _spec(tool) for tool in tools}
        ours = (spec for spec in inner.specs() if spec.name not in self._own)
        self._specs = tuple(sorted((*ours, *self._own.values()), key=lambda spec: spec.name))

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return all tools, sorted by name."""
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""
        return self._own.get(name) or self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out a call of one of our own tools."""
        if call.name in self._own:
            text = f"{call.name} is carried out by the client, not here."
            return ToolResult(content=text, outcome=ToolOutcome.ERROR)
        return await self._inner.run(call, context)


def _spec(tool: ClientTool) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters or {"type": "object", "properties": {}},
        toolset="client",
        client=True,
    )
