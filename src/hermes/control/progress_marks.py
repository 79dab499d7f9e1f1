"""Progress as reactions to the person's own message: seen, then done or failed.

Nothing depends on them: they are dropped when the chat's budget is used up.
"""

from collections.abc import Awaitable, Callable

from hermes.domain.events import TurnFinished
from hermes.domain.turn import TurnState
from hermes.domain.turn_stream import TurnStream

__all__ = ["DONE", "FAILED", "SEEN", "show_marks"]

SEEN, DONE, FAILED, NONE = "👀", "✅", "❌", ""


async def show_marks(stream: TurnStream, react: Callable[[str], Awaitable[None]]) -> None:
    """Mark the message of a turn when it starts and when it ends."""
    await react(SEEN)
    finished = await stream.wait()
    if finished.error is None or finished.error.code != "shutdown":
        await react(_mark(finished))


def _mark(finished: TurnFinished) -> str:
    match finished.outcome:
        case TurnState.DONE:
            return DONE
        case TurnState.FAILED:
            return FAILED
        case _:
            return NONE
