"""A turn, or a helper call, as the body of a chat completion."""

from typing import Any

from msgspec import UNSET

from hermes.domain.events import MessageCompleted, TextDelta, TurnFinished
from hermes.domain.messages import FinishReason
from hermes.domain.ports.model import ModelReply
from hermes.domain.turn import TurnState
from hermes.entry.http.chat.wire import (
    AnswerCall,
    AnswerChoice,
    AnswerFunction,
    AnswerMessage,
    ChatCompletion,
)
from hermes.streaming.chat_outcome import (
    ChatCollector,
    ChatResult,
    chat_usage,
    failure_text,
)
from hermes.streaming.sse_chat import ChatStream

__all__ = ["completion", "failure", "helper_result", "streamed"]


def completion(
    completion_id: str, created: float, model: str, result: ChatResult
) -> ChatCompletion:
    """Return the answer that a turn gave."""
    calls = [
        AnswerCall(id=call.id, function=AnswerFunction(name=call.name, arguments=call.arguments))
        for call in result.finished.handed
    ]
    message = AnswerMessage(
        content=None if calls and not result.text else result.text, tool_calls=calls or UNSET
    )
    return ChatCompletion(
        id=completion_id,
        created=int(created),
        model=model,
        choices=[AnswerChoice(message=message, finish_reason=result.finish_reason)],
        usage=chat_usage(result.finished.usage),
        hermes=result.incomplete or UNSET,
    )


def failure(result: ChatResult) -> dict[str, Any]:
    """Return the body of the 502 for a turn that ended without any text."""
    return {
        "error": {
            "message": failure_text(result.finished),
            "type": "server_error",
            "code": "agent_incomplete",
            "param": None,
            "hermes": result.incomplete,
        }
    }


def helper_result(reply: ModelReply) -> ChatResult:
    """Return the answer of a plain model call in the form of a turn's."""
    collector = ChatCollector()
    collector.feed(MessageCompleted(message_id=0, message=reply.message))
    result = collector.feed(_finished(reply))
    assert result is not None
    return result


def streamed(stream: ChatStream, reply: ModelReply) -> bytes:
    """Return the answer of a plain model call as a whole stream."""
    said = stream.feed(TextDelta(reply.message.text))
    completed = stream.feed(MessageCompleted(message_id=0, message=reply.message))
    return stream.opening() + said + completed + stream.feed(_finished(reply))


def _finished(reply: ModelReply) -> TurnFinished:
    blocked = reply.message.finish is FinishReason.INTERRUPTED
    return TurnFinished(
        outcome=TurnState.INTERRUPTED if blocked else TurnState.DONE,
        text=reply.message.text,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        model_calls=1,
    )
