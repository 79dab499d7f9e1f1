"""What a person is told while a turn takes long, and when it has taken too long.

One follower per turn notes when something last happened and when there was last
something to see. A turn that shows nothing for a while says that it is still
working, in one slot that is edited and taken away at the end. A turn in which
nothing happens at all is announced to be stopped, and then stopped. Time spent
waiting for a person does not count.
"""

import asyncio
from typing import Protocol

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStream,
)
from hermes.domain.ports.clock import Clock
from hermes.domain.settings.agent import AgentLoop

NEVER = float("inf")


class TurnPlace(Protocol):
    """A turn, and its one notice in the chat."""

    async def put(self, text: str, *, final: bool) -> None:
        """Show the notice, instead of the one that is there."""
        ...

    async def clear(self) -> None:
        """Take the notice away, also one that another process has put there."""
        ...

    def stop(self) -> bool:
        """Stop the turn; False if it does not run any more."""
        ...


class StillWorking:
    """Watches one turn."""

    def __init__(
        self,
        stream: TurnStream,
        place: TurnPlace,
        clock: Clock,
        patience: AgentLoop,
        *,
        tools_seen: bool = False,
        resumed: bool = False,
    ) -> None:
        self._stream = stream
        self._place = place
        self._clock = clock
        self._notify = patience.gateway_notify_interval
        self._warning = patience.gateway_timeout_warning
        self._limit = patience.gateway_timeout
        self._tools_seen = tools_seen
        """Tool calls are shown while they run."""
        self._began = self._active = self._noticed = clock.monotonic()
        self._asked: set[str] = set()
        self._tools: dict[str, str] = {}
        self._warned = self._over = False
        self._there = resumed
        """A notice may be in the chat that has to go."""
        self._saying = asyncio.Lock()

    async def watch(self) -> None:
        """Watch to the end of the turn."""
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._remind())
            async for event in self._stream.follow():
                self._take(event)
            # A send that is cut off could leave a notice that nobody can take away.
            async with self._saying:
                timer.cancel()
        finished = self._stream.finished
        goes_on = finished is not None and finished.error and finished.error.code == "shutdown"
        if self._there and not goes_on:
            await self._place.clear()

    def _take(self, event: TurnEvent) -> None:
        now = self._clock.monotonic()
        self._active, self._warned = now, False
        match event:
            case ApprovalAsked(request=request):
                self._asked.add(request.id)
            case ApprovalAnswered(approval_id=approval_id):
                self._asked.discard(approval_id)
            case ToolStarted():
                self._tools[event.call_id] = f"{event.verb or event.name} {event.label}".strip()
            case ToolFinished(call_id=call_id):
                self._tools.pop(call_id, None)
            case _:
                pass
        if self._visible(event):
            self._noticed = now

    def _visible(self, event: TurnEvent) -> bool:
        if isinstance(event, ToolStarted | ToolFinished):
            return self._tools_seen
        return isinstance(
            event, TextDelta | MessageCompleted | ApprovalAsked | ApprovalAnswered | TurnFinished
        )

    async def _remind(self) -> None:
        """Say what is due, whenever it is."""
        while not self._over:
            wait = self._due() - self._clock.monotonic()
            # While a person is asked nothing is due; look again once in a while.
            await self._clock.sleep(min(max(wait, 0.0), self._shortest()))
            if self._asked or self._stream.finished is not None:
                self._pause()
            elif self._clock.monotonic() >= self._due():
                async with self._saying:
                    await self._say()

    def _pause(self) -> None:
        self._active = self._noticed = self._clock.monotonic()

    def _due(self) -> float:
        warning = NEVER if self._warned else self._active + (self._warning or NEVER)
        return min(
            self._noticed + (self._notify or NEVER),
            warning,
            self._active + (self._limit or NEVER),
        )

    def _shortest(self) -> float:
        """Return the longest time to sleep at once: events may move everything that is due."""
        spans = (
            self._notify,
            self._warning,
            self._limit,
        )
        return min((span for span in spans if span), default=NEVER)

    async def _say(self) -> None:
        now = self._clock.monotonic()
        quiet = now - self._active
        self._noticed = now
        if self._limit and quiet >= self._limit:
            self._over = True
            await self._end(quiet)
            return
        self._there = True
        if self._warning and quiet >= self._warning:
            self._warned = True
            left = f"; it is stopped in {_span(self._limit - quiet)}" if self._limit else ""
            await self._place.put(
                f"⚠️ Nothing has happened for {_span(quiet)}{left}. /stop stops it now.", final=False
            )
        else:
            await self._place.put(
                f"⏳ Still working, for {_span(now - self._began)} now{self._doing()}.", final=False
            )

    async def _end(self, quiet: float) -> None:
        if not self._place.stop():
            return
        self._there = False
        text = (
            f"⏹ Nothing has happened for {_span(quiet)}, so this was stopped."
            " What is done so far is kept; send a message to go on."
        )
        await self._place.put(text, final=True)

    def _doing(self) -> str:
        tools = list(self._tools.values())
        if not tools:
            return ""
        label = " ".join(tools[-1].split()).replace("`", "'")[:80]
        return f": `{label}`"


def _span(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    if seconds >= 90:
        return f"{round(seconds / 60)} minutes"
    return f"{round(seconds)} seconds"
