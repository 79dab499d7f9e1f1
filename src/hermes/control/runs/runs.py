"""Runs: requests over HTTP, from admission to their outcome, across restarts.

    start -> open_run (one transaction) -> lane -> turn -> events -> outcome

Foreground answers follow the turn's own stream. Logged runs are followed
through the ledger: an event is shown only once it is committed, so a reader
that comes back after a crash finds exactly the events it saw, under the same
ids, and then the rest.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from hermes.control.follow import Follower, Kept, Outcome, Unseen, goes_on_later
from hermes.control.lanes.gateway import LARGE, Gateway
from hermes.control.lanes.lane import Ticket
from hermes.control.runs.active import LiveRun, RunStopped, outcome_of
from hermes.control.runs.replay import ended_turn_outcome, finished_event, missed_events, retold
from hermes.control.runs.sections import retold_section, section_of
from hermes.domain.errors import HermesError
from hermes.domain.events import ReasoningDelta, TextDelta, TurnEvent, TurnFinished, TurnJob
from hermes.domain.ids import new_id
from hermes.domain.inbound import (
    Attachment,
    Chat,
    ChatKind,
    InboundMessage,
    InboxEntry,
    RouteTerms,
    Sender,
)
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    Message,
    TextPart,
    ToolCall,
    content_text,
)
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.profile import use_profile
from hermes.domain.runs import (
    LoggedEvent,
    NewRun,
    OpenedRun,
    Run,
    RunKind,
    RunOutcome,
    RunQuery,
    RunState,
    RunTerms,
    SessionChoice,
)
from hermes.domain.settings.doors import Sessions
from hermes.domain.turn import ClientResult, TurnError, TurnOptions

PLATFORM = "api_server"


def owner_tag(key_id: str, user: str | None = None) -> str:
    """Return the `user_id` of sessions that an API key has opened, for one of its users or none."""
    return f"key:{key_id}/{user}" if user else f"key:{key_id}"


def is_owner(key_id: str, user_id: str | None) -> bool:
    """Tell whether a session with this `user_id` belongs to the key."""
    return f"{user_id or ''}/".startswith(f"{owner_tag(key_id)}/")


class TooBusy(HermesError):
    code = "too_many_runs"


class Draining(HermesError):
    """The gateway is stopping and takes nothing new."""

    code = "draining"


class RunRequest(RunTerms, frozen=True, kw_only=True):
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    results: tuple[ClientResult, ...] = ()
    options: TurnOptions = TurnOptions()
    user: str | None = None
    """The person behind the request, as its program names them."""
    routed: RouteTerms | None = None


def _size(request: RunRequest) -> int:
    talk = (
        len(each.text) if isinstance(each, AssistantMessage) else len(content_text(each.content))
        for each in request.history
    )
    results = (len(content_text(each.content)) for each in request.results)
    return len(request.text) + len(request.options.instructions) + sum(talk) + sum(results)


def new_run(request: RunRequest, gateway: Gateway, redact: Callable[[str], str]) -> NewRun:
    """Return what is committed for a request; secrets do not get that far."""
    user = redact(request.user) if request.user else None
    session = gateway.new_session(request.agent_id, PLATFORM, owner_tag(request.key_id, user))
    chosen, options = request.choice, request.options
    if chosen.opened and chosen.session_id is not None:
        session = replace(session, id=chosen.session_id)
    unnamed = chosen.session_id is None and chosen.key is None
    if unnamed and request.kind in (RunKind.CHAT, RunKind.RESPONSE):
        session = replace(session, for_requests=True)
    message = InboundMessage(
        platform=PLATFORM,
        account=request.key_id,
        native_id=request.id,
        chat=Chat(kind=ChatKind.PRIVATE, id=chosen.session_id or session.id),
        sender=Sender(id=user or owner_tag(request.key_id)),
        text=redact(request.text),
        sent_at=session.started_at,
        attachments=request.attachments,
        routed=request.routed,
        options=convert(redacted(to_builtins(options), redact), TurnOptions),
        results=tuple(
            replace(each, content=_clean(each.content, redact)) for each in request.results
        ),
    )
    history = clean_messages(request.history, redact)
    terms = {name: getattr(request, name) for name in RunTerms.__struct_fields__}
    return NewRun(
        **{**terms, "history": history, "request": redacted(request.request, redact)},
        session=session,
        message=message,
        session_key=chosen.key or gateway.key_of(request.agent_id, message),
        at=session.started_at,
    )


def clean_messages(
    messages: Sequence[Message], redact: Callable[[str], str]
) -> tuple[Message, ...]:
    return tuple(
        replace(each, text=redact(each.text), tool_calls=_clean_calls(each.tool_calls, redact))
        if isinstance(each, AssistantMessage)
        else replace(each, content=_clean(each.content, redact))
        for each in messages
    )


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Take secrets out of every text in a value, also where it is a key."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redacted(name, redact): redacted(each, redact) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each, redact) for each in value]
    return value


def _clean_calls(calls: Sequence[ToolCall], redact: Callable[[str], str]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, arguments=redact(call.arguments)) for call in calls)


def _clean(content: Content, redact: Callable[[str], str]) -> Content:
    if isinstance(content, str):
        return redact(content)
    return tuple(
        TextPart(redact(part.text)) if isinstance(part, TextPart) else part for part in content
    )


log = logging.getLogger(__name__)


def _stands(outcome: RunOutcome) -> bool:
    """Tell whether an outcome is what a retry should get, rather than another attempt."""
    match outcome.state:
        case RunState.CANCELLED:
            return False
        case RunState.FAILED:
            return outcome.model_calls > 0
        case RunState.INCOMPLETE:
            return bool(outcome.text)
    return True


MAX_REFUSED = 1000
POLL_SECONDS = 1.0
"""How often a run that is not under way here is looked at."""

STOPPING_SECONDS = 5.0
"""How long the end of a turn is waited for that was told to stop."""

OPEN_STATES = tuple(state for state in RunState if state.open)


KEEP_LOGS_SECONDS = 7 * 86400.0
KEEP_RUNS_SECONDS = 30 * 86400.0


class Runs(Follower):
    """Takes requests, follows their turns and answers for them."""

    def __init__(
        self,
        gateway: Gateway,
        group: asyncio.TaskGroup,
        *,
        redact: Callable[[str], str] = str,
        max_open: int = 2000,
        sessions: Sessions | None = None,
    ) -> None:
        super().__init__(gateway.ledger, group)
        self._gateway = gateway
        self._clock = gateway.clock
        self._redact = redact
        self._max_open = max_open
        self._sessions = sessions or Sessions()
        self._live: dict[str, LiveRun] = {}
        """The runs that are under way in this process."""
        self._starting: list[str] = []
        """Their agents while they are committed: a burst counts before its first is under way."""
        self._left: set[str] = set()
        """Those whose client has gone and may come back."""
        self._since = gateway.clock.now()
        self._put_off: set[asyncio.Task[None]] = set()
        self._refused: dict[tuple[str, str], None] = {}
        """Key and fingerprint of requests that were not taken: their retries repeat no run."""

    @property
    def open_runs(self) -> int:
        return len(self._live)

    # -- requests --------------------------------------------------------------

    async def start(self, request: RunRequest) -> OpenedRun:
        """Commit a request and have it answered.

        Raises `TooBusy`, `Draining`, `NotFound` (session, earlier run) or
        `Conflict` (idempotency key used for another request).
        """
        if self._gateway.draining:
            self._refuse(request)
            raise Draining("Hermes is stopping; try again in a moment.")
        # Each agent has this many, so that none is kept out by what others do.
        under_way = (live.run.agent_id for live in self._live.values())
        own = [*under_way, *self._starting].count(request.agent_id)
        if own >= self._max_open and not await self._repeats(request):
            self._refuse(request)
            raise TooBusy(f"{own} runs are under way already; try again shortly.")
        self._starting.append(request.agent_id)
        new: NewRun | None = None
        try:
            new = await self._new_run(request)
            self._gateway.beginning.add(new.session.id)
            opened = await self._ledger.open_run(new)
            if not opened.duplicate and request.choice.turn_id is None:
                ticket = self._gateway.take(opened.entry, opened.turn, opened.opening)
                self.expect(self._watch(opened.run, ticket).ticket)
        finally:
            self._starting.remove(request.agent_id)
            if new is not None:
                self._gateway.beginning.discard(new.session.id)
        if not opened.duplicate and request.choice.turn_id is not None:
            return replace(opened, run=await self._take_over(opened))
        return opened

    async def _new_run(self, request: RunRequest) -> NewRun:
        with use_profile(self._gateway.profile(request.agent_id)):
            if _size(request) > LARGE:
                new = await asyncio.to_thread(new_run, request, self._gateway, self._redact)
            else:
                new = new_run(request, self._gateway, self._redact)
        if request.choice == SessionChoice():
            turn = self._gateway.first_turn(new.session.id, new.message, new.at)
            new = replace(new, turn=turn)
        return new

    async def _take_over(self, opened: OpenedRun) -> Run:
        """Give a run the rest of a turn that is under way, or was."""
        if await self._outcome(opened.entry) is not None:
            return await self._close_unseen(opened.run) or opened.run
        live = self._watch(opened.run, Ticket(opened.entry))
        self.expect(live.ticket)
        self._gateway.join(live.ticket)
        return opened.run

    def _refuse(self, request: RunRequest) -> None:
        self._refused[request.key_id, request.fingerprint] = None
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    async def _repeats(self, request: RunRequest) -> bool:
        """Tell whether a request was accepted before: a repeat starts nothing."""
        if request.idempotency_key is None:
            return False
        return await self._ledger.run_under(request.key_id, request.idempotency_key) is not None

    async def get(self, run_id: str) -> Run | None:
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
                live.ticket.fail(RunStopped("The run was stopped before it began."))
                return True
        stream = await live.events()
        return self._gateway.interrupt(run.session_id, turn_id=stream.turn_id)

    async def retried(self, key_id: str, fingerprint: str) -> list[Run]:
        """Return the runs that a retry of a request may mean, those that were left first.

        Not those that were stopped, nor those that failed before anything was done. An answer
        that went out whole may have been lost on its way, but not for a client that was kept out
        by a restart after that: it asks anew.
        """
        if (key_id, fingerprint) in self._refused:
            del self._refused[key_id, fingerprint]
            return []
        now = self._clock.now()
        found = await self._ledger.runs_retried(key_id, fingerprint, now, since=self._since)
        fit = [run for run in found if run.outcome is None or _stands(run.outcome)]
        return sorted(fit, key=lambda run: run.id not in self._left)

    def delivered(self, run_id: str) -> None:
        """Note beside what goes on that the answer of a run went out whole."""

        async def note() -> None:
            try:
                await self._ledger.note_delivery(run_id)
            except HermesError as failure:
                log.error("run %s: its delivery could not be noted: %s", run_id, failure.message)

        self._group.create_task(note())

    def join(self, run: Run) -> None:
        """A retry picks the run up: it does not end because its first client has left."""
        self._left.discard(run.id)
        if live := self._live.get(run.id):
            live.joined += 1

    async def leave(self, run: Run, grace: float = 0.0) -> None:
        """Interrupt the run because its client has gone, unless a retry comes within `grace`."""
        live = self._live.get(run.id)
        if live is None:
            return
        joined = live.joined
        if grace > 0:
            self._left.add(run.id)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await live.ended.wait()
            self._left.discard(run.id)
        if live.joined == joined:
            await self.stop(run, left=True)

    async def left_behind(self, run: Run) -> Run:
        """Return a run as it ended if its client has left it; whoever goes on does not retry.

        Others, and those that take too long to end, are returned as they are.
        """
        live = self._live.get(run.id)
        if live is None:
            return run
        if run.id in self._left:
            await self.stop(run, left=True)
        if not (live.left or self._gateway.stopping(run.session_id)):
            return run
        with suppress(TimeoutError):
            async with asyncio.timeout(STOPPING_SECONDS):
                return await self.wait(run)
        return run

    def later(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do something in a while, unless this process has stopped by then."""

        async def wait() -> None:
            await self._clock.sleep(seconds)
            try:
                await work()
            except HermesError as failure:
                log.error("work put off could not be done: %s", failure.message)

        task = self._group.create_task(wait())
        self._put_off.add(task)
        task.add_done_callback(self._put_off.discard)

    def drop_put_off(self) -> None:
        for task in tuple(self._put_off):
            task.cancel()

    async def close(self, seconds: float) -> None:
        self.drop_put_off()
        await super().close(seconds)

    def said_nothing(self, run: Run) -> bool:
        live = self._live.get(run.id)
        told = live.stream.events if live is not None and live.stream is not None else ()
        return not any(isinstance(event, TextDelta | ReasoningDelta) for event in told)

    async def steer(self, run: Run, text: str) -> bool:
        """Say something to the running turn; False if it is not running."""
        live = self._live.get(run.id)
        if live is None or live.stream is None or live.stream.finished is not None:
            return False
        message = InboundMessage(
            platform=PLATFORM,
            account=run.key_id,
            native_id=new_id("steer"),
            chat=Chat(kind=ChatKind.PRIVATE, id=run.session_id),
            sender=Sender(id=owner_tag(run.key_id)),
            text=text,
            sent_at=self._clock.now(),
        )
        ticket = await self._gateway.submit(run.agent_id, message, session_id=run.session_id)
        if self._gateway.steer(ticket):
            return True
        # The turn ended meanwhile; a word to it is not a new question.
        await self._ledger.drop([ticket.entry.id], "nothing to steer")
        return False

    # -- obligations -----------------------------------------------------------

    async def unfinished(self) -> Sequence[InboxEntry]:
        found = []
        for run in await self._ledger.runs(RunQuery(states=OPEN_STATES, limit=None)):
            live = self._live.get(run.id)
            if live is not None and live.ticket.settled:
                continue
            entry = await self._ledger.entry(run.inbox_id)
            if entry is not None:
                found.append(entry)
            else:
                await self._close_unseen(run)
        return found

    async def follow(self, ticket: Ticket) -> None:
        """Stay with a run until its outcome is in the ledger."""
        self._gateway.join(ticket)
        live = await self._live_of(ticket)
        if live is None:
            await self._wait_unanswered(ticket)
            return
        ended: Run | None = None
        try:
            ended = await self._to_its_end(live)
        except RunStopped:
            state = RunState.INCOMPLETE if live.left else RunState.CANCELLED
            ended = await self._close(live.run, RunOutcome(state=state))
        except (Kept, Unseen):
            raise
        except HermesError as error:
            log.error("run %s: %s", live.run.id, error.message)
            reason = TurnError(code=error.code, message=error.message, hint=error.hint)
            ended = await self._close(live.run, RunOutcome(state=RunState.FAILED, error=reason))
        finally:
            self._live.pop(live.run.id, None)
            live.end(ended)
        await self._wait_unanswered(ticket, ended)

    async def _wait_unanswered(self, ticket: Ticket, run: Run | None = None) -> None:
        """Stay with a turn whose run ended with a question, to its end."""
        run = run or await self._ledger.run(ticket.entry.message.native_id)
        if run is None or run.outcome is None or run.outcome.asked is None:
            return
        stream = await ticket.stream()
        if not goes_on_later(await stream.wait()):
            await self._ledger.mark_answered(stream.turn_id)

    def begin(self, job: TurnJob) -> None:
        super().begin(job)
        for ticket in self._tickets.values():
            if ticket.entry.turn_id == job.turn.id:
                ticket.resolve(job)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:  # noqa: ARG002
        """Close a run that ended while nobody was watching."""
        run = await self._ledger.run(entry.message.native_id)
        if run is not None and run.state.open:
            await self._close_unseen(run)

    def _watch(self, run: Run, ticket: Ticket) -> LiveRun:
        live = self._live[run.id] = LiveRun(run, ticket, self._redact)
        return live

    async def _live_of(self, ticket: Ticket) -> LiveRun | None:
        """Return the run of a message; None if it has none, such as a word to a turn that ended."""
        run_id = ticket.entry.message.native_id
        if run_id in self._live:
            return self._live[run_id]
        run = await self._ledger.run(run_id)
        return self._watch(run, ticket) if run is not None and run.state.open else None

    async def _to_its_end(self, live: LiveRun) -> Run | None:
        stream = await live.events()
        live.close_with(await live.ticket.job())
        last = await live.record(self._ledger, self._clock) if live.run.logged else []
        if goes_on_later(await stream.wait()):
            return None
        outcome = live.kept
        if outcome is None:
            outcome = outcome_of(stream, left=live.left)
            await self._ledger.finish_run(live.run.id, outcome, last, self._clock.now())
        return replace(live.run, state=outcome.state, outcome=outcome, turn_id=stream.turn_id)

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

    async def _close_unseen(self, run: Run) -> Run | None:
        if run.turn_id is None:
            return await self._close(run, RunOutcome(state=RunState.CANCELLED))
        turn = await self._ledger.turn(run.turn_id)
        transcript = await self._ledger.transcript(run.session_id) if turn is not None else []
        used = await self._ledger.usage_of_turn(run.turn_id)
        outcome = ended_turn_outcome(turn, transcript, used)
        section = section_of(run)
        if section is not None and section.note:
            outcome = replace(outcome, text=f"{section.note}\n\n{outcome.text}".strip())
        missed = missed_events(run, turn, transcript, outcome)
        return await self._close(run, outcome, missed)

    async def keep_tidy(self, every: float = 3600.0) -> None:
        """Forget old runs and old logs, now and then, until cancelled."""
        while True:
            await self.tidy(self._clock.now())
            await self._clock.sleep(every)

    async def tidy(self, now: float) -> None:
        """Forget old runs and logs, and sessions as `sessions.auto_prune` says.

        A session that was opened for requests only is out of reach when its runs are forgotten.
        """
        kept = self._sessions.retention_days * 86400.0
        if self._sessions.auto_prune is not False:
            old = now - min(kept, KEEP_RUNS_SECONDS)
            await self._prune(SessionQuery(for_requests=True, updated_before=old, limit=None))
        if self._sessions.auto_prune:
            await self._prune(SessionQuery(ended=True, updated_before=now - kept, limit=None))
        await self._ledger.prune_runs(
            logs_before=now - KEEP_LOGS_SECONDS, runs_before=now - KEEP_RUNS_SECONDS
        )

    async def _prune(self, query: SessionQuery) -> None:
        if pruned := await self._ledger.prune_sessions(query):
            log.info("%d old sessions deleted (sessions.auto_prune)", pruned)

    # -- readers ---------------------------------------------------------------

    async def batches(self, run: Run) -> AsyncIterator[Sequence[TurnEvent]]:
        """Yield the events of the run's turn from their beginning, as they come.

        Whatever has come since the last look comes together. A turn that has
        ended already is told from the ledger: fewer deltas, the same content.
        The last event is always a `TurnFinished`, and comes when the outcome
        of the run is durable.
        """
        live = self._live.get(run.id)
        if live is None:
            yield await self._told(await self.wait(run))
            return
        try:
            stream = await live.events()
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
        async for batch in self.batches(run):
            for event in batch:
                yield event

    async def _told(self, run: Run) -> Sequence[TurnEvent]:
        if run.outcome is None:
            error = TurnError(code="shutdown", message="This run is kept and continues later.")
            return [finished_event(RunOutcome(state=RunState.CANCELLED, error=error))]
        session = await self._ledger.session(run.session_id)
        transcript = await self._ledger.transcript(run.session_id) if session else []
        told, section = retold(run, transcript, session.model if session else ""), section_of(run)
        if section is None:
            return list(told)
        return retold_section(told, section, run.outcome.asked, self._redact)

    async def log(self, run: Run, after: int = 0) -> AsyncIterator[LoggedEvent]:
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
        if current is None or not current.state.open or self._gateway.draining:
            return False
        await self._clock.sleep(POLL_SECONDS)
        return True

    async def wait(self, run: Run) -> Run:
        """Return the run once it has its outcome, or as it is when this process stops."""
        while True:
            live = self._live.get(run.id)
            if live is not None:
                await live.ended.wait()
            current = await self._ledger.run(run.id)
            if current is None or not current.state.open or self._gateway.draining:
                return current or run
            if live is None:
                await self._clock.sleep(POLL_SECONDS)
