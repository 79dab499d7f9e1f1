"""The approval gate as the agent core sees it."""

from collections.abc import Collection
from typing import Any, Protocol

from hermes.domain.approvals import Verdict
from hermes.domain.messages import ToolCall
from hermes.domain.ports.execution import Environment
from hermes.domain.tools import Intent, ToolContext, ToolSpec


class ApprovalGate(Protocol):
    """Decides whether a tool call may run, asking a person where policy says so."""

    async def admit(
        self, call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> None:
        """Return if the call may run; raise `ToolRefused` with the reason if not."""


class ActionPolicy(Protocol):
    """Judges what a tool call is about to do. Runs nothing."""

    async def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        """Say allow, ask or block.

        `grants` are patterns a person has allowed; `trusted` means that nothing is to be
        asked (yolo) but what cannot be read. Neither lifts what is never approvable.
        """

    def note(self, intent: Intent, environment: Environment) -> None:
        """Take note that a call which was judged is about to be carried out."""
