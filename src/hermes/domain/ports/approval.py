"""The approval gate as the agent core sees it."""

from typing import Any, Protocol

from hermes.domain.messages import ToolCall
from hermes.domain.tools import ToolContext, ToolSpec

__all__ = ["ApprovalGate"]


class ApprovalGate(Protocol):
    """Decides whether a tool call may run, asking a person where policy says so."""

    async def admit(
        self, call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> None:
        """Return if the call may run; raise `ToolRefused` with the reason if not."""
        ...
