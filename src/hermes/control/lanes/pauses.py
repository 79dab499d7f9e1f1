"""Pauses: turns that wait for a person and for nothing else.

What such a turn asked is in the ledger, and the call it asked for begins only with the answer. So
nothing is lost if its process ends meanwhile: the next one goes on waiting. A turn that does
something beside the question is at work, and so is one whose call had begun before it asked, such
as a script: that would be cut off.
"""

from collections.abc import Iterable

from hermes.domain.approvals import is_about
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnStream,
)
from hermes.domain.ports.ledger import TurnStore


async def pauses(turns: TurnStore, stream: TurnStream) -> bool:
    """Tell whether a running turn only waits for a person and may do so in another process."""
    waiting = _calls_that_ask(stream.events)
    return bool(waiting) and not waiting & await turns.started_calls(stream.turn_id)


def _calls_that_ask(events: Iterable[TurnEvent]) -> frozenset[str]:
    """Return the calls under way if all of them have asked; else nothing."""
    under_way: set[str] = set()
    asked: dict[str, str] = {}
    for event in events:
        match event:
            case ToolStarted():
                under_way.add(event.call_id)
            case ToolFinished():
                under_way.discard(event.call_id)
            case ApprovalAsked(request=request):
                asked[request.id] = request.call_id
            case ApprovalAnswered():
                asked.pop(event.approval_id, None)
            case _:
                pass
    ask = all(any(is_about(each, call) for each in asked.values()) for call in under_way)
    return frozenset(under_way) if ask else frozenset()
