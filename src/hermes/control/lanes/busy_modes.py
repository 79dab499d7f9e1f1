"""What happens to text that arrives while a turn of its session runs.

Whatever the mode, the text is admitted to the inbox first: it cannot be lost.
The mode only decides how soon the model hears it:

    interrupt   the running turn stops, the text is the next turn
    queue       the running turn ends first
    steer       the running turn takes it between tool results and its next
                model call; if it ends before that, the text is the next turn
"""

from enum import StrEnum

from msgspec import Struct

from hermes.control.lanes.gateway import Gateway
from hermes.control.lanes.lane import Ticket
from hermes.domain.inbound import InboundMessage


class BusyMode(StrEnum):
    """The three verbs for input while a turn runs."""

    INTERRUPT = "interrupt"
    QUEUE = "queue"
    STEER = "steer"


class Submission(Struct, frozen=True, kw_only=True):
    """An admitted message and what its arrival did."""

    ticket: Ticket
    effect: BusyMode | None
    """None: nothing was running and the message is answered at once."""


async def submit_while_busy(
    gateway: Gateway,
    agent_id: str,
    message: InboundMessage,
    *,
    session_id: str,
    mode: BusyMode,
) -> Submission:
    """Admit `message`, then interrupt, steer or leave alone the turn that runs."""
    running = gateway.current_turn(session_id)
    ticket = await gateway.submit(agent_id, message, session_id=session_id)
    if running is None or ticket.duplicate:
        return Submission(ticket=ticket, effect=None)
    still_running = gateway.current_turn(session_id) is running
    if not still_running:
        # It ended while the message was committed; what runs now is the answer to it.
        return Submission(ticket=ticket, effect=None)
    if mode is BusyMode.INTERRUPT and gateway.interrupt(session_id, turn_id=running.turn_id):
        return Submission(ticket=ticket, effect=BusyMode.INTERRUPT)
    if mode is BusyMode.STEER and gateway.steer(ticket):
        return Submission(ticket=ticket, effect=BusyMode.STEER)
    return Submission(ticket=ticket, effect=BusyMode.QUEUE)
