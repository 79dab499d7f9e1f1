"""What hooks are told about sessions, turns and commands."""

from typing import Any

from hermes.control.commands.parse import Invocation
from hermes.control.hooks import AGENT_END, AGENT_START, AGENT_STEP, HookBus, shortened
from hermes.domain.events import MessageCompleted, TurnFinished
from hermes.domain.inbound import InboundMessage
from hermes.domain.turn_stream import TurnStream

__all__ = ["command_context", "post_turn", "session_context", "wants_turns"]


def session_context(message: InboundMessage, session_id: str, key: str) -> dict[str, Any]:
    """Return what hooks of `session:*` are told."""
    return {
        "platform": message.platform,
        "user_id": message.sender.id,
        "session_id": session_id,
        "session_key": key,
    }


def command_context(message: InboundMessage, invocation: Invocation) -> dict[str, Any]:
    """Return what hooks of `command:*` are told."""
    return {
        "platform": message.platform,
        "user_id": message.sender.id,
        "command": invocation.name,
        "raw_command": message.text.split(maxsplit=1)[0] if message.text else "",
        "args": list(invocation.words),
        "raw_args": invocation.rest,
    }


def wants_turns(hooks: HookBus) -> bool:
    """Tell whether anybody wants to know of turns."""
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
            hooks.post(AGENT_STEP, _step(message, stream.session_id, iteration, event))
        elif isinstance(event, TurnFinished) and not _goes_on(event):
            hooks.post(AGENT_END, {**start, "response": shortened(event.text)})


def _step(
    message: InboundMessage, session_id: str, iteration: int, event: MessageCompleted
) -> dict[str, Any]:
    calls = event.message.tool_calls
    return {
        "platform": message.platform,
        "user_id": message.sender.id,
        "session_id": session_id,
        "iteration": iteration,
        "tool_names": [call.name for call in calls],
        "tools": [{"name": call.name, "arguments": shortened(call.arguments)} for call in calls],
    }


def _goes_on(finished: TurnFinished) -> bool:
    return finished.error is not None and finished.error.code == "shutdown"
