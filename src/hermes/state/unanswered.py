"""What stands in the seat of a call that was handed to a client."""

from collections.abc import Sequence

from hermes.domain.messages import ToolCall, ToolMessage, ToolOutcome
from hermes.domain.turn import ClientResult

__all__ = ["NOT_ANSWERED", "client_answer", "seated_call"]

NOT_ANSWERED = "The client did not answer this call."


def client_answer(call: ToolCall, results: Sequence[ClientResult]) -> ToolMessage:
    """Return the client's result for a call, or one saying that there is none."""
    for result in results:
        if result.call_id == call.id:
            return ToolMessage(call_id=call.id, name=call.name, content=result.content)
    return ToolMessage(
        call_id=call.id, name=call.name, content=NOT_ANSWERED, outcome=ToolOutcome.SKIPPED
    )


def seated_call(
    calls: Sequence[ToolCall], reply_seq: int, call_id: str, call_seq: int
) -> ToolCall | None:
    """Return the call of a reply at `reply_seq` whose result belongs in seat `call_seq`."""
    place = call_seq - reply_seq - 1
    if 0 <= place < len(calls) and calls[place].id == call_id:
        return calls[place]
    return None
