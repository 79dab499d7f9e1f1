"""TurnRunner: runs turns.

A turn always ends with exactly one `TurnFinished` event. What is committed
when it ends is a valid history: a reply that was cut off keeps the text that
had arrived, and every tool call has a result.
"""

import asyncio
import logging

from msgspec.structs import replace

from hermes.agent.loop import TurnLoop
from hermes.agent.prompt import build_prompt, gather_inputs
from hermes.agent.scope import AgentServices, TurnScope, durable
from hermes.agent.side_calls import TitleMaker
from hermes.agent.tools.tool_search import ToolWeights, searchable
from hermes.agent.tools.wrappers import ClientSide, Filtered
from hermes.domain.errors import Explained, HermesError, NotFound
from hermes.domain.events import TurnFinished, TurnJob, TurnStarted
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Opening, Session
from hermes.domain.tools import ToolRunner
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.usage import TurnUsage, Usage
from hermes.domain.wording import clean_text

log = logging.getLogger(__name__)

SHUTDOWN = TurnError(
    code="shutdown",
    message="Hermes is stopping. This turn is saved and continues at the next start.",
)


class TurnRunner:
    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._titles = TitleMaker(services)
        self._weights = ToolWeights()
        self._untitled: set[str] = set()
        """Sessions whose turn has ended and that had no title when it began."""

    async def run(self, job: TurnJob) -> None:
        """Run a turn to its end; everything it reports goes into its stream."""
        attempt = _Attempt(self._services, job, self._weights)
        await attempt.run()
        if attempt.untitled:
            self._untitled.add(job.turn.session_id)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        """Give a new session its title, which can wait until the answer is sent."""
        if session_id not in self._untitled:
            return
        self._untitled.discard(session_id)
        try:
            await self._titles.name(profile, session_id)
        except HermesError as error:
            log.warning("no title for session %s: %s", session_id, error.message)


