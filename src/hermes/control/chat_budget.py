"""Waiting for room in a chat's budget (`pacing`)."""

from hermes.control.pacing import ChatPacer, PacerBook, PacingLimits, Urgency
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import Capabilities

__all__ = ["PATIENCE", "Pacer"]

PATIENCE = 3.0
"""Seconds a preview waits for room before it is dropped."""


class Pacer:
    """The budget of one chat, as something to wait for."""

    def __init__(
        self, book: PacerBook, capabilities: Capabilities, chat: Target, clock: Clock
    ) -> None:
        self._book = book
        self._limits = _limits(capabilities, chat)
        self._chat = (chat.platform, chat.account, chat.chat_id)
        self._clock = clock

    async def wait(self, urgency: Urgency, patience: float = PATIENCE) -> bool:
        """Wait for room for a call; False: it is not worth waiting for."""
        waited = 0.0
        final = urgency is Urgency.FINAL
        if final:
            self._budget().final_waits()
        try:
            while (seconds := self._budget().admit(urgency, self._clock.monotonic())) > 0:
                if self._budget().droppable(urgency, waited + seconds, patience):
                    return False
                await self._clock.sleep(seconds)
                waited += seconds
        finally:
            if final:
                self._budget().final_done()
        return True

    def penalise(self, seconds: float) -> None:
        """Obey the platform's wish for silence."""
        self._budget().penalty(seconds, self._clock.monotonic())

    def _budget(self) -> ChatPacer:
        return self._book.of(self._chat, self._limits, self._clock.monotonic())


def _limits(capabilities: Capabilities, target: Target) -> PacingLimits:
    """Return how much the chat takes; ids of groups are negative or differ from a person's."""
    group = target.chat_id.startswith("-")
    interval = capabilities.group_interval if group else capabilities.private_interval
    return PacingLimits(interval=interval)
