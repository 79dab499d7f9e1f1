"""Runs the tool calls of one reply.

Calls that may overlap run side by side as children of one task group; their
results are committed as they arrive and take the seats reserved for them, so
the history is in call order. One call's failure never touches another.
"""

import asyncio
import logging
import posixpath
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.scope import AgentServices, TurnScope, durable
from hermes.agent.tools.define import parse_object
from hermes.domain.errors import Conflict, HermesError, NotFound
from hermes.domain.events import ToolFinished, ToolProgress, ToolStarted
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    content_text,
)
from hermes.domain.ports.execution import Environment
from hermes.domain.ports.ledger import Ledger
from hermes.domain.session import StoredMessage
from hermes.domain.tools import MAX_RESULT_CHARS, Parallel, ToolContext, ToolResult, ToolSpec
from hermes.domain.turn import Turn
from hermes.domain.wording import one_line

_ELSEWHERE = frozenset({"..", "~", "~/"})
_MAX_PATHS = 256
"""A call that writes more runs alone."""


class _Footprint(Struct, frozen=True):
    alone: bool
    writes: bool = False
    paths: tuple[str, ...] = ()


def segments(
    calls: Sequence[ToolCall],
    spec: Callable[[str], ToolSpec | None],
    resolve: Callable[[str], str] = posixpath.normpath,
) -> list[list[ToolCall]]:
    """Cut `calls` into runs that may overlap, keeping their order.

    `resolve` makes paths absolute. Without it, paths that cannot be compared
    as text (absolute with relative, `~`, `..`) count as overlapping.
    """
    result: list[list[ToolCall]] = []
    running = _Running()
    for call in calls:
        footprint = _footprint(call, spec(call.name), resolve)
        if not result or running.delays(footprint):
            result.append([])
            running = _Running()
        result[-1].append(call)
        running.add(footprint)
    return result


def _footprint(call: ToolCall, spec: ToolSpec | None, resolve: Callable[[str], str]) -> _Footprint:
    if spec is None:
        return _Footprint(alone=False)  # answered with an error, touches nothing
    if spec.parallel is Parallel.NEVER:
        return _Footprint(alone=True)
    arguments = parse_object(call.arguments) or {}
    if spec.parallel is Parallel.BY_PATH and spec.intent is not None:
        named = [path for path in spec.intent(arguments).writes if path]
        written = tuple(map(resolve, named[:_MAX_PATHS]))
        alone = not written or len(named) > _MAX_PATHS
        return _Footprint(alone=alone, writes=True, paths=written)
    given = [arguments.get(field) for field in spec.path_fields]
    paths = tuple(resolve(path) for path in given if isinstance(path, str) and path)
    if spec.parallel is Parallel.ALWAYS:
        # A read without a path starts from the working directory.
        return _Footprint(alone=False, paths=paths or tuple(resolve(".") for _ in given[:1]))
    return _Footprint(alone=len(paths) < len(given) or not paths, writes=True, paths=paths)


class _Running:
    """What the calls of a run touch together, so that one more is compared with all at once."""

    def __init__(self) -> None:
        self._calls = 0
        self._alone = False
        self._touched = _Paths()
        self._written = _Paths()

    def add(self, footprint: _Footprint) -> None:
        self._calls += 1
        self._alone = self._alone or footprint.alone
        self._touched.add(footprint.paths)
        if footprint.writes:
            self._written.add(footprint.paths)

    def delays(self, footprint: _Footprint) -> bool:
        """Tell whether a call has to wait for those before it."""
        if self._alone or footprint.alone:
            return self._calls > 0
        before = self._touched if footprint.writes else self._written
        return before.meet(footprint.paths)