class _Attempt:
    def __init__(self, services: AgentServices, job: TurnJob, weights: ToolWeights) -> None:
        self._services = services
        self._job = job
        self._weights = weights
        self._loop: TurnLoop | None = None
        """None until the session, its model and its tools are loaded."""

    @property
    def untitled(self) -> bool:
        """True if the session had no title when the turn began, and should get one."""
        loop = self._loop
        return self._job.brief.options.title and loop is not None and not loop.scope.session.title

    async def run(self) -> None:
        """Run the turn and settle it, however it ends."""
        control = self._job.control
        text, state, error = "", TurnState.DONE, None
        try:
            control.attach()
            self._loop = await self._prepare()
            await asyncio.sleep(0)  # in a crowd everybody has just prepared: others come between
            text = await self._loop.run()
        except asyncio.CancelledError:
            control.detach()
            answer = self._loop.answer if self._loop else None
            if not control.interrupted:
                if control.laid_down and answer is None:
                    await self._lay_down()
                if answer is None:
                    self._finish("", TurnState.INTERRUPTED, SHUTDOWN)
                else:
                    self._finish(answer, TurnState.DONE, None)
                raise
            _forget_cancellation()
            if answer is None:
                state = TurnState.INTERRUPTED
            else:  # it came too late: everything was said
                text = answer
        except HermesError as failure:
            error = self._explain(failure)
            state = TurnState.FAILED
        except Exception as bug:  # the boundary of a turn: it ends with a `TurnFinished`
            log.exception("turn %s failed unexpectedly", self._job.turn.id)
            said = f"Something unexpected happened: {type(bug).__name__}: {bug}"
            hint = "The details are in logs/errors.log in the Hermes home."
            unexpected = TurnError(code="internal", message=said, hint=hint)
            state, error = TurnState.FAILED, self._explain(unexpected)
        control.detach()
        error = await self._settle(state, error)
        self._finish(text, TurnState.FAILED if error else state, error)

    async def _prepare(self) -> TurnLoop:
        services, job = self._services, self._job
        turn, profile, stream = job.turn, job.profile, job.stream
        opening = job.opening or await self._opening()
        session, history = opening.session, list(opening.history)
        model = services.models.main(profile, session)
        said = (stored.message for stored in history if stored.turn_id == turn.id)
        stream.emit(
            TurnStarted(
                turn_id=turn.id,
                session_id=session.id,
                agent_id=profile.id,
                model=model.info.model,
                resumes=turn.resumes,
                earlier=tuple(m for m in said if turn.resumes and isinstance(m, AssistantMessage)),
            )
        )
        given = await services.tools(job, session)
        tools = given.runner
        for allowed in (model.info.own_tools, job.brief.options.own_tools):
            if allowed is not None:
                tools = Filtered(tools, allowed)
        whole, limits = tools, services.settings().tools.tool_search
        tools = searchable(tools, limits, model.info.context_window, self._weights)
        new_prompt = session.system_prompt is None
        if new_prompt:
            prompt = await self._prompt(session, model, tools)
            session = replace(session, system_prompt=prompt)
        if job.brief.options.client_tools:
            tools = ClientSide(tools, job.brief.options.client_tools)
        scope = TurnScope(
            job=job,
            session=session,
            new_prompt=new_prompt,
            model=model,
            tools=tools,
            callable=whole,
            capabilities=given.capabilities,
            used=await services.ledger.usage_of_turn(turn.id) if turn.resumes else TurnUsage(),
        )
        return TurnLoop(services, scope, history)

    async def _opening(self) -> Opening:
        ledger, session_id = self._services.ledger, self._job.turn.session_id
        session = await ledger.session(session_id)
        if session is None:
            raise NotFound(f"Session {session_id} does not exist any more.")
        return Opening(session, tuple(await ledger.history(session_id)))

    async def _prompt(self, session: Session, model: Model, tools: ToolRunner) -> str:
        """Build the system prompt, which the session then keeps unchanged."""
        services, prompt = self._services, model.info.own_prompt
        if prompt is None:
            job = self._job
            inputs = await gather_inputs(services, job.profile, session, model.info.model, tools)
            place = "\n\n".join(filter(None, (job.brief.context.lasting, job.profile.note)))
            prompt = build_prompt(replace(inputs, place=place))
        return clean_text(services.redact(prompt))

    async def _lay_down(self) -> None:
        """Release the open turn for the next process; that resume is not counted against it."""
        turn, now = self._job.turn, self._services.clock.now()
        try:
            await durable(self._services.ledger.release_turn(turn.id, now))
        except HermesError as failure:
            log.warning("turn %s could not be released: %s", turn.id, failure.message)

    async def _settle(self, state: TurnState, error: TurnError | None) -> TurnError | None:
        """Leave a valid history and close the turn; return what went wrong, if anything."""
        ledger, turn, loop = self._services.ledger, self._job.turn, self._loop
        handed = state is TurnState.DONE and loop is not None and bool(loop.handed)
        try:
            if state is not TurnState.DONE and loop is not None:
                await loop.close_history()
            if loop is not None:
                await loop.count_children()
            if loop is not None and loop.answer is not None:
                return error
            now = self._services.clock.now()
            await durable(ledger.finish_turn(turn.id, state, error, now, handed=handed))
        except HermesError as failure:
            log.error("turn %s could not be closed: %s", turn.id, failure.message)
            return error or self._explain(failure)
        return error

    def _log(self, state: TurnState, error: TurnError | None) -> None:
        """Write one line about the turn; what was said stays in the ledger."""
        loop, turn = self._loop, self._job.turn
        if error is not None:
            log.warning("turn %s %s: %s %s", turn.id, state.value, error.message, error.hint)
        elif loop is not None:
            info, used = loop.scope.model.info, loop.usage
            text = "turn %s %s: %s (%s), %d calls, %d tokens in, %d out"
            who = (info.model, info.provider, loop.model_calls)
            log.info(text, turn.id, state.value, *who, used.input_tokens, used.output_tokens)

    def _finish(self, text: str, state: TurnState, error: TurnError | None) -> None:
        loop = self._loop
        self._log(state, error)
        self._job.stream.emit(
            TurnFinished(
                outcome=state,
                text=text,
                usage=loop.usage if loop else Usage(),
                cost_usd=loop.cost_usd if loop else 0.0,
                model_calls=loop.model_calls if loop else 0,
                error=error,
                handed=loop.handed if loop and state is TurnState.DONE else (),
                logprobs=loop.logprobs if loop and state is TurnState.DONE else "",
            )
        )

    def _explain(self, failure: Explained) -> TurnError:
        redact = self._services.redact
        return TurnError(
            code=failure.code,
            message=redact(failure.message),
            hint=redact(failure.hint),
            public=failure.public,
        )


def _forget_cancellation() -> None:
    """Tell asyncio that the cancellation has been handled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
