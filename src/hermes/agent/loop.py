"""The turn loop: call the model, run its tools, until it has answered.

    steer -> (compact) -> model call -> commit reply -> tools -> commit results -> ...

Every arrow is a place where the process may die or the turn may be
interrupted; what is committed by then is a valid history, and `run` can be
entered again with it.
"""

import logging
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from hermes.agent.attachments import MessageFiles
from hermes.agent.compaction import CompactionImpossible, Compactor
from hermes.agent.executor import CUT_OFF, ToolExecutor, close_calls, open_calls
from hermes.agent.scope import AgentServices, TurnScope, durable, usage_record
from hermes.agent.side_calls import Sight
from hermes.config.secrets import RedactedStream
from hermes.domain.errors import BudgetExhausted, HermesError, ToolLimit
from hermes.domain.events import (
    CallDelta,
    MessageCompleted,
    Notice,
    NoticeLevel,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    TurnFinished,
    TurnStream,
    UsageReported,
)
from hermes.domain.ids import new_call_id
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    InputKind,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    typed_text,
    user_prefix,
)
from hermes.domain.ports.clock import zone_named
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelReply, ModelRequest
from hermes.domain.runs import RunEnding
from hermes.domain.session import StoredMessage
from hermes.domain.tools import Need
from hermes.domain.turn import SAMPLING, TurnState
from hermes.domain.usage import estimate_message, estimate_tokens

log = logging.getLogger(__name__)

WRAP_UP_SHARE = 0.9


async def check_spend(services: AgentServices, agent_id: str, session_id: str) -> None:
    limits, spent_by = services.settings().budget, services.ledger.spent
    own = limits != services.settings.general().budget
    key = f"agents.{agent_id}.settings.budget" if own else "budget"
    if limits.session_tokens is not None or limits.session_usd is not None:
        spent = await spent_by(session_id=session_id)
        _compare(key, "session", spent.tokens, limits.session_tokens, "tokens")
        _compare(key, "session", spent.cost_usd, limits.session_usd, "usd")
    if limits.day_tokens is not None or limits.day_usd is not None:
        zone = zone_named(services.settings().timezone)
        now = datetime.fromtimestamp(services.clock.now(), zone)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()
        spent = await spent_by(agent_id=agent_id, since=midnight)
        _compare(key, "day", spent.tokens, limits.day_tokens, "tokens")
        _compare(key, "day", spent.cost_usd, limits.day_usd, "usd")


def _compare(key: str, period: str, spent: float, limit: float | None, unit: str) -> None:
    if limit is None or spent < limit:
        return
    amount = f"${spent:.4f} of ${limit:.2f}" if unit == "usd" else f"{spent:,} of {limit:,} tokens"
    whose = "This session has" if period == "session" else "Today this agent has"
    raise BudgetExhausted(
        f"{whose} used {amount}, its hard limit.",
        hint=f"Raise it with: hermes config set {key}.{period}_{unit} VALUE"
        + (" (or start a new session)" if period == "session" else ""),
    )


class StreamListener:
    """A `CallListener` that emits into a turn stream and keeps the text so far."""

    def __init__(
        self,
        services: AgentServices,
        stream: TurnStream,
        streams_call: Callable[[int, str], bool] = lambda _number, _name: False,
    ) -> None:
        """`streams_call`: whether a client hears the arguments of this call as they come."""
        self._stream = stream
        self._services = services
        self._streams_call = streams_call
        self._calls: dict[int, tuple[str, RedactedStream]] = {}
        """Calls whose arguments are being told: their ids, and what takes secrets out."""
        self._redact = services.redact
        self._text_filter = services.redacting()
        self._reasoning_filter = services.redacting()
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def call_id(self, number: int) -> str:
        """Return the id under which a call was told; empty if it was not."""
        return self._calls[number][0] if number in self._calls else ""

    def clear(self) -> None:
        """Show what the filters still hold and start over: the reply is complete."""
        self._pieces.clear()
        self._calls.clear()
        if thought := self._reasoning_filter.flush():
            self._stream.emit(ReasoningDelta(thought))
        if text := self._text_filter.flush():
            self._stream.emit(TextDelta(text))

    def on_text(self, text: str) -> None:
        self._pieces.append(text)
        if shown := self._text_filter.feed(text):
            self._stream.emit(TextDelta(shown))

    def on_reasoning(self, text: str) -> None:
        if shown := self._reasoning_filter.feed(text):
            self._stream.emit(ReasoningDelta(shown))

    def on_call(self, number: int, name: str, arguments: str) -> bool:
        if number not in self._calls:
            # What has to be mended first (code fences, a text in a text) is told as a whole.
            if not arguments.lstrip().startswith("{") or not self._streams_call(number, name):
                return False
            self._calls[number] = new_call_id(), self._services.redacting()
        call_id, redacting = self._calls[number]
        if shown := redacting.feed(arguments):
            self._stream.emit(CallDelta(call_id=call_id, name=name, arguments=shown))
        return True

    def on_notice(self, code: str, text: str) -> None:
        self._stream.emit(Notice(code=code, text=self._redact(text), level=NoticeLevel.WARNING))

    def on_restart(self) -> None:
        self._text_filter.clear()
        self._reasoning_filter.clear()
        self._calls.clear()
        if self._pieces:
            self._pieces.clear()
            self._stream.emit(TextReset())