class _Paths:
    """Paths that are compared with others: none that is below another one of them is kept."""

    def __init__(self) -> None:
        self._tops: list[str] = []
        """In order, each with a slash at its end."""
        self._kinds: set[bool] = set()

    def meet(self, paths: tuple[str, ...]) -> bool:
        return bool(self._kinds) and any(map(self._meets, paths))

    def add(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            self._kinds |= _kinds(path)
            top = path.rstrip("/") + "/"
            at = end = bisect_left(self._tops, top)
            while end < len(self._tops) and self._tops[end].startswith(top):
                end += 1
            if not (at and top.startswith(self._tops[at - 1])):
                self._tops[at:end] = [top]

    def _meets(self, path: str) -> bool:
        if len(self._kinds | _kinds(path)) > 1:
            return True
        top = path.rstrip("/") + "/"
        at = bisect_left(self._tops, top)
        below = self._tops[at : at + 1]
        return any(each.startswith(top) for each in below) or bool(
            at and top.startswith(self._tops[at - 1])
        )


def _kinds(path: str) -> set[bool]:
    """Return whether `path` is absolute; both if that cannot be told."""
    unclear = path == "." or path[:2] in _ELSEWHERE
    return {True, False} if unclear else {path.startswith("/")}


log = logging.getLogger(__name__)

MAX_PARALLEL_TOOLS = 8
PREVIEW_CHARS = 200
RESULT_SHARE = 0.15
MIN_RESULT_CHARS = 4000
LABEL_CHARS = 120


class ToolExecutor:
    def __init__(self, services: AgentServices, scope: TurnScope) -> None:
        self._services = services
        self._scope = scope
        self._job = scope.job
        self._tools = scope.tools
        self._slots = asyncio.Semaphore(MAX_PARALLEL_TOOLS)

    async def run(self, calls: Sequence[ToolCall]) -> list[StoredMessage]:
        """Run `calls` and return their stored results in call order."""
        if not calls:
            return []
        results: dict[str, StoredMessage] = {}
        environment = await self.environment()
        for segment in segments(calls, self._tools.spec, environment.resolve):
            async with asyncio.TaskGroup() as group:
                for call in segment:
                    group.create_task(self._run_one(call, results))
        return [results[call.id] for call in calls]

    async def _run_one(self, call: ToolCall, results: dict[str, StoredMessage]) -> None:
        async with self._slots:
            clock = self._services.clock
            spec = self._tools.spec(call.name)
            started = clock.monotonic()
            self._job.stream.emit(call_started(call, spec, self._services.redact))
            result = await self._attempt(call)
            results[call.id] = stored = await self.record(call, result)
            message = stored.message
            assert isinstance(message, ToolMessage)
            finished = call_finished(message, clock.monotonic() - started)
            diff = self._services.redact(result.diff) if result.diff else None
            self._job.stream.emit(replace(finished, diff=diff, failure=result.failure))

    async def _attempt(self, call: ToolCall) -> ToolResult:
        try:
            return await self._tools.run(call, await self._context(call))
        except HermesError as error:
            text = f"{error.message} {error.hint}".strip()
        except Exception as error:  # the boundary of a tool: a bug becomes its result
            log.exception("tool %s failed unexpectedly", call.name)
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            text = f"{call.name} failed unexpectedly: {type(error).__name__}: {error}"
        return ToolResult(content=text, outcome=ToolOutcome.ERROR)

    async def _context(self, call: ToolCall) -> ToolContext:
        job, services, session_id = self._job, self._services, self._scope.session.id

        async def recall(name: str) -> Any:
            return await services.ledger.recall(session_id, name)

        async def remember(name: str, value: Any) -> None:
            await services.ledger.remember(session_id, name, value)

        def progress(text: str) -> None:
            job.stream.emit(ToolProgress(call_id=call.id, text=services.redact(text)))

        return ToolContext(
            agent_id=job.profile.id,
            session_id=session_id,
            turn_id=job.turn.id,
            call_id=call.id,
            owner=job.turn.owner,
            environment=await self.environment(),
            clock=services.clock,
            progress=progress,
            recall=recall,
            remember=remember,
            capabilities=self._scope.capabilities,
            tools=self._scope.callable or self._tools,
            max_result_chars=_result_cap(self._scope.model.info.context_window),
        )

    async def environment(self) -> Environment:
        session = self._scope.session
        pool, agent_id = self._services.environments, self._job.profile.id
        return await pool.get(agent_id, session.workspace, session.cwd)

    async def record(self, call: ToolCall, result: ToolResult) -> StoredMessage:
        message = ToolMessage(
            call_id=call.id,
            name=call.name,
            content=_redacted(result.content, self._services),
            outcome=result.outcome,
        )
        ledger, now = self._services.ledger, self._services.clock.now()
        return await durable(ledger.record_result(self._job.turn.id, message, now))


def _result_cap(window: int | None) -> int:
    """Return how many characters one result may have: 15 % of the window, at four a token."""
    if window is None:
        return MAX_RESULT_CHARS
    return min(MAX_RESULT_CHARS, max(MIN_RESULT_CHARS, int(window * RESULT_SHARE * 4)))


def _redacted(content: Content, services: AgentServices) -> Content:
    if isinstance(content, str):
        return services.redact(content)
    return tuple(
        TextPart(services.redact(part.text)) if isinstance(part, TextPart) else part
        for part in content
    )


def call_started(
    call: ToolCall, spec: ToolSpec | None, redact: Callable[[str], str]
) -> ToolStarted:
    arguments = parse_object(call.arguments) or {}
    value = _label(arguments, spec) if spec else str(next(iter(arguments.values()), ""))
    return ToolStarted(
        call_id=call.id,
        name=call.name,
        arguments=arguments,
        emoji=spec.emoji if spec else "❔",
        verb=spec.verb if spec else "",
        label=redact(one_line(value, LABEL_CHARS)),
    )


def _label(arguments: dict[str, Any], spec: ToolSpec) -> str:
    """Return what a call is about: its label, the files that it changes, or what comes first."""
    value = arguments.get(spec.label_field)
    if not value and spec.intent is not None:
        value = list(spec.intent(arguments).writes)
    value = value or next((each for each in arguments.values() if each), "")
    if not isinstance(value, list):
        return str(value)
    first = value[0]
    if isinstance(first, dict):
        first = first.get(spec.label_field) or next(iter(first.values()), "")
    return f"{first} and {len(value) - 1} more" if len(value) > 1 else str(first)


def call_finished(message: ToolMessage, seconds: float) -> ToolFinished:
    output = content_text(message.content)
    return ToolFinished(
        call_id=message.call_id,
        name=message.name,
        outcome=message.outcome,
        seconds=seconds,
        preview=output[:PREVIEW_CHARS],
        output=output,
    )


CUT_OFF = ToolResult(
    outcome=ToolOutcome.UNKNOWN,
    content=(
        "This call was cut off before its result was known. It may or may not have had its "
        "effect. Check before you repeat it."
    ),
)
NOT_STARTED = ToolResult(
    outcome=ToolOutcome.SKIPPED,
    content="This call was not carried out: the turn was interrupted first.",
)


def never_ended(call: ToolCall, result: ToolResult = CUT_OFF) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=result.content, outcome=result.outcome
    )


