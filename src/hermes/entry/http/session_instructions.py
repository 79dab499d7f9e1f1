"""Instructions that were given when a session was opened.

They stay with the session as a remembered fact and are added to each turn over
HTTP; they never enter the frozen system prompt or the history.
"""

from hermes.domain.ports.state import SessionStore

__all__ = ["instructions_for", "keep_instructions", "kept_instructions"]

FACT = "instructions"


async def keep_instructions(ledger: SessionStore, session_id: str, instructions: str) -> None:
    """Keep instructions with a session."""
    await ledger.remember(session_id, FACT, instructions)


async def kept_instructions(ledger: SessionStore, session_id: str) -> str:
    """Return the instructions kept with a session; empty if there are none."""
    kept = await ledger.recall(session_id, FACT)
    return kept if isinstance(kept, str) else ""


async def instructions_for(ledger: SessionStore, session_id: str, given: str) -> str:
    """Return what a turn is told: what was kept, then what came with the request."""
    kept = await kept_instructions(ledger, session_id)
    return "\n\n".join(text for text in (kept, given) if text)
