"""Progress as reactions to the person's own message: seen, then done or failed.

Nothing depends on them: they are dropped when the chat's budget is used up.
"""

from collections.abc import Awaitable, Callable

from hermes.domain.events import TurnFinished, TurnStream
from hermes.domain.turn import TurnState

SEEN, DONE, FAILED, NONE = "👀", "✅", "❌", ""
SOON, IN_THE_END = 1.0, 60.0
"""Seconds that a mark may wait: later on the first one means nothing."""


React = Callable[[str, float], Awaitable[None]]
"""Reacts with an emoji, unless there is no room for it in so many seconds."""


async def show_marks(stream: TurnStream, react: React) -> None:
    """Mark the message of a turn when it starts and when it ends."""
    await react(SEEN, SOON)
    finished = await stream.wait()
    if finished.error is None or finished.error.code != "shutdown":
        await react(_mark(finished), IN_THE_END)


def _mark(finished: TurnFinished) -> str:
    match finished.outcome:
        case TurnState.DONE:
            return DONE
        case TurnState.FAILED:
            return FAILED
        case _:
            return NONE
