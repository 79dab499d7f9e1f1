"""What people are told when a message cannot be taken or answered for now.

Said once per chat and while, straight to the platform: the outbox may be the
very thing that does not work.
"""

from collections.abc import Awaitable, Callable

from hermes.domain.errors import HermesError, NotFound, StoreError
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock

AGAIN_AFTER = 600.0
MOST_CHATS = 5_000


class Apologies:
    """Remembers who has been told."""

    def __init__(self, send: Callable[[Target, str], Awaitable[None]], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._told: dict[tuple[str, str, str | None], float] = {}

    async def say(self, target: Target, error: HermesError) -> None:
        """Explain `error` in a chat, unless that was done a moment ago."""
        now = self._clock.monotonic()
        chat = (target.platform, target.chat_id, target.thread_id)
        if now - self._told.get(chat, float("-inf")) < AGAIN_AFTER:
            return
        if len(self._told) >= MOST_CHATS:
            self._told = {c: at for c, at in self._told.items() if now - at < AGAIN_AFTER}
        self._told[chat] = now
        await self._send(target, explanation(error))


def explanation(error: HermesError) -> str:
    """Return a sentence for the person; where files lie is for the log."""
    if isinstance(error, StoreError):
        return (
            "⚠️ I cannot store anything right now (perhaps the disk is full), so this has to"
            " wait. Your message is not lost: I try again."
        )
    if isinstance(error, NotFound):
        return f"⚠️ Nobody can answer here: {error.message}"
    return "⚠️ Something went wrong on my side. Your message is kept; it is answered later."
