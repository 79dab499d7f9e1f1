"""Reading runs: their turn as it happens, their log as it grows, their end.

A foreground answer follows the turn's own stream. A log is read as far as it is
committed: from memory while the run is under way here, else from the ledger.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from hermes.control.run_live import LiveRun
from hermes.control.run_retelling import finished_event, retold
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnEvent, TurnFinished
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.state import Ledger
from hermes.domain.runs import LoggedEvent, Run, RunOutcome, RunState
from hermes.domain.turn import TurnError

__all__ = ["RunReader"]

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
