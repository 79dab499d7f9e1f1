"""How often a turn that was cut off is picked up again."""

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.state import Ledger
from hermes.domain.turn import MAX_RESUMES, MAX_UNBEGUN_RESUMES, Turn, TurnError

__all__ = ["given_up", "picked_up_too_often"]


async def picked_up_too_often(ledger: Ledger, turn: Turn) -> bool:
    """Tell whether a turn that was just claimed had better be given up."""
    return turn.resumes - turn.releases > await _limit(ledger, turn)


async def _limit(ledger: Ledger, turn: Turn) -> int:
    """Return how often a turn may be picked up: seldom if it may be what ends the process.

    One that waited for a person, or had only to be closed, was not at work.
    """
    pending = await ledger.pending_approvals(turn.session_id)
    if any(approval.request.turn_id == turn.id for approval in pending):
        return MAX_UNBEGUN_RESUMES
    own = [
        each.message for each in await ledger.history(turn.session_id) if each.turn_id == turn.id
    ]
    if own and isinstance(own[-1], AssistantMessage) and not own[-1].tool_calls:
        return MAX_UNBEGUN_RESUMES
    if await ledger.started_calls(turn.id):
        return MAX_RESUMES
    said = any(isinstance(message, AssistantMessage) for message in own)
    return MAX_RESUMES if said else MAX_UNBEGUN_RESUMES


def given_up(turn: Turn) -> TurnError:
    """Return what is said about a turn that was picked up too often."""
    return TurnError(
        code="resume_limit",
        message=(
            f"This turn was cut off and picked up {turn.resumes - turn.releases - 1} times already;"
            " it was given up."
        ),
        hint="Ask again, perhaps in smaller steps.",
    )
