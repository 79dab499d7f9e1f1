"""Tools that ask a person, and a model that calls them."""

import asyncio
from contextvars import ContextVar
from typing import Any

from fakes.core import Handler, ScriptedTools
from fakes.http_runs import Door
from hermes.control.approvals import ApprovalAnswers
from hermes.domain.approvals import ApprovalKind, ApprovalRequest
from hermes.domain.tools import ToolContext, ToolResult
from hermes.testing.model import ScriptedModel, call, calls, say

__all__ = ["WAITING", "Asking", "asks"]

WAITING: ContextVar[bool] = ContextVar("waiting", default=False)
"""Set in a call that waits for a person: it looks at the ledger now and then."""


class Asking:
    """A tool that asks a person before it answers."""

    def __init__(self, *, choices: tuple[str, ...] = ("once", "session", "deny")) -> None:
        self.tools = ScriptedTools()
        self.tools.add("danger", self._handler(ApprovalKind.APPROVAL, choices))
        self.tools.add("clarify", self._handler(ApprovalKind.QUESTION, ("red", "blue")))
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.at: Door

    def _handler(self, kind: ApprovalKind, choices: tuple[str, ...]) -> Handler:
        async def handler(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            answers: ApprovalAnswers = self.at.behind.context.answers
            approval = await self.at.ledger.ask(
                ApprovalRequest(
                    id=f"appr_{context.call_id}",
                    kind=kind,
                    agent_id=context.agent_id,
                    session_id=context.session_id,
                    turn_id=context.turn_id,
                    call_id=context.call_id,
                    tool="danger",
                    arguments_hash="h",
                    subject="rm -r / --token hunter2-is-secret",
                    reason="deletes files",
                    pattern="rm *",
                    choices=choices,
                    created_at=context.clock.now(),
                    expires_at=context.clock.now() + 60,
                )
            )
            self.asked.put_nowait(approval.request.id)
            WAITING.set(True)
            decision = await answers.wait(approval)
            return ToolResult(content=f"{decision.state.value} {decision.text} by {decision.by}")

        return handler

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.asked.get()


def asks(*names: str) -> ScriptedModel:
    return ScriptedModel(
        [calls(*(call(name, f"c{at}") for at, name in enumerate(names))), say("Done.")]
    )
