"""A turn as a chat completion: the chunks of a streamed one, or one answer.

    role -> content ... (named events between) -> calls for the client
         -> finish reason and usage -> [DONE]

Tools, approvals and notices are events with names of their own and never part
of the content, where clients would keep them as something the model has said.
Client libraries read the data of every event as a chunk, whatever its name:
named events are therefore chunks, too, with an empty delta and further fields.

A turn that is done ends with `stop`, `length`, `content_filter` or
`tool_calls`. One that failed ends with `error` and says why, unless what it lacks has a
name of its own there (`FELL_SHORT`); one that was
interrupted ends with `stop`, since somebody wanted it to. Whatever is not a
complete answer carries a `hermes` block that says so.

Only the text of a chunk is encoded for each piece; what is the same in all of
them is encoded once.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDelta,
    Notice,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolOutcome
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView
from hermes.streaming.wire.frames import DONE, Fields, aside_fields, frame, told_logprobs

_encode = msgspec.json.Encoder().encode
_AFTER = b'},"logprobs":null,"finish_reason":null}]}\n\n'
Finish = Literal["stop", "length", "tool_calls", "content_filter", "error"]
_FINISH: dict[FinishReason, Finish] = {
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content_filter",
}
ErrorCode = Literal[
    "output_truncated", "max_tool_calls", "content_filter", "agent_error", "interrupted"
]
FELL_SHORT: dict[str, tuple[Finish, ErrorCode]] = {
    "max_tool_calls": ("length", "max_tool_calls"),
    "content_filter": ("content_filter", "content_filter"),
}
"""Errors after which an answer is short but no failure: what clients know them as."""


class PromptDetails(Struct, frozen=True, kw_only=True):
    cached_tokens: int = 0


class CompletionDetails(Struct, frozen=True, kw_only=True):
    """What the answer was made of."""

    reasoning_tokens: int = 0


class ChatUsage(Struct, frozen=True, kw_only=True):
    """Tokens of all model calls of the turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Incomplete(Struct, frozen=True, kw_only=True):
    """Why an answer is not a complete one."""

    completed: bool = False
    partial: bool
    """There is text, but not all of it."""
    failed: bool
    error: str | None = None
    error_code: ErrorCode
    cause: str | None = None
    """The code of the error behind it."""


class ChatResult(Struct, frozen=True, kw_only=True):
    finished: TurnFinished
    text: str
    reasoning: str = ""
    finish_reason: Finish
    incomplete: Incomplete | None


def chat_usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cache_read_tokens),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning_tokens),
    )


def failure_fields(finished: TurnFinished) -> Fields:
    """Return the error of a turn that gave no answer, in the form that OpenAI clients know."""
    known = {"type": "server_error", "code": "agent_incomplete", "param": None}
    return {"message": _failure_text(finished), **known}


def _failure_text(finished: TurnFinished) -> str:
    error = finished.error
    if error is not None:
        return f"{error.message} {error.hint}".strip()
    if finished.outcome is TurnState.INTERRUPTED:
        return "The turn was interrupted."
    return "The turn did not end with an answer."


def _finish_reason(finished: TurnFinished, last: AssistantMessage | None) -> Finish:
    if finished.handed:
        return "tool_calls"
    if finished.outcome is TurnState.FAILED or finished.error is not None:
        return _short(finished)[0]
    if finished.outcome is TurnState.DONE and last is not None:
        return _FINISH.get(last.finish, "stop")
    return "stop"


def _incomplete(finished: TurnFinished, reason: Finish, *, text: bool) -> Incomplete | None:
    if finished.outcome is TurnState.DONE and reason != "error":
        if reason == "content_filter":
            said = "The model's provider withheld the rest of the answer."
            return Incomplete(partial=text, failed=False, error=said, error_code=reason)
        if reason != "length":
            return None
        return Incomplete(partial=True, failed=False, error_code="output_truncated")
    return Incomplete(
        partial=text,
        failed=reason == "error",
        error=_failure_text(finished),
        error_code=_short(finished)[1] if finished.error else "interrupted",
        cause=finished.error.code if finished.error else None,
    )


def _short(finished: TurnFinished) -> tuple[Finish, ErrorCode]:
    code = finished.error.code if finished.error else ""
    return FELL_SHORT.get(code, ("error", "agent_error"))


class _Joined:
    """The messages of a turn as one text, an empty line between them."""

    def __init__(self) -> None:
        self._gap = False
        self._end = ""

    def say(self, said: Said) -> str:
        text = said.text
        if self._gap or said.again:
            self._gap = False
            text = self._break() + text
        self._end = text if len(text) > 1 else self._end[-1:] + text
        return text

    def complete(self, message: AssistantMessage) -> None:
        """End a message; one that was cut off by its length goes on without a gap."""
        self._gap = bool(message.tool_calls) or message.finish is not FinishReason.LENGTH

    def _break(self) -> str:
        if not self._end or self._end.endswith("\n\n"):
            return ""
        return "\n" if self._end.endswith("\n") else "\n\n"


def chat_result(events: Iterable[TurnEvent]) -> ChatResult:
    view, text, said, thought = TurnView(), _Joined(), list[str](), list[str]()
    for piece in chain.from_iterable(map(view.feed, events)):
        match piece:
            case Said():
                said.append(text.say(piece))
            case Completed(message):
                text.complete(message)
                if message.reasoning is not None and message.reasoning.text.strip():
                    thought.append(message.reasoning.text.strip())
            case TurnFinished():
                result = _result(piece, view.last, "".join(said))
                return replace(result, reasoning="\n\n".join(thought))
            case _:
                pass
    raise AssertionError("the last event of a turn is always its end")


