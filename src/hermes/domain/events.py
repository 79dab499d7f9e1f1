"""TurnEvent: everything that a turn reports.

One tagged union. The loop emits these into a `TurnStream`; the terminal,
server-sent events, chat edits, transcripts, metrics and tests all follow the
same stream. A failure is an event (`TurnFinished`), never an exception that
crosses a layer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any

from msgspec import Struct

from hermes.domain.approvals import ApprovalRequest, Decision
from hermes.domain.inbound import InboxEntry
from hermes.domain.messages import AssistantMessage, ToolCall, ToolOutcome
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Opening
from hermes.domain.tools import ToolCapabilities
from hermes.domain.turn import Turn, TurnBrief, TurnControl, TurnError, TurnState
from hermes.domain.usage import Usage


class TurnStarted(Struct, frozen=True, kw_only=True, tag="turn.started"):
    """The turn has begun, or continues after a restart (`resumes` > 0)."""

    turn_id: str
    session_id: str
    agent_id: str
    model: str
    resumes: int = 0
    earlier: tuple[AssistantMessage, ...] = ()
    """What an earlier attempt at this turn has already said."""


class TextDelta(Struct, frozen=True, tag="text.delta", gc=False):
    text: str


class TextReset(Struct, frozen=True, tag="text.reset"):
    """The call starts over: deltas since the last completed message are void."""


class ReasoningDelta(Struct, frozen=True, tag="reasoning.delta", gc=False):
    text: str


class CallDelta(Struct, frozen=True, kw_only=True, tag="call.delta", gc=False):
    """A piece of the arguments of a call that the client will carry out."""

    call_id: str
    name: str
    arguments: str


class ToolStarted(Struct, frozen=True, kw_only=True, tag="tool.started"):
    call_id: str
    name: str
    arguments: dict[str, Any]
    emoji: str
    verb: str = ""
    """What a tool line says it is doing, e.g. `read`; empty: its name."""
    label: str
    """What it is about in a few words, e.g. the path or the command."""


class ToolProgress(Struct, frozen=True, kw_only=True, tag="tool.progress"):
    call_id: str
    text: str


class ToolFinished(Struct, frozen=True, kw_only=True, tag="tool.finished"):
    """A tool call ended and its result is in the ledger."""

    call_id: str
    name: str
    outcome: ToolOutcome
    seconds: float
    """Negative: not known."""
    preview: str
    output: str = ""
    """The whole result as text."""
    failure: str = ""
    """Why a result is no success though the tool did its work, e.g. `exit 2`."""
    diff: str | None = None
    """A unified diff of what the call changed, for doors that show it."""

    @property
    def trouble(self) -> str:
        """What a tool line says about a call that went wrong; empty if it went well."""
        return self.failure or ("" if self.outcome is ToolOutcome.OK else self.outcome.value)


class ApprovalAsked(Struct, frozen=True, kw_only=True, tag="approval.asked"):
    request: ApprovalRequest


class ApprovalAnswered(Struct, frozen=True, kw_only=True, tag="approval.answered"):
    approval_id: str
    decision: Decision


class SteerTaken(Struct, frozen=True, kw_only=True, tag="steer.taken"):
    text: str


class NoticeLevel(StrEnum):
    INFO = "info"
    WARNING = "warning"


class Notice(Struct, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know while it happens: a retry, a fallback."""

    code: str
    text: str
    level: NoticeLevel = NoticeLevel.INFO
    about: str = ""
    """The message that begins a turn with the same, or joins one."""


class MessageCompleted(Struct, frozen=True, kw_only=True, tag="message.completed"):
    message_id: int
    message: AssistantMessage


class UsageReported(Struct, frozen=True, kw_only=True, tag="usage"):
    usage: Usage
    cost_usd: float | None
    context_tokens: int
    context_window: int | None


class TurnFinished(Struct, frozen=True, kw_only=True, tag="turn.finished"):
    """The end. Always the last event, and there always is one."""

    outcome: TurnState
    text: str
    """The final answer; empty unless `outcome` is done."""
    usage: Usage
    cost_usd: float | None
    model_calls: int
    error: TurnError | None = None
    handed: tuple[ToolCall, ...] = ()
    """Calls of client tools that the client must carry out; until then the turn is done."""
    logprobs: str = ""
    """See `domain.ports.model.ModelReply`."""


TurnEvent = (
    TurnStarted
    | TextDelta
    | TextReset
    | ReasoningDelta
    | CallDelta
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalAsked
    | ApprovalAnswered
    | SteerTaken
    | Notice
    | MessageCompleted
    | UsageReported
    | TurnFinished
)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class TurnStream:
    def __init__(self, turn_id: str, session_id: str) -> None:
        self.turn_id = turn_id
        self.session_id = session_id
        self._events: list[TurnEvent] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._ends: list[asyncio.Future[None]] = []
        """Those who wait for the end only, and are not woken before."""
        self._finished: TurnFinished | None = None
        self._taps: list[Callable[[TurnEvent], None]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def finished(self) -> TurnFinished | None:
        return self._finished

    @property
    def events(self) -> Sequence[TurnEvent]:
        return self._events

    def emit(self, event: TurnEvent) -> None:
        """Append `event` and wake the followers. Nothing follows a finish."""
        if self._finished is not None:
            raise RuntimeError(
                f"turn {self.turn_id} is finished: cannot emit {type(event).__name__}"
            )
        self._events.append(event)
        if isinstance(event, TurnFinished):
            self._finished = event
            self._waiters += self._ends
        for tap in self._taps:
            tap(event)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _wake(waiter)

    def tap(self, seen: Callable[[TurnEvent], None]) -> None:
        """Call `seen` with each further event as it is emitted; it must be quick and never fail."""
        self._taps.append(seen)

    async def follow(self, start: int = 0) -> AsyncIterator[TurnEvent]:
        """Yield events from position `start` on, until the turn has finished."""
        while events := await self.more(start):
            start += len(events)
            for event in events:
                yield event

    async def follow_joined(self) -> AsyncIterator[TurnEvent]:
        """Yield the events; pieces of text that have come at once are one."""
        start = 0
        while events := await self.more(start):
            start += len(events)
            for is_text, group in groupby(events, lambda event: isinstance(event, TextDelta)):
                if is_text:
                    yield TextDelta("".join(e.text for e in group if isinstance(e, TextDelta)))
                else:
                    for event in group:
                        yield event

    async def more(self, position: int) -> list[TurnEvent]:
        """Return all events from `position` on, once there is one; nothing after the end."""
        while position >= len(self._events):
            if self._finished is not None:
                return []
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self._events[position:]

    async def wait(self) -> TurnFinished:
        if self._finished is None:
            end = asyncio.get_running_loop().create_future()
            self._ends.append(end)
            await end
        assert self._finished is not None
        return self._finished


class TurnJob(Struct, frozen=True, kw_only=True):
    """One attempt at a turn: what its lane hands to the core and tells its door."""

    profile: AgentProfile
    turn: Turn
    stream: TurnStream
    control: TurnControl
    entry: InboxEntry | None = None
    """What it answers: the first message of its batch; None if that is not known any more."""
    brief: TurnBrief = TurnBrief()
    capabilities: ToolCapabilities = ToolCapabilities()
    """What the doors lend to its tools."""
    opening: Opening | None = None
    """What it finds in the ledger, where that is known without asking."""

    @property
    def resumed(self) -> bool:
        return self.turn.resumes > 0
