"""ScriptedModel: a model that says what the test wrote down.

Each call takes the next step of the script: a reply in pieces, tool calls, a
failure, or a function of the request that returns one of these. Gates hold a
call at a known point, so that tests prove interleaving without sleeping.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.ids import new_call_id
from hermes.domain.messages import AssistantMessage, FinishReason, Reasoning, ToolCall
from hermes.domain.ports.model import (
    CallListener,
    ModelFailure,
    ModelInfo,
    ModelReply,
    ModelRequest,
)
from hermes.domain.usage import Usage


class Reply(Struct, frozen=True, kw_only=True):
    pieces: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    notices: tuple[tuple[str, str], ...] = ()
    finish: FinishReason | None = None
    """None: `tool_calls` if there are calls, else `stop`."""
    usage: Usage = Usage(input_tokens=10, output_tokens=5)
    cost_usd: float | None = None
    logprobs: tuple[dict[str, Any], ...] = ()
    before: asyncio.Event | None = None
    """Nothing is said until this is set."""
    before_end: asyncio.Event | None = None
    """Everything has been said, but the call does not return until this is set."""


Step = Reply | ModelFailure | Callable[[ModelRequest], Any]


def say(*pieces: str, usage: Usage | None = None) -> Reply:
    """Answer with text, streamed in these pieces."""
    return Reply(pieces=pieces) if usage is None else Reply(pieces=pieces, usage=usage)


def thinks(reasoning: str, *pieces: str) -> Reply:
    return Reply(reasoning=(reasoning,), pieces=pieces)


def call(name: str, /, call_id: str = "", **arguments: Any) -> ToolCall:
    encoded = msgspec.json.encode(arguments).decode()
    return ToolCall(id=call_id or new_call_id(), name=name, arguments=encoded)


def calls(*tool_calls: ToolCall, text: str = "") -> Reply:
    return Reply(pieces=(text,) if text else (), tool_calls=tool_calls)


class ScriptedModel:
    """Implements the `Model` port from a script and records every request."""

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        default: Step | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self._script = list(script)
        self._default = default
        self._info = info or ModelInfo(
            provider="scripted", model="scripted-1", context_window=200_000, vision=True
        )
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.requests: list[ModelRequest] = []
        self.cancelled = 0
        """Calls that were cancelled before they returned."""
        self.active = 0
        """Calls that have begun and not ended."""
        self.most_active = 0

    @property
    def info(self) -> ModelInfo:
        return self._info

    def add(self, *steps: Step) -> None:
        self._script.extend(steps)

    async def called(self, times: int) -> None:
        """Wait until this many calls have begun."""
        if len(self.requests) >= times:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((times, waiter))
        await waiter

    async def complete(
        self, request: ModelRequest, listener: CallListener | None = None
    ) -> ModelReply:
        self._begin(request)
        try:
            return await self._play(self._next(request), listener)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    def _begin(self, request: ModelRequest) -> None:
        self.requests.append(request)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        for times, waiter in self._waiters:
            if len(self.requests) >= times and not waiter.done():
                waiter.set_result(None)

    def _next(self, request: ModelRequest) -> Reply:
        step: Any = self._script.pop(0) if self._script else self._default
        while callable(step) and not isinstance(step, ModelFailure):
            step = step(request)
        if isinstance(step, ModelFailure):
            raise step
        if isinstance(step, str):
            return say(step)
        if isinstance(step, Reply):
            return step
        raise RuntimeError(f"the script has no answer for call {len(self.requests)}")

    async def _play(self, reply: Reply, listener: CallListener | None) -> ModelReply:
        if reply.before is not None:
            await reply.before.wait()
        if listener is not None:
            for code, text in reply.notices:
                listener.on_notice(code, text)
            for piece in reply.reasoning:
                listener.on_reasoning(piece)
            for piece in reply.pieces:
                listener.on_text(piece)
            for number, made in enumerate(reply.tool_calls):
                half = len(made.arguments) // 2
                for part in filter(None, (made.arguments[:half], made.arguments[half:])):
                    listener.on_call(number, made.name, part)
        await asyncio.sleep(0)
        if reply.before_end is not None:
            await reply.before_end.wait()
        return self._reply(reply)

    def _reply(self, reply: Reply) -> ModelReply:
        usual = FinishReason.TOOL_CALLS if reply.tool_calls else FinishReason.STOP
        thought = "".join(reply.reasoning)
        message = AssistantMessage(
            text="".join(reply.pieces),
            tool_calls=reply.tool_calls,
            reasoning=Reasoning(text=thought) if thought else None,
            finish=reply.finish or usual,
        )
        return ModelReply(
            message=message,
            usage=reply.usage,
            provider=self._info.provider,
            model=self._info.model,
            cost_usd=reply.cost_usd,
            logprobs=msgspec.json.encode(reply.logprobs).decode() if reply.logprobs else "",
        )
