"""The transcript mirror: after each turn, what is new goes to `sessions/<id>.jsonl`."""

from hermes.agent.turn_runner import TurnRunner
from hermes.domain.events import TurnJob
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.state.transcripts import TranscriptMirror

__all__ = ["MirroredRunner"]

MIRRORED = "mirrored_message_id"
"""Where a session remembers how far its mirror goes."""


class MirroredRunner:
    """A turn runner that keeps the mirror up to date."""

    def __init__(self, inner: TurnRunner, ledger: Ledger, mirror: TranscriptMirror) -> None:
        self._inner = inner
        self._ledger = ledger
        self._mirror = mirror

    async def run(self, job: TurnJob) -> None:
        """Bring a turn to its end."""
        await self._inner.run(job)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Write what the mirror does not have yet, then do the rest."""
        done = await self._ledger.recall(session_id, MIRRORED) or 0
        new = [s for s in await self._ledger.transcript(session_id) if s.id > done]
        if new:
            await self._mirror.append(session_id, new)
            await self._ledger.remember(session_id, MIRRORED, max(stored.id for stored in new))
        await self._inner.after_turn(profile, session_id)
