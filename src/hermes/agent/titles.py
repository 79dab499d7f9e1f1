"""Titles: one cheap call after the first exchange, and never another."""

import asyncio

from hermes.agent.scope import AgentServices
from hermes.agent.side_calls import usage_record
from hermes.domain.errors import HermesError
from hermes.domain.messages import AssistantMessage, InputKind, UserMessage, content_text
from hermes.domain.ports.model import ModelRequest
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session, StoredMessage

__all__ = ["TitleMaker"]

INSTRUCTIONS = (
    "Give this conversation a title of three to six words in the language of the user. "
    "Answer with the title only: no quotes, no full stop."
)
EXCERPT_CHARS = 600
MAX_WORDS = 10
FALLBACK_CHARS = 60


class TitleMaker:
    """Names a session once it has had its first exchange."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services

    async def name(self, profile: AgentProfile, session_id: str) -> None:
        """Title the session if this was its first exchange and it has no title."""
        session = await self._services.ledger.session(session_id)
        if (
            not self._services.settings().auxiliary.title_generation.enabled
            or session is None
            or session.title
        ):
            return
        exchange = first_exchange(await self._services.ledger.history(session_id))
        if exchange is None:
            return
        title = await self._ask(profile, session, *exchange) or _fallback(exchange[0])
        await self._services.ledger.name_session(session_id, self._services.redact(title))

    async def _ask(
        self, profile: AgentProfile, session: Session, question: str, answer: str
    ) -> str:
        model = self._services.models.auxiliary("title_generation", profile, session)
        if not model.info.can_title:
            return ""
        text = f"User: {question[:EXCERPT_CHARS]}\n\nAssistant: {answer[:EXCERPT_CHARS]}"
        request = ModelRequest(
            system=INSTRUCTIONS,
            messages=(UserMessage(content=text),),
            max_tokens=40,
            reasoning_effort="none",
            task="title_generation",
        )
        try:
            async with asyncio.timeout(
                self._services.settings().auxiliary.title_generation.timeout
            ):
                reply = await model.complete(request)
        except (HermesError, TimeoutError):
            return ""
        await self._services.ledger.record_usage(
            usage_record(
                reply,
                "title_generation",
                agent_id=profile.id,
                session_id=session.id,
                turn_id=None,
                at=self._services.clock.now(),
            )
        )
        return _clean(reply.message.text)


def first_exchange(history: list[StoredMessage]) -> tuple[str, str] | None:
    """Return the first question and its answer if there is just one of each."""
    asked = [
        stored.message
        for stored in history
        if isinstance(stored.message, UserMessage) and stored.message.kind is InputKind.USER
    ]
    last = history[-1].message if history else None
    if len(asked) != 1 or not isinstance(last, AssistantMessage) or not last.text.strip():
        return None
    return content_text(asked[0].content), last.text


def _clean(title: str) -> str:
    line = next((line for line in title.strip().splitlines() if line.strip()), "")
    words = line.strip().strip("\"'`“”*#").rstrip(".").split()
    return " ".join(words[:MAX_WORDS])


def _fallback(question: str) -> str:
    words = " ".join(question.split())
    return words[:FALLBACK_CHARS].strip() or "Untitled"