class OpenCalls(Struct, frozen=True, kw_only=True):
    """The calls of the last reply that lack a result."""

    repeatable: tuple[ToolCall, ...] = ()
    cut_off: tuple[ToolCall, ...] = ()
    turn_id: str | None = None
    """The turn that asked for them."""

    def __bool__(self) -> bool:
        return bool(self.repeatable or self.cut_off)


def open_calls(
    history: Sequence[StoredMessage],
    started: frozenset[str],
    spec: Callable[[str], ToolSpec | None],
) -> OpenCalls:
    """Find calls without a result in the last reply of `history`."""
    answered: set[str] = set()
    for stored in reversed(history):
        if isinstance(stored.message, ToolMessage):
            answered.add(stored.message.call_id)
        elif isinstance(stored.message, AssistantMessage):
            missing = [call for call in stored.message.tool_calls if call.id not in answered]
            cut_off = [
                call for call in missing if call.id in started and not _repeatable(spec, call)
            ]
            return OpenCalls(
                repeatable=tuple(call for call in missing if call not in cut_off),
                cut_off=tuple(cut_off),
                turn_id=stored.turn_id,
            )
    return OpenCalls()


async def close_calls(ledger: Ledger, turn: Turn, now: float) -> None:
    """Give every open call of a turn that ends a result: no later turn may run it."""
    started = await ledger.started_calls(turn.id)
    calls = open_calls(await ledger.history(turn.session_id), started, lambda _: None)
    for group, result in ((calls.cut_off, CUT_OFF), (calls.repeatable, NOT_STARTED)):
        for call in group:
            try:
                await durable(ledger.record_result(turn.id, never_ended(call, result), now))
            except (Conflict, NotFound):
                log.debug("call %s has its own result, or is another turn's", call.id)


def _repeatable(spec: Callable[[str], ToolSpec | None], call: ToolCall) -> bool:
    known = spec(call.name)
    return known is not None and known.replay_safe
