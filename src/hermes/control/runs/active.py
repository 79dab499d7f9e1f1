"""Live runs: a run while its turn is under way, its stream, its log, and those who wait for it.

The recorder writes what has come since the last write, then looks again: one
commit is under way at a time, and the slower commits are, the more events
each one takes. Neighbouring deltas of one write become one event.
"""

import asyncio
from collections.abc import Callable, Sequence

from hermes.control.lanes.lane import Ticket
from hermes.control.runs.sections import SectionStream, section_of
from hermes.domain.approvals import ApprovalRequest
from hermes.domain.errors import HermesError
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    TurnEvent,
    TurnFinished,
    TurnJob,
    TurnStream,
)
from hermes.domain.messages import FinishReason
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import RunStore
from hermes.domain.runs import LoggedEvent, Run, RunEnding, RunOutcome, RunState
from hermes.domain.turn import TurnState


class RunStopped(HermesError):
    """A run that was stopped before a turn had begun it."""

    code = "stopped"


class LiveRun:
    def __init__(self, run: Run, ticket: Ticket, redact: Callable[[str], str] = str) -> None:
        self.run = run
        self.ticket = ticket
        self._redact = redact
        self._section: TurnStream | None = None
        self.left = False
        """The client has gone away, which is why it was stopped."""
        self.joined = 0
        """How often a retry has picked it up."""
        self.ended = asyncio.Event()
        """Set when the outcome is in the ledger, or the run is kept for the next start."""
        self.ended_as: Run | None = None
        self._ending: RunEnding | None = None
        self._tail: list[LoggedEvent] = []
        self._grown = asyncio.Event()

    @property
    def stream(self) -> TurnStream | None:
        """The events of its turn that are its own, once that has begun."""
        job, section = self.ticket.begun, section_of(self.run)
        if job is None or section is None:
            return job.stream if job else None
        if self._section is None:
            self._section = SectionStream.of(job.stream, section, self._redact)
        return self._section

    async def events(self) -> TurnStream:
        """Return its stream once its turn has begun; raise what kept it from that."""
        await self.ticket.job()
        assert self.stream is not None
        return self.stream

    # -- the end ----------------------------------------------------------------

    def close_with(self, job: TurnJob) -> None:
        """Have the outcome committed with the end of the turn, where nothing else is to be told."""
        section = section_of(self.run)
        plain = section is None or not (section.after or section.note)
        if job.control.closing is None and plain and not self.run.logged:
            job.control.closing = self._closing

    def _closing(self, finished: TurnFinished) -> RunEnding | None:
        if self.stream is None or self.stream.finished is not None:
            return None  # it ended with a question
        outcome = told_outcome(finished, RunState.COMPLETED)
        self._ending = RunEnding(run_id=self.run.id, outcome=outcome)
        return self._ending

    @property
    def kept(self) -> RunOutcome | None:
        """The outcome, if the end of the turn has committed it."""
        return self._ending.outcome if self._ending is not None and self._ending.kept else None

    @property
    def state(self) -> RunState:
        stream = self.stream
        if stream is None:
            return RunState.QUEUED
        return RunState.WAITING if _asks(stream.events) else RunState.RUNNING

    # -- the log ----------------------------------------------------------------

    async def record(self, store: RunStore, clock: Clock) -> list[TurnEvent]:
        """Log the turn's events as they come; return what is to be logged with the outcome."""
        stream, position = await self.events(), 0
        while True:
            batch = await stream.more(position)
            position += len(batch)
            events = coalesced(batch)
            if not events or isinstance(events[-1], TurnFinished):
                return events
            now = clock.now()
            last = await store.log_run(self.run.id, events, now)
            self.grow(events, last, now)

    def grow(self, events: Sequence[TurnEvent], last: int, at: float) -> None:
        """Show committed events to those who follow; `last` is the id of the last one."""
        first = last - len(events) + 1
        self._tail += [
            LoggedEvent(seq=seq, at=at, event=event) for seq, event in enumerate(events, first)
        ]
        self._wake()

    def end(self, run: Run | None) -> None:
        """Say that nothing more comes; None if the run is kept for the next start."""
        self.ended_as = run
        self.ended.set()
        self._wake()

    def tail(self, after: int) -> list[LoggedEvent] | None:
        """Return committed events after `after`; None if some of them are only in the ledger."""
        if not self._tail or self._tail[0].seq > after + 1:
            return None
        return self._tail[after + 1 - self._tail[0].seq :]

    def growth(self) -> asyncio.Event:
        """Return what is set when there may be more to see than now."""
        return self._grown

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


def outcome_of(stream: TurnStream, *, left: bool) -> RunOutcome:
    finished = stream.finished
    assert finished is not None
    state = _state(finished, _finish_reason(stream.events), left=left)
    return told_outcome(
        finished, state, stream.asked if isinstance(stream, SectionStream) else None
    )


def told_outcome(
    finished: TurnFinished, state: RunState, asked: ApprovalRequest | None = None
) -> RunOutcome:
    return RunOutcome(
        state=state,
        text=finished.text,
        handed=finished.handed,
        usage=finished.usage,
        cost_usd=finished.cost_usd,
        model_calls=finished.model_calls,
        error=finished.error,
        logprobs=finished.logprobs,
        asked=asked,
    )


def coalesced(events: Sequence[TurnEvent]) -> list[TurnEvent]:
    """Join neighbouring deltas, and keep only the last of neighbouring progress notes."""
    joined: list[TurnEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case TextDelta(), TextDelta():
                joined[-1] = TextDelta(last.text + event.text)
            case ReasoningDelta(), ReasoningDelta():
                joined[-1] = ReasoningDelta(last.text + event.text)
            case ToolProgress(), ToolProgress() if last.call_id == event.call_id:
                joined[-1] = event
            case _:
                joined.append(event)
    return joined


def _state(finished: TurnFinished, finish: FinishReason, *, left: bool) -> RunState:
    if finished.outcome is TurnState.DONE:
        return RunState.INCOMPLETE if finish is FinishReason.LENGTH else RunState.COMPLETED
    if finished.outcome is TurnState.FAILED:
        return RunState.FAILED
    return RunState.INCOMPLETE if left else RunState.CANCELLED


def _finish_reason(events: Sequence[TurnEvent]) -> FinishReason:
    for event in reversed(events):
        if isinstance(event, MessageCompleted):
            return event.message.finish
    return FinishReason.STOP


def _asks(events: Sequence[TurnEvent]) -> bool:
    """Tell whether somebody's answer is waited for."""
    for event in reversed(events):
        if isinstance(event, ApprovalAnswered):
            return False
        if isinstance(event, ApprovalAsked):
            return True
    return False
