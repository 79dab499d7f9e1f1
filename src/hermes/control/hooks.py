"""Hooks: what other people's code does when something happens in the gateway.

Handlers are registered by event name, `command:*` standing for every command.
Most events only inform; a `command:<name>` handler may also decide. A handler
that fails or takes too long is logged and otherwise ignored, save one that chooses
the agent of a message (`select_agent`): then nobody answers. Plain functions
run in a daemon thread, because one that hangs must not hold up the end of the
process; it is not called again until it has come back.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from hermes.control.commands.registry import Invocation
from hermes.control.follow import goes_on_later
from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.errors import NobodyChosen
from hermes.domain.events import MessageCompleted, TurnFinished, TurnStream
from hermes.domain.inbound import InboundMessage
from hermes.domain.settings import Settings

log = logging.getLogger(__name__)

GATEWAY_STARTUP = "gateway:startup"
SESSION_START = "session:start"
SESSION_END = "session:end"
SESSION_RESET = "session:reset"
AGENT_START = "agent:start"
AGENT_STEP = "agent:step"
AGENT_END = "agent:end"
SELECT_AGENT = "select_agent"
COMMAND = "command:"
EVENTS = (
    *(GATEWAY_STARTUP, SESSION_START, SESSION_END, SESSION_RESET),
    *(AGENT_START, AGENT_STEP, AGENT_END),
    SELECT_AGENT,
)
ANY = "*"
HOOK_SECONDS = 30.0
SELECT_SECONDS = 10.0
"""So long a hook may take to choose the agent: somebody waits for it."""
MAX_WAITING = 1000
SHOWN_CHARACTERS = 500

Handler = Callable[[str, dict[str, Any]], Any]
"""`handle(event, context)`, a plain or an async function."""


class HookAction(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    HANDLED = "handled"
    """The handler has done all there was to do."""
    REWRITE = "rewrite"


class HookDecision(Struct, frozen=True, kw_only=True):
    decision: HookAction = HookAction.ALLOW
    message: str = ""
    """Said to the person for `deny` and `handled`."""
    command_name: str = ""
    """For `rewrite`: the command to run instead."""
    raw_args: str = ""


class _Registered:
    def __init__(self, name: str, event: str, handler: Handler) -> None:
        self.name = name
        self.event = event
        self.handler = handler
        self.running: asyncio.Future[Any] | None = None
        """The latest call in a thread."""

    def hears(self, event: str) -> bool:
        if self.event in {event, ANY}:
            return True
        group, _, what = self.event.partition(":")
        return what == ANY and event.startswith(f"{group}:")


class HookBus:
    def __init__(self, *, timeout: float = HOOK_SECONDS) -> None:
        self._timeout = timeout
        self._registered: list[_Registered] = []
        self._posted: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue(MAX_WAITING)
        self.missing: dict[str, str] = {}
        """What would choose agents if it ran -> why it does not: meanwhile nobody is chosen."""

    def on(self, event: str, handler: Handler, *, name: str = "") -> Callable[[], None]:
        """Call `handler` whenever `event` happens; return what undoes that."""
        if not is_event(event):
            raise ValueError(f"there is no event `{event}`")
        name = name or getattr(handler, "__qualname__", type(handler).__name__)
        registered = _Registered(name, event, handler)
        self._registered.append(registered)

        def off() -> None:
            if registered in self._registered:
                self._registered.remove(registered)

        return off

    def hears(self, event: str) -> bool:
        return any(each.hears(event) for each in self._registered)

    @property
    def chooses(self) -> bool:
        """Whether some hook chooses agents."""
        return any(each.event == SELECT_AGENT for each in self._registered)

    async def emit(self, event: str, context: Mapping[str, Any]) -> None:
        """Tell everybody, at once, and wait until all have answered or run out of time."""
        hearing = [each for each in self._registered if each.hears(event)]
        if not hearing:
            return
        async with asyncio.TaskGroup() as group:
            for each in hearing:
                group.create_task(self._call(each, event, context))

    def post(self, event: str, context: Mapping[str, Any]) -> None:
        """Tell everybody soon, without waiting; needs `run`."""
        if not self.hears(event):
            return
        try:
            self._posted.put_nowait((event, context))
        except asyncio.QueueFull:
            log.warning("hooks are too slow: %s is not reported", event)

    async def run(self) -> None:
        while True:
            event, context = await self._posted.get()
            try:
                await self.emit(event, context)
            finally:
                self._posted.task_done()

    async def drained(self) -> None:
        """Return once everything posted so far has been told."""
        await self._posted.join()

    async def decide(self, command: str, context: Mapping[str, Any]) -> HookDecision:
        """Ask about a slash command; the first answer that is not `allow` counts."""
        event = f"{COMMAND}{command}"
        for each in [each for each in self._registered if each.hears(event)]:
            answer = await self._call(each, event, context)
            decision = _decision(answer, each.name)
            if decision.decision is not HookAction.ALLOW:
                return decision
        return HookDecision()

    async def select_agent(self, context: Mapping[str, Any]) -> str | None:
        """Ask which agent a message is for; the first id counts.

        One that fails refuses the message, and so does one that is missing.
        """
        for name, why in self.missing.items():
            raise NobodyChosen(f"{name} may choose the agent and does not run: {why}")
        for each in [each for each in self._registered if each.event == SELECT_AGENT]:
            try:
                async with asyncio.timeout(min(self._timeout, SELECT_SECONDS)):
                    if inspect.iscoroutinefunction(each.handler):
                        answer = await each.handler(SELECT_AGENT, dict(context))
                    else:
                        answer = await _in_thread(each.handler, SELECT_AGENT, dict(context))
                        answer = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # the boundary of a hook: somebody else's code
                log.exception("hook %s failed at %s", each.name, SELECT_AGENT)
                raise NobodyChosen(
                    f"The hook {each.name} that chooses the agent failed; nobody answers.",
                    hint="The log says why.",
                ) from error
            chosen = answer.get("agent") if isinstance(answer, Mapping) else answer
            if chosen:
                return str(chosen)
        return None

    async def _call(self, each: _Registered, event: str, context: Mapping[str, Any]) -> Any:
        if each.running is not None and not each.running.done():
            log.warning("hook %s is still busy and misses %s", each.name, event)
            return None
        try:
            async with asyncio.timeout(self._timeout):
                return await self._answer(each, event, dict(context))
        except TimeoutError:
            log.warning("hook %s took more than %gs for %s", each.name, self._timeout, event)
        except Exception:  # the boundary of a hook: somebody else's code
            log.exception("hook %s failed at %s", each.name, event)
        return None

    async def _answer(self, each: _Registered, event: str, context: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(each.handler):
            return await each.handler(event, context)
        # Shielded: a thread cannot be cancelled, and while it runs the function is busy.
        each.running = _in_thread(each.handler, event, context)
        answer = await asyncio.shield(each.running)
        return await answer if inspect.isawaitable(answer) else answer


def is_event(name: str) -> bool:
    if name in EVENTS or name == ANY:
        return True
    group, _, what = name.partition(":")
    if group == "command":
        return bool(what)
    return what == ANY and any(event.startswith(f"{group}:") for event in EVENTS)


def shortened(text: str) -> str:
    return text[:SHOWN_CHARACTERS]


def _decision(answer: Any, name: str) -> HookDecision:
    if not isinstance(answer, Mapping) or "decision" not in answer:
        return HookDecision()
    try:
        return msgspec.convert(dict(answer), HookDecision, strict=False)
    except msgspec.ValidationError as error:
        log.warning("hook %s answered something that is no decision: %s", name, error)
        return HookDecision()


def _in_thread(handler: Handler, event: str, context: dict[str, Any]) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    # An answer that came too late was reported already; asyncio wants it to be seen.
    outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
    inherited = contextvars.copy_context()

    def settle(answer: Any, error: BaseException | None) -> None:
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(answer)

    def call() -> None:
        answer, failure = None, None
        try:
            answer = inherited.run(handler, event, context)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the hook
            failure = error
        try:
            loop.call_soon_threadsafe(settle, answer, failure)
        except RuntimeError:
            log.debug("hook answered after the gateway had ended")

    threading.Thread(target=call, name="hook", daemon=True).start()
    return outcome


def session_context(message: InboundMessage, session_id: str, key: str) -> dict[str, Any]:
    return {
        "platform": message.platform,
        "user_id": message.sender.id,
        "session_id": session_id,
        "session_key": key,
    }


def command_context(message: InboundMessage, invocation: Invocation) -> dict[str, Any]:
    return {
        "platform": message.platform,
        "user_id": message.sender.id,
        "command": invocation.name,
        "raw_command": message.text.split(maxsplit=1)[0] if message.text else "",
        "args": list(invocation.words),
        "raw_args": invocation.rest,
    }


def wants_turns(hooks: HookBus) -> bool:
    return any(hooks.hears(event) for event in (AGENT_START, AGENT_STEP, AGENT_END))


async def post_turn(hooks: HookBus, stream: TurnStream, message: InboundMessage) -> None:
    """Tell the hooks of a turn's start, of each round of tools and of its end."""
    start = {
        "platform": message.platform,
        "user_id": message.sender.id,
        "chat_id": message.chat.id,
        "thread_id": message.thread_id,
        "chat_type": message.chat.kind.value,
        "session_id": stream.session_id,
        "message": shortened(message.text),
    }
    hooks.post(AGENT_START, start)
    iteration = 0
    async for event in stream.follow():
        if isinstance(event, MessageCompleted) and event.message.tool_calls:
            iteration += 1
            calls = event.message.tool_calls
            tools = [{"name": each.name, "arguments": shortened(each.arguments)} for each in calls]
            step = {
                "platform": message.platform,
                "user_id": message.sender.id,
                "session_id": stream.session_id,
                "iteration": iteration,
                "tool_names": [each.name for each in calls],
                "tools": tools,
            }
            hooks.post(AGENT_STEP, step)
        elif isinstance(event, TurnFinished) and not goes_on_later(event):
            hooks.post(AGENT_END, {**start, "response": shortened(event.text)})


GROUP = "hermes.hooks"


def missing_plugins(config: Settings) -> dict[str, str]:
    """Return the enabled packages that are not installed, and what to do about each."""
    wanted = tuple(config.plugins.enabled or ())
    found = entry_points(GROUP) if wanted else {}
    advice = "install it, or take it out of plugins.enabled"
    return {
        f"The plugin `{name}`": f"no installed package provides it; {advice}."
        for name in wanted
        if name not in found
    }


def load_hook_plugins(config: Settings, bus: HookBus) -> list[str]:
    """Register the hooks of enabled packages; return what is wrong with the others.

    One that is not there may be the one that chooses agents; where there are several, nobody is
    chosen without it.
    """
    problems = missing_plugins(config)
    found = entry_points(GROUP) if config.plugins.enabled else {}
    for name in (each for each in config.plugins.enabled or () if each in found):
        try:
            load_entry_point(found[name])(bus)
        except Exception as error:  # the boundary of a plugin: somebody else's code
            log.exception("plugin %s could not be loaded", name)
            problems[f"The plugin `{name}`"] = f"it could not be loaded: {error}."
    if config.agents:
        bus.missing |= problems
    return [f"{plugin} does not run: {why}" for plugin, why in problems.items()]
