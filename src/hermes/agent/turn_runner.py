"""Runs turns: the way into the agent core.

A turn always ends with exactly one `TurnFinished` event. What is committed
when it ends is a valid history: a reply that was cut off keeps the text that
had arrived, and every tool call has a result.
"""

import asyncio
import logging

from msgspec.structs import replace

from hermes.agent.durable import durable
from hermes.agent.executor import ToolExecutor
from hermes.agent.loop import TurnLoop
from hermes.agent.open_calls import CUT_OFF, NOT_STARTED, open_calls
from hermes.agent.prompt import build_prompt, gather_inputs
from hermes.agent.scope import AgentServices, TurnScope
from hermes.agent.titles import TitleMaker
from hermes.agent.tools.wrappers import ClientSide, Filtered
from hermes.domain.errors import Conflict, HermesError, NotFound
from hermes.domain.events import TurnFinished, TurnJob, TurnStarted
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import Session, StoredMessage
from hermes.domain.tools import ToolRunner
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import TurnUsage, Usage

__all__ = ["TurnRunner"]

log = logging.getLogger(__name__)

SHUTDOWN = TurnError(
    code="shutdown",
    message="Hermes is stopping. This turn is kept and goes on at the next start.",
)


class TurnRunner:
    """Runs turns of any agent and session."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._titles = TitleMaker(services)
        self._untitled: set[str] = set()
        """Sessions whose turn has ended and that had no title when it began."""

    async def run(self, job: TurnJob) -> None:
        """Bring a turn to its end; everything it has to say goes into its stream."""
        with use_profile(job.profile):
            attempt = _Attempt(self._services, job)
            await attempt.run()
        if attempt.untitled:
            self._untitled.add(job.turn.session_id)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Do what may wait until the answer is out: name a new session."""
        if session_id not in self._untitled:
            return
        self._untitled.discard(session_id)
        try:
            await self._titles.name(profile, session_id)
        except HermesError as error:
            log.warning("no title for session %s: %s", session_id, error.message)