REASONING_EFFORT = "reasoning_effort"
"""The fact of a session that holds the reasoning effort chosen for it."""
NOTHING_SAID = "The user has not said anything yet. Begin as your instructions say."
CONTINUE = "Your answer was cut off by its length limit. Continue exactly where it stopped."
TOO_LONG = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE})
MAX_FORCED_COMPACTIONS = 2
MAX_CONTINUATIONS = 3
"""How often an answer cut off by its length limit is continued."""


class TurnLoop:
    def __init__(
        self,
        services: AgentServices,
        scope: TurnScope,
        history: list[StoredMessage],
    ) -> None:
        job = scope.job
        self.scope = scope
        self._services = services
        self._job = job
        self._model = scope.model
        self._tools = scope.tools
        self._history = history
        self._specs = scope.tools.specs()
        self._executor = ToolExecutor(services, scope)
        self._compactor = Compactor(
            services,
            job.profile,
            scope.session,
            scope.model,
            turn_id=job.turn.id,
            notify=lambda code, text: job.stream.emit(Notice(code=code, text=text)),
        )
        allowed = job.brief.options.max_model_calls
        self._calls_allowed = allowed or services.settings().agent.max_turns
        self._calls = 0
        sight = Sight(services.ledger, services.models, services.clock, job.profile, scope.session)
        self._files = MessageFiles(
            services.read_attachment, self._executor.environment, sight.described
        )
        self._context_tokens = 0
        self._streamed: float = 0
        """How many calls of the next reply are told as they come."""
        self._compaction_failed = False
        replies = (stored.message for stored in history)
        called = (reply.tool_calls for reply in replies if isinstance(reply, AssistantMessage))
        self._call_ids = {call.id for calls in called for call in calls}
        self._listener = StreamListener(services, job.stream, self._streams_call)
        self._new_prompt = scope.session.system_prompt if scope.new_prompt else None
        """The system prompt until the session has it."""
        self.usage = scope.used.usage
        self.cost_usd: float | None = scope.used.cost_usd
        self.model_calls = scope.used.calls
        self._used_tools = False
        self.handed: tuple[ToolCall, ...] = ()
        """Calls that the client must carry out, once the turn has reached them."""
        self.logprobs = ""
        """Of the last reply, if they were asked for."""
        self._answer: list[str] = []
        self.answer: str | None = None
        """What was said in the end, once that and the end of the turn are in the ledger."""

    async def run(self) -> str:
        await self._settle_open_calls()
        answer = self._answer
        continuations, allowed = 0, self._allowed_continuations()
        message = self._resumed_reply()
        while True:
            if message is None:
                message = await self._next_reply()
            if message.tool_calls:
                answer.clear()
                self._history += await self._run(message.tool_calls)
                self.handed = tuple(call for call in message.tool_calls if self._is_client(call))
                if self.handed:
                    return message.text
            else:
                answer.append(message.text)
                cut_off = message.finish is FinishReason.LENGTH
                if not cut_off or continuations >= allowed:
                    return "".join(answer)
                continuations += 1
                await self._add_input(UserMessage(kind=InputKind.NOTICE, content=CONTINUE))
            message = None

    async def close_history(self) -> None:
        """Keep the text of a cut-off reply and give every open call a result."""
        ledger, turn, partial = self._services.ledger, self._job.turn, self._listener.text
        if self._new_prompt is not None:
            await durable(ledger.freeze_prompt(self.scope.session.id, self._new_prompt))
        if partial.strip():
            text = self._services.redact(partial)
            cut = AssistantMessage(text=text, finish=FinishReason.INTERRUPTED)
            await durable(ledger.record_reply(turn.id, cut, None, self._services.clock.now()))
        await close_calls(ledger, turn, self._services.clock.now())

    async def count_children(self) -> None:
        """Add what the child turns used that a tool waited for: the ledger knows them all."""
        if self._has_children():
            used = await self._services.ledger.usage_of_turn(self._job.turn.id)
            self.usage, self.cost_usd, self.model_calls = used.usage, used.cost_usd, used.calls

    def _has_children(self) -> bool:
        return self._used_tools and Need.SPAWN in self.scope.capabilities.granted

    def _allowed_continuations(self) -> int:
        """Return how often an answer that was cut off by its length is continued."""
        asked_for = self._job.brief.options.max_tokens is not None
        if asked_for or self._model.info.own_prompt is not None:
            return 0  # a very small model cannot continue where it stopped
        return MAX_CONTINUATIONS

    def _is_client(self, call: ToolCall) -> bool:
        spec = self._tools.spec(call.name)
        return spec is not None and spec.client

    async def _run(self, calls: Sequence[ToolCall]) -> list[StoredMessage]:
        """Run the calls that are not the client's."""
        ours = [call for call in calls if not self._is_client(call)]
        if ours:
            self._used_tools = True
            await self._files.place([stored.message for stored in self._history])
        return await self._executor.run(ours)

    async def _settle_open_calls(self) -> None:
        """Give every call of an earlier attempt at this turn its result."""
        found = open_calls(self._history, frozenset(), self._tools.spec)
        if not found or found.turn_id != self._job.turn.id:
            return
        started = await self._services.ledger.started_calls(self._job.turn.id)
        calls = open_calls(self._history, started, self._tools.spec)
        for call in calls.cut_off:
            await self._executor.record(call, CUT_OFF)
        await self._run(calls.repeatable)
        self._history = await self._services.ledger.history(self.scope.session.id)

    def _resumed_reply(self) -> AssistantMessage | None:
        """Return the answer if an earlier attempt at this turn had already got it."""
        said = [stored for stored in self._history if stored.turn_id == self._job.turn.id]
        replies = [stored.message for stored in said if not isinstance(stored.message, ToolMessage)]
        last = replies[-1] if replies else None
        if not isinstance(last, AssistantMessage):
            return None
        if said[-1].message is last:
            return last
        handed = tuple(call for call in last.tool_calls if self._is_client(call))
        return replace(last, tool_calls=handed) if handed else None

    async def _next_reply(self) -> AssistantMessage:
        await self._take_steering()
        await self._compact_if_due()
        await check_spend(self._services, self._job.profile.id, self.scope.session.family)
        self._calls += 1
        # One call beyond the limit, without tools: the turn ends with an answer, not with silence.
        tools_allowed = self._calls <= self._calls_allowed and self._calls_left() > 0
        self._streamed = self._calls_per_reply(tools_allowed=tools_allowed)
        reply = await self._call(tools_allowed=tools_allowed)
        message = self._accepted(reply.message, tools_allowed=tools_allowed)
        if reply.message.tool_calls and not message.tool_calls and not message.text.strip():
            await self._give_up(reply)
        await self._commit(message, reply)
        return message

    async def _give_up(self, reply: ModelReply) -> None:
        """End a turn whose model calls tools although it has to answer."""
        self._account(reply)
        owner = (self._job.profile.id, self.scope.session.id, self._job.turn.id)
        record = usage_record(reply, "turn", *owner, at=self._services.clock.now())
        await durable(self._services.ledger.record_usage(record))
        raise ToolLimit(
            "The model asked for another tool, which this turn does not allow, and gave no answer.",
            hint="Allow more calls (`max_tool_calls`, `agent.max_turns`), or ask again.",
        )

    async def _call(self, *, tools_allowed: bool) -> ModelReply:
        for attempt in range(MAX_FORCED_COMPACTIONS + 1):
            try:
                request = await self._request(tools_allowed=tools_allowed)
                return await self._model.complete(request, self._listener)
            except ModelFailure as failure:
                if failure.kind not in TOO_LONG or attempt == MAX_FORCED_COMPACTIONS:
                    raise
                self._history = await self._compactor.compact(self._history)
        raise AssertionError("unreachable")

    async def _request(self, *, tools_allowed: bool) -> ModelRequest:
        brief, options = self._job.brief, self._job.brief.options
        messages = messages_told(self._history, self._job.turn.id, brief.context.passing)
        if not messages:
            messages.append(UserMessage(kind=InputKind.NOTICE, content=NOTHING_SAID))
        if note := self._calls_note():
            messages[-1] = _with(messages[-1], UserMessage(kind=InputKind.NOTICE, content=note))
        shown = await self._files.shown(messages, vision=self._model.info.vision)
        settings = self._services.settings()
        system = (
            self.scope.session.system_prompt,
            settings.agent.ephemeral_system_prompt,
            options.instructions,
        )
        return ModelRequest(
            system="\n\n".join(part for part in system if part),
            messages=shown,
            tools=self._specs,
            tool_choice=self._tool_choice() if tools_allowed else "none",
            max_tokens=options.max_tokens or settings.model.max_tokens,
            reasoning_effort=options.reasoning_effort
            or self.scope.session.state.get(
                REASONING_EFFORT, settings.agent.reasoning_effort or None
            ),
            response_schema=options.response_schema,
            schema_name=options.schema_name,
            schema_strict=options.schema_strict,
            schema_description=options.schema_description,
            json_object=options.json_object,
            session_id=self.scope.session.id,
            **{name: getattr(options, name) for name in SAMPLING},
        )

    def _calls_left(self) -> float:
        """Return how many tool calls the client still allows; counted over restarts."""
        options = self._job.brief.options
        if options.tool_choice == "none":
            return 0
        if options.max_tool_calls is None:
            return math.inf
        said = (stored for stored in self._history if stored.turn_id == self._job.turn.id)
        replies = (each.message for each in said if isinstance(each.message, AssistantMessage))
        return options.max_tool_calls - sum(len(reply.tool_calls) for reply in replies)

    def _calls_note(self) -> str:
        """Return what to tell the model about the calls that are left, if anything."""
        used, limit = self._calls, self._calls_allowed
        if used > limit:
            return (
                "The call limit of this turn is reached and tools are switched off now. "
                "Answer with what you have: what is done, what is not, what comes next."
            )
        if used > 1 and self._calls_left() <= 0:
            return "No more tool calls are allowed in this turn. Answer with what you have."
        if used >= int(limit * WRAP_UP_SHARE) and limit > 5:
            left = limit - used
            return f"Only {left} more model calls are allowed in this turn. Start wrapping up."
        return ""

    def _tool_choice(self) -> str | None:
        """Return the client's choice for the first call of the turn."""
        choice = self._job.brief.options.tool_choice
        if choice is None or choice == "none":
            return choice
        return choice if self.model_calls == 0 else None

    def _accepted(self, message: AssistantMessage, *, tools_allowed: bool) -> AssistantMessage:
        """Make call ids unique in the session and drop calls beyond those that are allowed.

        The model sees only what was done, and may ask again for the others.
        """
        left = self._calls_per_reply(tools_allowed=tools_allowed)
        allowed = islice(message.tool_calls, None if left == math.inf else max(0, int(left)))
        calls = tuple(self._unique(number, call) for number, call in enumerate(allowed))
        return replace(message, text=self._services.redact(message.text), tool_calls=calls)

    def _calls_per_reply(self, *, tools_allowed: bool) -> float:
        left = self._calls_left() if tools_allowed else 0
        return min(left, 1) if self._job.brief.options.parallel_tool_calls is False else left

    def _streams_call(self, number: int, name: str) -> bool:
        spec = self._tools.spec(name) if self._job.brief.options.stream_calls else None
        return spec is not None and spec.client and number < self._streamed

    def _unique(self, number: int, call: ToolCall) -> ToolCall:
        # The client names a call of its own by its id alone, so that must be one of ours.
        if not call.id or call.id in self._call_ids or self._is_client(call):
            call = replace(call, id=self._listener.call_id(number) or new_call_id())
        self._call_ids.add(call.id)
        return call

    async def _commit(self, message: AssistantMessage, reply: ModelReply) -> None:
        turn_id, stream = self._job.turn.id, self._job.stream
        ledger, now = self._services.ledger, self._services.clock.now()
        owner = (self._job.profile.id, self.scope.session.id, turn_id)
        record = usage_record(reply, "turn", *owner, at=now)
        last = not message.tool_calls and message.finish is not FinishReason.LENGTH
        answer = "".join((*self._answer, message.text)) if last else None
        self._account(reply)
        # What was taken out of the text must not be read in its tokens.
        self.logprobs = reply.logprobs if message.text == reply.message.text else ""
        ends = (self._ending(answer) or True) if answer is not None else False

        async def commit() -> StoredMessage:
            prompt = self._new_prompt
            stored = await ledger.record_reply(
                turn_id, message, record, now, ends=ends, prompt=prompt
            )
            self.answer, self._new_prompt = answer, None
            if isinstance(ends, RunEnding):
                ends.kept = True
            return stored

        stored = await durable(commit())
        self._listener.clear()
        self._history.append(stored)
        stream.emit(MessageCompleted(message_id=stored.id, message=message))
        stream.emit(
            UsageReported(
                usage=reply.usage,
                cost_usd=reply.cost_usd,
                context_tokens=self._context_tokens,
                context_window=self._model.info.context_window,
            )
        )

    def _ending(self, answer: str) -> RunEnding | None:
        """Return the run that ends with the turn, if all is known that it is told."""
        closing = self._job.control.closing
        if closing is None or self._has_children():
            return None
        return closing(
            TurnFinished(
                outcome=TurnState.DONE,
                text=answer,
                usage=self.usage,
                cost_usd=self.cost_usd,
                model_calls=self.model_calls,
                logprobs=self.logprobs,
            )
        )

    def _account(self, reply: ModelReply) -> None:
        self.model_calls += 1
        self.usage += reply.usage
        if reply.cost_usd is None or self.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += reply.cost_usd
        self._context_tokens = reply.usage.total_tokens

    async def _take_steering(self) -> None:
        for inbox_id, message in self._job.control.take_steering():
            await self._add_input(message, inbox_id)
            self._job.stream.emit(SteerTaken(text=typed_text(message.content)))

    async def _add_input(self, message: UserMessage, *inbox_ids: int) -> None:
        ledger, now = self._services.ledger, self._services.clock.now()
        added = await durable(ledger.add_inputs(self._job.turn.id, [message], inbox_ids, now))
        self._history += added

    async def _compact_if_due(self) -> None:
        if self._compaction_failed or not self._compactor.enabled:
            return
        if not self._compactor.due(self._context_tokens or self._estimate()):
            return
        try:
            self._history = await self._compactor.compact(self._history)
        except CompactionImpossible:
            self._compaction_failed = True
        except HermesError as error:
            self._compaction_failed = True
            text = f"The older messages could not be summarised ({error.message}) and are kept."
            self._job.stream.emit(
                Notice(code="compaction_failed", text=text, level=NoticeLevel.WARNING)
            )
        self._context_tokens = self._estimate()

    def _estimate(self) -> int:
        prompt = estimate_tokens(self.scope.session.system_prompt or "")
        return prompt + sum(estimate_message(stored.message) for stored in self._history)


