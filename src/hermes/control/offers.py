"""Offers: to run outside of the sandbox what has failed inside.

A person who has declined one is not asked again for the same command or the same obstacle:
tests that look for a file of the host do so each time they run.
"""

import hashlib

from hermes.domain.approvals import INPUT_ENDED, ApprovalState, Decision
from hermes.domain.session import KEPT_INSIDE
from hermes.domain.tools import Offer, ToolContext

_REMEMBERED = 100


async def was_declined(command: str, offer: Offer, context: ToolContext) -> bool:
    declined = await context.recall(KEPT_INSIDE) or []
    return not set(_marks(command, offer)).isdisjoint(declined)


async def settle(command: str, offer: Offer, decision: Decision, context: ToolContext) -> None:
    """Remember what a person has declined; that nobody has answered is no refusal."""
    if decision.state is ApprovalState.DENIED and decision.text != INPUT_ENDED:
        declined = await context.recall(KEPT_INSIDE) or []
        kept = dict.fromkeys((*declined, *_marks(command, offer)))
        await context.remember(KEPT_INSIDE, list(kept)[-_REMEMBERED:])


def hint(offer: Offer) -> str:
    return f"The sandbox may be why: {offer.reason}."


def outcome(offer: Offer, decision: Decision) -> str:
    """Return what the model is told: the command has run, and what it was is what is seen."""
    ran = f"It ran in the sandbox and failed there: this is its output. {hint(offer)}"
    if decision.state is ApprovalState.EXPIRED:
        return f"{ran} Nobody has approved in time that it runs outside."
    if decision.text == INPUT_ENDED:
        return f"{ran} Nobody can be asked any more whether it may run outside."
    said = f" They said: {decision.text}" if decision.text else ""
    return f"{ran} The user does not want it to run outside.{said}"


def _marks(command: str, offer: Offer) -> tuple[str, str]:
    text = " ".join(command.split())
    return f"command {hashlib.sha256(text.encode()).hexdigest()}", offer.reason
