"""Runs: requests over HTTP, from admission to their outcome, across restarts.

    start -> open_run (one transaction) -> lane -> turn -> events -> outcome

Foreground answers follow the turn's own stream. Logged runs are followed
through the ledger: an event is shown only once it is committed, so a reader
that comes back after a crash finds exactly the events it saw, under the same
ids, and then the rest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.lanes.gateway import Gateway
from hermes.control.runs.active import (
    LiveRun,
    RunKept,
    RunOver,
    RunStopped,
    kept_for_later,
    outcome_of,
)
from hermes.control.runs.new import (
    PLATFORM,
    Draining,
    RunRequest,
    TooBusy,
    new_run,
    owner_tag,
    steer_message,
)
from hermes.control.runs.replay import (
    ended_turn_outcome,
    finished_event,
    missed_events,
    retold,
)
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnEvent, TurnFinished, TurnJob
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.runs import LoggedEvent, Run, RunOutcome, RunQuery, RunState
from hermes.domain.turn import TurnError

__all__ = [
    "PLATFORM",
    "Draining",
    "RunDesk",
    "RunReader",
    "RunRequest",
    "RunSettings",
    "StartedRun",
    "TooBusy",
    "owner_tag",
]


POLL_SECONDS = 1.0
"""How often a run that is not under way here is looked at."""


class RunReader:
    """Answers those who wait for something of a run."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._live: dict[str, LiveRun] = {}
        """The runs that are under way in this process."""
        self._draining = False

    async def batches(self, run: Run) -> AsyncIterator[Sequence[TurnEvent]]:
        """Yield the events of the run's turn from their beginning, as they come.

        Whatever has come since the last look comes together. A turn that has
        ended already is told from the ledger: fewer deltas, the same content.
        The last event is always a `TurnFinished`, and comes when the outcome
        of the run is durable.
        """
        live = self._live.get(run.id)
        if live is None:
            yield await self._told(await self.ended(run))
            return
        try:
            stream = await live.begun()
        except HermesError:
            await live.ended.wait()
            yield await self._told(live.ended_as or run)
            return
        position = 0
        while batch := await stream.more(position):
            position += len(batch)
            if not isinstance(batch[-1], TurnFinished):
                yield batch
                continue
            if len(batch) > 1:
                yield batch[:-1]
            await live.ended.wait()
            yield batch[-1:]

    async def events(self, run: Run) -> AsyncIterator[TurnEvent]:
        """Yield the same one by one."""
        async for batch in self.batches(run):
            for event in batch:
                yield event

    async def _told(self, run: Run) -> Sequence[TurnEvent]:
        if run.outcome is None:
            error = TurnError(code="shutdown", message="This run is kept and goes on later.")
            return [finished_event(RunOutcome(state=RunState.CANCELLED, error=error))]
        session = await self._ledger.session(run.session_id)
        transcript = await self._ledger.transcript(run.session_id) if session else []
        return list(retold(run, transcript, session.model if session else ""))

    async def follow(self, run: Run, after: int = 0) -> AsyncIterator[LoggedEvent]:
        """Yield the committed events of a logged run with ids greater than `after`.

        Ends after the last event, or when this process stops: the rest is
        there after the restart.
        """
        seen = after
        while True:
            live = self._live.get(run.id)
            growth = live.growth() if live else None
            events = live.tail(seen) if live else None
            if events is None:
                events = await self._ledger.run_log(run.id, after=seen)
            for logged in events:
                seen = logged.seq
                yield logged
                if isinstance(logged.event, TurnFinished):
                    return
            if not events and not await self._goes_on(run, growth):
                return

    async def _goes_on(self, run: Run, growth: asyncio.Event | None) -> bool:
        """Wait until there may be more to see; False if there never will be."""
        if growth is not None:
            await growth.wait()
            return True
        current = await self._ledger.run(run.id)
        if current is None or not current.state.open or self._draining:
            return False
        await self._clock.sleep(POLL_SECONDS)
        return True

    async def ended(self, run: Run) -> Run:
        """Return the run once it has its outcome, or as it is when this process stops."""
        while True:
            live = self._live.get(run.id)
            if live is not None:
                await live.ended.wait()
            current = await self._ledger.run(run.id)
            if current is None or not current.state.open or self._draining:
                return current or run
            if live is None:
                await self._clock.sleep(POLL_SECONDS)


log = logging.getLogger(__name__)

OPEN_STATES = tuple(state for state in RunState if state.open)