class _Attempt:
    """One attempt at one turn."""

    def __init__(self, services: AgentServices, job: TurnJob) -> None:
        self._services = services
        self._profile = job.profile
        self._turn = job.turn
        self._stream = job.stream
        self._control = job.control
        self._brief = job.brief
        self._scope: TurnScope | None = None
        self._tools: ToolRunner | None = None
        self._loop: TurnLoop | None = None

    @property
    def untitled(self) -> bool:
        """True if the session had no title when the turn began, and deserves one."""
        wanted = self._brief.options.title
        return wanted and self._scope is not None and not self._scope.session.title

    async def run(self) -> None:
        """Run, and settle whatever way it ends."""
        text, state, error = "", TurnState.DONE, None
        try:
            self._control.attach()
            text = await self._work()
        except asyncio.CancelledError:
            self._control.detach()
            if not self._control.interrupted:
                if self._control.laid_down:
                    await self._lay_down()
                self._finish("", TurnState.INTERRUPTED, SHUTDOWN)
                raise
            _forget_cancellation()
            state = TurnState.INTERRUPTED
        except HermesError as failure:
            state, error = TurnState.FAILED, self._explain(failure)
        except Exception as bug:
            log.exception("turn %s failed unexpectedly", self._turn.id)
            state, error = TurnState.FAILED, self._explain_bug(bug)
        self._control.detach()
        error = await self._settle(state, error)
        self._finish(text, TurnState.FAILED if error else state, error)

    async def _work(self) -> str:
        session = await self._services.ledger.session(self._turn.session_id)
        if session is None:
            raise NotFound(f"Session {self._turn.session_id} does not exist any more.")
        model = self._services.models.main(self._profile, session)
        history = await self._services.ledger.history(session.id)
        self._stream.emit(
            TurnStarted(
                turn_id=self._turn.id,
                session_id=session.id,
                agent_id=self._profile.id,
                model=model.info.model,
                resumes=self._turn.resumes,
                earlier=self._said(history) if self._turn.resumes else (),
            )
        )
        self._tools = self._services.tools.for_turn(self._profile, session, self._stream)
        if model.info.own_tools is not None:
            self._tools = Filtered(self._tools, model.info.own_tools)
        if session.system_prompt is None:
            session = await self._freeze_prompt(session, model, self._tools)
        if self._brief.options.client_tools:
            self._tools = ClientSide(self._tools, self._brief.options.client_tools)
        self._scope = TurnScope(
            profile=self._profile,
            session=session,
            turn=self._turn,
            stream=self._stream,
            control=self._control,
            brief=self._brief,
            capabilities=self._services.tools.capabilities(self._profile, session, self._stream),
            used=await self._used(),
        )
        self._loop = TurnLoop(self._services, self._scope, model, self._tools, history)
        return await self._loop.run()

    async def _used(self) -> TurnUsage:
        if not self._turn.resumes:
            return TurnUsage()
        return await self._services.ledger.usage_of_turn(self._turn.id)

    def _said(self, history: list[StoredMessage]) -> tuple[AssistantMessage, ...]:
        """Return what an earlier attempt at this turn has committed."""
        return tuple(
            stored.message
            for stored in history
            if stored.turn_id == self._turn.id and isinstance(stored.message, AssistantMessage)
        )

    async def _freeze_prompt(self, session: Session, model: Model, tools: ToolRunner) -> Session:
        """Build the system prompt once and keep it with the session for good."""
        prompt = model.info.own_prompt
        if prompt is None:
            prompt = build_prompt(
                await gather_inputs(self._services, self._profile, session, model.info.model, tools)
            )
        frozen = await self._services.ledger.freeze_prompt(
            session.id, self._services.redact(prompt)
        )
        return replace(session, system_prompt=frozen)

    async def _lay_down(self) -> None:
        """Leave the turn open for the next process, which shall not hold it against the turn."""
        try:
            await durable(
                self._services.ledger.release_turn(self._turn.id, self._services.clock.now())
            )
        except HermesError as failure:
            log.warning("turn %s is left without a note: %s", self._turn.id, failure.message)

    async def _settle(self, state: TurnState, error: TurnError | None) -> TurnError | None:
        """Leave a valid history and close the turn; return what went wrong, if anything."""
        try:
            if state is not TurnState.DONE:
                await self._close_history()
            await durable(
                self._services.ledger.finish_turn(
                    self._turn.id,
                    state,
                    error,
                    self._services.clock.now(),
                    handed=bool(self._handed(state)),
                )
            )
        except HermesError as failure:
            log.error("turn %s could not be closed: %s", self._turn.id, failure.message)
            return error or self._explain(failure)
        return error

    async def _close_history(self) -> None:
        """Keep the text of a cut-off reply and give every open call a result."""
        if self._scope is None or self._tools is None:
            return
        ledger, now = self._services.ledger, self._services.clock.now()
        partial = self._loop.partial_text if self._loop else ""
        if partial.strip():
            cut = AssistantMessage(
                text=self._services.redact(partial), finish=FinishReason.INTERRUPTED
            )
            await durable(ledger.record_reply(self._turn.id, cut, None, now))
        started = await ledger.started_calls(self._turn.id)
        calls = open_calls(await ledger.history(self._turn.session_id), started, lambda _: None)
        executor = ToolExecutor(self._services, self._scope, self._tools)
        for group, result in ((calls.cut_off, CUT_OFF), (calls.repeatable, NOT_STARTED)):
            for call in group:
                try:
                    await executor.record(call, result)
                except Conflict:
                    log.debug("call %s got its own result meanwhile", call.id)

    def _finish(self, text: str, state: TurnState, error: TurnError | None) -> None:
        loop = self._loop
        self._stream.emit(
            TurnFinished(
                outcome=state,
                text=text,
                usage=loop.usage if loop else Usage(),
                cost_usd=loop.cost_usd if loop else 0.0,
                model_calls=loop.model_calls if loop else 0,
                error=error,
                handed=self._handed(state),
            )
        )

    def _handed(self, state: TurnState) -> tuple[ToolCall, ...]:
        return self._loop.handed if self._loop and state is TurnState.DONE else ()

    def _explain(self, error: HermesError) -> TurnError:
        redact = self._services.redact
        return TurnError(code=error.code, message=redact(error.message), hint=redact(error.hint))

    def _explain_bug(self, bug: Exception) -> TurnError:
        return TurnError(
            code="internal",
            message=self._services.redact(
                f"Something unexpected happened: {type(bug).__name__}: {bug}"
            ),
            hint="The details are in logs/errors.log in the Hermes home.",
        )


def _forget_cancellation() -> None:
    """Tell asyncio that the cancellation has been dealt with."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