def answers_seen(events: Iterable[TurnEvent]) -> frozenset[str]:
    """Return the texts that a client may have of a turn: the answer, or all that was streamed."""
    view, text, said = TurnView(), _Joined(), list[str]()
    final = ""
    for piece in chain.from_iterable(map(view.feed, events)):
        match piece:
            case Said():
                said.append(text.say(piece))
            case Completed(message):
                text.complete(message)
            case TurnFinished(text=final):
                pass
            case _:
                pass
    return frozenset(filter(None, ("".join(said).strip(), final.strip())))


def _result(finished: TurnFinished, last: AssistantMessage | None, said: str) -> ChatResult:
    reason = _finish_reason(finished, last)
    text = finished.text
    if finished.handed and last is not None:
        text = text or last.text
    if finished.outcome is not TurnState.DONE:
        text = text or said
    return ChatResult(
        finished=finished,
        text=text,
        finish_reason=reason,
        incomplete=_incomplete(finished, reason, text=bool(text.strip())),
    )


class ChatStream:
    def __init__(
        self,
        completion_id: str,
        created: float,
        model: str,
        *,
        include_usage: bool = False,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._head: Fields = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": int(created),
            "model": model,
        }
        before = b"data: %b" % _encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._content = before + b'{"content":'
        self._reasoning = before + b'{"reasoning_content":'
        self._before = before
        self._run_id = completion_id
        self._redact = redact
        self._include_usage = include_usage
        self._view = TurnView()
        self._text = _Joined()
        self._said = False
        self._calls: dict[str, str] = {}
        """Calls for the client of which arguments were told, and what of them."""

    def opening(self) -> bytes:
        """Return the first chunk: the client sees at once that it was heard."""
        return self._delta({"role": "assistant", "content": ""})

    def feed(self, event: TurnEvent) -> bytes:
        """Return what an event gives on the wire: any number of events, or nothing."""
        return b"".join([self._chunk(piece) for piece in self._view.feed(event)])

    def _chunk(self, piece: Piece) -> bytes:
        if isinstance(piece, Said):  # nearly every piece is, and `match` is slow in comparison
            self._said = True
            return self._content + _encode(self._text.say(piece)) + _AFTER
        match piece:
            case Thought(text=text):
                return self._reasoning + _encode(text) + _AFTER
            case Completed(message):
                self._text.complete(message)
                return b""
            case CallDelta():
                return self._call(piece.call_id, piece.name, piece.arguments)
            case TurnFinished():
                return self._finish(piece)
            case _:
                return self._aside(piece)

    def _call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Tell a piece of the arguments of a call; the first one with its id and name."""
        new, told = call_id not in self._calls, self._calls.get(call_id, "")
        self._calls[call_id] = told + arguments
        number = list(self._calls).index(call_id)
        head = {"id": call_id, "type": "function"} if new else {}
        function = {"name": name, "arguments": arguments} if new else {"arguments": arguments}
        return self._delta({"tool_calls": [{"index": number, **head, "function": function}]})

    def _aside(self, piece: Piece) -> bytes:
        match piece:
            case ToolStarted():
                return self._tool(piece, piece.call_id, piece.name, "running")
            case ToolDone(started=started, finished=finished):
                status = "completed" if finished.outcome is ToolOutcome.OK else "failed"
                return self._tool(started, finished.call_id, finished.name, status)
            case ApprovalAsked() | ApprovalAnswered():
                name, about = aside_fields(piece, self._redact)
                about["run_id"] = self._run_id
                if isinstance(piece, ApprovalAsked):
                    about["session_id"] = piece.request.session_id
                    about["answer_url"] = f"/v1/approvals/{piece.request.id}"
                return self._named(f"hermes.{name}", {"approval": about})
            case Notice():
                notice = {"code": piece.code, "level": piece.level.value, "text": piece.text}
                return self._named("hermes.notice", notice)
            case _:
                return b""

    def _tool(self, started: ToolStarted | None, call_id: str, name: str, status: str) -> bytes:
        progress = {
            "tool": name,
            "emoji": started.emoji if started else "",
            "label": started.label if started else "",
            "toolCallId": call_id,
            "status": status,
        }
        return self._named("hermes.tool.progress", progress)

    def _finish(self, finished: TurnFinished) -> bytes:
        out = b""
        for call in finished.handed:
            known = self._calls.get(call.id, "")
            rest = call.arguments[len(known) :] if call.arguments.startswith(known) else ""
            if rest or call.id not in self._calls:
                out += self._call(call.id, call.name, rest)
        reason = _finish_reason(finished, self._view.last)
        told = None
        if finished.logprobs:
            told = {"content": told_logprobs(finished.logprobs), "refusal": None}
        choice = {"index": 0, "delta": {}, "logprobs": told, "finish_reason": reason}
        last: Fields = {**self._head, "choices": [choice]}
        usage = chat_usage(finished.usage)
        if not self._include_usage:
            last["usage"] = usage
        missing = _incomplete(finished, reason, text=self._said)
        if missing is not None:
            last["hermes"] = missing
        if reason == "error":
            last["error"] = failure_fields(finished)
            # `@ai-sdk/openai` sees an error only where there are no choices.
            out += frame(_encode({**self._head, "error": last["error"]}))
        out += frame(_encode(last))
        if self._include_usage:
            out += frame(_encode({**self._head, "choices": [], "usage": usage}))
        return out + DONE

    def _delta(self, delta: Fields) -> bytes:
        return self._before + _encode(delta)[:-1] + _AFTER

    def _named(self, name: str, fields: Fields) -> bytes:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
        return frame(_encode({**self._head, "choices": [choice], **fields}), event=name)