class StartedRun(Struct, frozen=True, kw_only=True):
    """A run that was accepted."""

    run: Run
    duplicate: bool = False
    """It was accepted before, under the same idempotency key."""


class RunSettings(Struct, frozen=True, kw_only=True):
    """Limits of the desk."""

    max_open: int = 2000
    keep_logs: float = 7 * 86400.0
    keep_runs: float = 30 * 86400.0


class RunDesk(RunReader):
    """Takes requests, follows their turns and answers for them."""

    def __init__(
        self,
        ledger: Ledger,
        gateway: Gateway,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        redact: Callable[[str], str] = str,
        settings: RunSettings | None = None,
    ) -> None:
        super().__init__(ledger, clock)
        self._gateway = gateway
        self._group = group
        self._redact = redact
        self._settings = settings or RunSettings()
        self._by_inbox: dict[int, LiveRun] = {}
        self._by_turn: dict[str, LiveRun] = {}

    @property
    def open_runs(self) -> int:
        """How many runs are under way."""
        return len(self._live)

    @property
    def draining(self) -> bool:
        """True once nothing new is taken."""
        return self._draining

    def drain(self) -> None:
        """Take nothing new from now on."""
        self._draining = True

    def suspend(self) -> None:
        """Let go of runs that no turn has begun; once the lanes have stopped.

        They are in the ledger, where the next start finds them.
        """
        for live in tuple(self._live.values()):
            live.fail(RunKept("This run is kept and goes on later."))

    # -- requests --------------------------------------------------------------

    async def start(self, request: RunRequest) -> StartedRun:
        """Commit a request and have it answered.

        Raises `TooBusy`, `Draining`, `NotFound` (session, earlier run) or
        `Conflict` (idempotency key used for another request).
        """
        if self._draining:
            raise Draining("Hermes is stopping; try again in a moment.")
        if len(self._live) >= self._settings.max_open and not await self._repeats(request):
            raise TooBusy(f"{len(self._live)} runs are under way already; try again shortly.")
        session = self._gateway.new_session(request.agent_id, PLATFORM, owner_tag(request.key_id))
        new = new_run(
            request,
            session,
            lambda message: self._gateway.key_of(request.agent_id, message),
            self._redact,
        )
        opened = await self._ledger.open_run(new)
        if opened.duplicate:
            return StartedRun(run=opened.run, duplicate=True)
        live = self._watch(opened.run)
        self._gateway.take(opened.entry).on_failure(live.fail)
        self._stay_with(live)
        return StartedRun(run=opened.run)

    async def _repeats(self, request: RunRequest) -> bool:
        """Tell whether a request was accepted before: a repeat starts nothing."""
        if request.idempotency_key is None:
            return False
        return await self._ledger.run_under(request.key_id, request.idempotency_key) is not None

    async def get(self, run_id: str) -> Run | None:
        """Return a run as it stands."""
        run = await self._ledger.run(run_id)
        live = self._live.get(run_id)
        if run is None or live is None or not run.state.open:
            return run
        return replace(run, state=live.state)

    async def stop(self, run: Run, *, left: bool = False) -> bool:
        """Interrupt the run, or take it out of the queue; False if it had ended.

        `left`: because its client has gone away, which leaves it incomplete
        rather than cancelled.
        """
        live = self._live.get(run.id)
        if live is None:
            return False
        live.left = left
        if live.stream is None:
            await self._ledger.drop([run.inbox_id], "cancelled")
            current = await self._ledger.run(run.id)
            if current is not None and current.turn_id is None:
                live.fail(RunStopped("The run was stopped before it began."))
                return True
        stream = await live.begun()
        return self._gateway.interrupt(run.session_id, turn_id=stream.turn_id)

    async def steer(self, run: Run, text: str) -> bool:
        """Say something to the running turn; False if it is not running."""
        live = self._live.get(run.id)
        if live is None or live.stream is None or live.stream.finished is not None:
            return False
        message = steer_message(run, text, self._clock.now())
        ticket = await self._gateway.submit(run.agent_id, message, session_id=run.session_id)
        if self._gateway.steer(ticket):
            return True
        # The turn ended meanwhile; a word to it is not a new question.
        await self._ledger.drop([ticket.entry.id], "nothing to steer")
        return False

    # -- turns -----------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        """Hear of a turn that begins or goes on."""
        live = self._by_turn.get(job.turn.id)
        if live is None and job.entry is not None:
            live = self._by_inbox.get(job.entry.id)
        if live is not None:
            live.begin(job.stream)

    def _watch(self, run: Run) -> LiveRun:
        known = self._live.get(run.id)
        if known is not None:
            return known
        live = self._live[run.id] = LiveRun(run)
        self._by_inbox[run.inbox_id] = live
        if run.turn_id is not None:
            self._by_turn[run.turn_id] = live
        return live

    def _stay_with(self, live: LiveRun) -> None:
        if live.accompanied:
            return
        live.accompanied = True
        self._group.create_task(self._accompany(live), name=f"run {live.run.id}")

    def _leave(self, live: LiveRun, ended: Run | None) -> None:
        self._live.pop(live.run.id, None)
        self._by_inbox.pop(live.run.inbox_id, None)
        self._by_turn.pop(live.run.turn_id or "", None)
        live.end(ended)

    async def _accompany(self, live: LiveRun) -> None:
        """Stay with a run until its outcome is in the ledger; what fails stays in here."""
        ended: Run | None = None
        try:
            ended = await self._to_its_end(live)
        except RunKept:
            pass
        except RunOver:
            ended = await self._close_ended(live.run)
        except RunStopped:
            state = RunState.INCOMPLETE if live.left else RunState.CANCELLED
            ended = await self._close(live.run, RunOutcome(state=state))
        except HermesError as error:
            log.error("run %s: %s", live.run.id, error.message)
            reason = TurnError(code=error.code, message=error.message, hint=error.hint)
            ended = await self._close(live.run, RunOutcome(state=RunState.FAILED, error=reason))
        finally:
            self._leave(live, ended)

    async def _to_its_end(self, live: LiveRun) -> Run | None:
        stream = await live.begun()
        last = await live.record(self._ledger, self._clock) if live.run.logged else []
        await stream.wait()
        if kept_for_later(stream):
            return None
        outcome = outcome_of(stream, left=live.left)
        await self._ledger.finish_run(live.run.id, outcome, last, self._clock.now())
        return await self._ledger.run(live.run.id)

    async def _close(
        self, run: Run, outcome: RunOutcome, events: Sequence[TurnEvent] = ()
    ) -> Run | None:
        """Record an outcome that no turn had; if that fails, the next start finds the run."""
        last = (events or [finished_event(outcome)]) if run.logged else []
        try:
            await self._ledger.finish_run(run.id, outcome, last, self._clock.now())
            return await self._ledger.run(run.id)
        except HermesError as failure:
            log.error("run %s could not be closed: %s", run.id, failure.message)
            return None

    # -- restarts ----------------------------------------------------------------

    async def recover(self) -> None:
        """Close open runs whose turn is over, stay with the rest."""
        for run in await self._ledger.runs(RunQuery(states=OPEN_STATES, limit=None)):
            self._watch(run)
        for live in [live for live in self._live.values() if live.stream is None]:
            if not await self._goes_on_later(live.run):
                live.fail(RunOver("The turn of this run is over."))
            self._stay_with(live)

    async def _goes_on_later(self, run: Run) -> bool:
        """Tell whether a turn has the message of a run, or will have it."""
        # In this order: its lane may take the message between two looks at the ledger.
        if any(entry.id == run.inbox_id for entry in await self._ledger.waiting(run.session_id)):
            return True
        current = await self._ledger.run(run.id) or run
        turn = await self._ledger.turn(current.turn_id) if current.turn_id else None
        return turn is not None and turn.state.open

    async def _close_ended(self, run: Run) -> Run | None:
        """Close a run that ended while nobody was watching."""
        current = await self._ledger.run(run.id) or run
        if current.turn_id is None:
            return await self._close(run, RunOutcome(state=RunState.CANCELLED))
        turn = await self._ledger.turn(current.turn_id)
        transcript = await self._ledger.transcript(run.session_id) if turn is not None else []
        used = await self._ledger.usage_of_turn(current.turn_id)
        outcome = ended_turn_outcome(turn, transcript, used)
        missed = missed_events(run, turn, transcript, outcome)
        return await self._close(run, outcome, missed)

    async def keep_tidy(self, every: float = 3600.0) -> None:
        """Forget old runs and old logs, now and then, until cancelled."""
        while True:
            now = self._clock.now()
            try:
                await self._ledger.prune_runs(
                    logs_before=now - self._settings.keep_logs,
                    runs_before=now - self._settings.keep_runs,
                )
            except HermesError as error:
                log.warning("old runs could not be forgotten: %s", error.message)
            await self._clock.sleep(every)