_PASSING = "[Context for this reply; not said by the user]"


def messages_told(history: Sequence[StoredMessage], turn_id: str, passing: str) -> list[Message]:
    """Return the history as the model reads it.

    What was said or noted while a turn worked is part of the tool result before it: models
    whose templates drop their reasoning at each user message would lose their thread. What holds
    for this turn only goes with the message that began it.
    """
    told: list[Message] = []
    turn_before: str | None = None
    for stored in history:
        message = stored.message
        if isinstance(message, UserMessage):
            aside = message.kind in (InputKind.STEER, InputKind.NOTICE)
            if aside and stored.turn_id == turn_before and isinstance(told[-1], ToolMessage):
                told[-1] = _with(told[-1], message)
                continue
            if passing and stored.turn_id == turn_id:
                message = _with(message, UserMessage(content=f"{_PASSING}\n{passing}"))
                passing = ""
        told.append(message)
        turn_before = stored.turn_id
    return told


def _with(message: Message, more: UserMessage) -> Message:
    """Return a message with something further in it; an answer stays as it is."""
    if isinstance(message, AssistantMessage):
        return message
    old, label, new = message.content, user_prefix(more), more.content
    if isinstance(old, str) and isinstance(new, str):
        return replace(message, content=f"{old}\n\n{label}{new}".strip())
    parts = (*_parts(old), *([TextPart(label)] if label else ()), *_parts(new))
    return replace(message, content=parts)


def _parts(content: Content) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else content
