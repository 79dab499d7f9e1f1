"""Plain model calls beside the turns: no agent, no tools, no session.

Web interfaces ask the same endpoint for titles, tags and follow-up questions.
Such a call goes to the cheap model for side tasks and leaves nothing behind
but its price.
"""

import asyncio

from hermes.agent.accounting import usage_record
from hermes.agent.scope import AgentServices
from hermes.domain.messages import Message
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelReply, ModelRequest
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session

__all__ = ["PlainCalls"]

SECONDS = 60.0
INSTRUCTIONS = "Do exactly what the message asks for, in the form it asks for, and nothing else."


class PlainCalls:
    """Answers side calls of one agent."""

    def __init__(self, services: AgentServices, profile: AgentProfile) -> None:
        self._services = services
        self._profile = profile

    async def answer(
        self, task: str, messages: tuple[Message, ...], max_tokens: int | None
    ) -> ModelReply:
        """Answer with the cheap model; its use is on record under `task`."""
        services, profile, now = self._services, self._profile, self._services.clock.now()
        nowhere = Session(
            id="", agent_id=profile.id, source="api_server", started_at=now, updated_at=now
        )
        model = services.models.auxiliary("title_generation", profile, nowhere)
        request = ModelRequest(
            system=INSTRUCTIONS,
            messages=messages,
            max_tokens=max_tokens,
            reasoning_effort="none",
            task=task,
        )
        try:
            async with asyncio.timeout(SECONDS):
                reply = await model.complete(request)
        except TimeoutError as error:
            text = f"The model did not answer within {SECONDS:.0f} seconds."
            raise ModelFailure(FailureKind.TIMEOUT, text) from error
        await services.ledger.record_usage(
            usage_record(
                reply,
                task,
                agent_id=profile.id,
                session_id=None,
                turn_id=None,
                at=services.clock.now(),
            )
        )
        return reply
