"""Policy around tools: each wrapper is a `ToolRunner` around another one.

    Guarded(Approved(Budgeted(Journaled(registry)), gate))

Per turn, `ClientSide` adds the tools of the program that asked and `Filtered`
leaves only those a model can handle. `Journaled` is innermost: the start of a
call that may not be repeated is on record after every approval and before the
first side effect.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hermes.agent.scope import durable
from hermes.agent.tools.define import HEAD_CHARS, parse_object, spill
from hermes.domain.errors import ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.ports.approval import ApprovalGate
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import TurnStore
from hermes.domain.settings.agent import LoopGuardrails, LoopLimits
from hermes.domain.tools import Parallel, ToolContext, ToolResult, ToolRunner, ToolSpec
from hermes.domain.turn import ClientTool


class ToolWrapper:
    """Passes everything on to the runner inside it."""

    def __init__(self, inner: ToolRunner) -> None:
        self._inner = inner

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._inner.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return await self._inner.run(call, context)


class Recorded(ToolWrapper):
    """Has the project recorded before the first call of a turn that may change files."""

    def __init__(
        self, inner: ToolRunner, record: Callable[[ToolContext, str], Awaitable[None]]
    ) -> None:
        super().__init__(inner)
        self._record = record
        self._done = False

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        spec, arguments = self._inner.spec(call.name), parse_object(call.arguments)
        if not self._done and spec is not None and spec.intent is not None:
            intent = spec.intent(arguments or {})
            if intent.command or intent.writes or intent.code:
                self._done = True
                await self._record(context, call.name)
        return await self._inner.run(call, context)


class Approved(ToolWrapper):
    """Runs a call only when the gate has admitted it."""

    def __init__(self, inner: ToolRunner, gate: ApprovalGate) -> None:
        super().__init__(inner)
        self._gate = gate

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        spec = self._inner.spec(call.name)
        arguments = parse_object(call.arguments)
        if spec is None or arguments is None:
            # Unknown tools and unreadable arguments never run: the registry says why.
            return await self._inner.run(call, context)
        refused = await self._refused(call, spec, arguments, context)
        if refused:
            return ToolResult(content=refused, outcome=ToolOutcome.REFUSED)
        result = await self._inner.run(call, context)
        if result.offer is None:
            return result
        changed = {**arguments, **result.offer.arguments}
        again = ToolCall(
            id=f"{call.id}:again", name=call.name, arguments=msgspec.json.encode(changed).decode()
        )
        context = replace(context, again=result.offer)
        refused = await self._refused(again, spec, changed, context)
        if refused:
            return replace(result, content=f"{result.content}\n[{refused}]")
        return await self._inner.run(replace(again, id=call.id), context)

    async def _refused(
        self, call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> str:
        """Return why the gate does not let the call through; empty if it does."""
        try:
            await self._gate.admit(call, spec, arguments, context)
        except ToolRefused as refusal:
            return f"{refusal.message} {refusal.hint}".strip()
        return ""


_TURNS_REMEMBERED = 1024


class Budgeted(ToolWrapper):
    """Spills results once those of a turn exceed `max_chars_per_turn`, or twice the cap of one."""

    def __init__(self, inner: ToolRunner, max_chars_per_turn: int = 200_000) -> None:
        super().__init__(inner)
        self._limit = max_chars_per_turn
        self._used: OrderedDict[str, int] = OrderedDict()

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        result = await self._inner.run(call, context)
        if context.within:
            return result  # the model does not read it
        limit = min(self._limit, 2 * context.max_result_chars)
        if self._used.get(context.turn_id, 0) + len(result.content) > limit:
            result = await spill(result, 3 * HEAD_CHARS, context)
        if isinstance(result.content, str):
            self._used[context.turn_id] = self._used.pop(context.turn_id, 0) + len(result.content)
        if len(self._used) > _TURNS_REMEMBERED:
            self._used.popitem(last=False)
        return result


class ClientSide(ToolWrapper):
    """Adds the tools of the client to ours."""

    def __init__(self, inner: ToolRunner, tools: Sequence[ClientTool]) -> None:
        super().__init__(inner)
        self._own = {tool.name: _spec(tool) for tool in tools}
        ours = (spec for spec in inner.specs() if spec.name not in self._own)
        self._specs = tuple(sorted((*ours, *self._own.values()), key=lambda spec: spec.name))

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        return self._own.get(name) or self._inner.spec(name)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name in self._own:
            text = f"{call.name} is carried out by the client, not here."
            return ToolResult(content=text, outcome=ToolOutcome.ERROR)
        return await self._inner.run(call, context)


def _spec(tool: ClientTool) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters or {"type": "object", "properties": {}},
        strict=tool.strict,
        toolset="client",
        client=True,
    )


class Filtered(ToolWrapper):
    """Shows and runs only the tools that are named, or whose toolset is.

    The name of a tool stands for that tool alone, also if its toolset is called the same.
    """

    def __init__(self, inner: ToolRunner, names: Iterable[str]) -> None:
        super().__init__(inner)
        named, specs = frozenset(names), inner.specs()
        sets = named - {spec.name for spec in specs}
        self._specs = tuple(spec for spec in specs if spec.name in named or spec.toolset in sets)
        self._allowed = frozenset(spec.name for spec in self._specs)

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        return self._inner.spec(name) if name in self._allowed else None

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.name not in self._allowed and self._inner.spec(call.name) is not None:
            return ToolResult(
                content=f"The tool `{call.name}` is not allowed here.",
                outcome=ToolOutcome.REFUSED,
            )
        return await self._inner.run(call, context)


_GUARDRAILS = LoopGuardrails()


class Guarded(ToolWrapper):
    """Adds advice to calls that lead nowhere within one turn; blocks them if that is set."""

    def __init__(self, inner: ToolRunner, limits: LoopGuardrails = _GUARDRAILS) -> None:
        super().__init__(inner)
        self._limits = limits
        self._call_failures: Counter[tuple[str, str]] = Counter()
        self._tool_failures: Counter[str] = Counter()
        self._same_results: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], int] = {}
        """Call -> what it gave the last time."""

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if context.within:
            return await self._inner.run(call, context)  # a script sees for itself
        stop, warn = self._limits.hard_stop_after, self._limits.warn_after
        if self._limits.hard_stop_enabled and (why := self._trouble(call, stop)):
            text = f"Not carried out. {why} It is blocked for the rest of this turn."
            return ToolResult(content=text, outcome=ToolOutcome.REFUSED)
        result = await self._inner.run(call, context)
        self._count(call, result)
        why = self._trouble(call, warn) if self._limits.warnings_enabled else ""
        if not why or not isinstance(result.content, str):
            return result
        return replace(result, content=f"{result.content}\n\n{why}")

    def _count(self, call: ToolCall, result: ToolResult) -> None:
        key, spec = (call.name, call.arguments), self.spec(call.name)
        if result.failure and result.outcome is not ToolOutcome.ERROR:
            self._call_failures[key] += 1  # a command that ended with an error
            return
        if result.outcome is ToolOutcome.ERROR:
            self._call_failures[key] += 1
            self._tool_failures[call.name] += 1
            return
        self._tool_failures[call.name] = 0
        reads = spec is not None and spec.parallel is Parallel.ALWAYS
        if reads and isinstance(result.content, str):
            given, before = hash(result.content), self._last.get(key)
            self._last[key] = given
            self._same_results[key] = self._same_results[key] + 1 if given == before else 0

    def _trouble(self, call: ToolCall, limits: LoopLimits) -> str:
        key = (call.name, call.arguments)
        if (failed := self._call_failures[key]) >= limits.exact_failure:
            return (
                f"This exact call has now failed {failed} times. Do not repeat it unchanged: "
                "find out why it fails, or take another way."
            )
        if (failed := self._tool_failures[call.name]) >= limits.same_tool_failure:
            return f"{call.name} has failed {failed} times in a row. Reconsider the approach."
        if (same := self._same_results[key]) >= limits.idempotent_no_progress:
            return f"This call has given the same result {same + 1} times. Use what you have."
        return ""


class Journaled(ToolWrapper):
    """Records the start of calls that must not run twice, and bounds their time."""

    def __init__(self, inner: ToolRunner, turns: TurnStore, clock: Clock, seconds: float) -> None:
        super().__init__(inner)
        self._turns = turns
        self._clock = clock
        self._seconds = seconds

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        spec = self._inner.spec(call.name)
        safe = spec is None or spec.replay_safe or context.again is not None or context.within
        if not safe:
            await durable(self._turns.start_call(context.turn_id, call.id, self._clock.now()))
        limit = asyncio.timeout(None if spec is not None and spec.own_time else self._seconds)
        try:
            async with limit:
                return await self._inner.run(call, context)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"{call.name} did not finish within {self._seconds:.0f} seconds and was stopped."
            return ToolResult(outcome=ToolOutcome.ERROR, content=text)
