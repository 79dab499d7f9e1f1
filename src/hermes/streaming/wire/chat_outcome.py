"""How a turn ends in the words of a chat completion.

A turn that is done ends with `stop`, `length`, `content_filter` or
`tool_calls`. One that failed ends with `error` and says why; one that was
interrupted ends with `stop`, since somebody wanted it to. Whatever is not a
complete answer carries a `hermes` block that says so.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.events import (
    MessageCompleted,
    TextDelta,
    TextReset,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, FinishReason
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage

__all__ = [
    "ChatCollector",
    "ChatResult",
    "ChatUsage",
    "CompletionDetails",
    "Incomplete",
    "PromptDetails",
    "SentText",
    "chat_usage",
    "failure_text",
    "finish_reason",
    "incomplete",
]


class SentText:
    """The text of one turn on its way to one client."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        """Pieces of the current message that have been sent."""
        self._again: str | None = None
        """What was sent of the current message before it started over."""
        self._matched = 0
        """How much of that has come again."""
        self._messages = 0
        self._answered = False
        self._gap = False
        self._end = ""

    def delta(self, text: str) -> str:
        """Take a piece of text."""
        if self._again is None:
            self._sent.append(text)
            return self._out(text)
        before, at = self._again, self._matched
        if before.startswith(text, at):
            self._matched += len(text)
            return ""
        if text.startswith(before[at:]):
            self._sent, self._again = [before, text[len(before) - at :]], None
            return self._out(self._sent[1])
        return self._anew(before[:at] + text)

    def reset(self) -> None:
        """The current message starts over."""
        if self._again is None:
            self._again, self._sent = "".join(self._sent), []
        self._matched = 0
        if not self._again:
            self._again = None

    def started(self, earlier: Sequence[AssistantMessage]) -> str:
        """The turn begins or goes on; `earlier` is what it has completed before."""
        if len(earlier) <= self._messages:
            self.reset()
            return ""
        return "".join([self.completed(message) for message in earlier[self._messages :]])

    def completed(self, message: AssistantMessage) -> str:
        """The current message is complete; send what is missing of it."""
        text = self._rest(message.text)
        self._sent, self._again, self._matched = [], None, 0
        self._messages += 1
        if message.tool_calls:
            self._answered = False
        self._gap = bool(message.tool_calls) or message.finish is not FinishReason.LENGTH
        return text

    def finished(self, answer: str) -> str:
        """The turn is over; send its answer if it has not come by any other way."""
        return "" if self._answered or self._sent else self._out(answer)

    def _rest(self, text: str) -> str:
        shown = "".join(self._sent) if self._again is None else self._again
        if text.startswith(shown):
            return self._out(text[len(shown) :])
        if self._again is None or shown.startswith(text):
            return ""
        return self._anew(text)

    def _anew(self, text: str) -> str:
        self._gap, self._again = True, None
        self._sent = [text]
        return self._out(text)

    def _out(self, text: str) -> str:
        if not text:
            return ""
        self._answered = True
        if self._gap:
            self._gap = False
            text = self._break() + text
        self._end = (self._end + text[-2:])[-2:]
        return text

    def _break(self) -> str:
        if not self._end or self._end == "\n\n":
            return ""
        return "\n" if self._end.endswith("\n") else "\n\n"


_FINISH = {FinishReason.LENGTH: "length", FinishReason.CONTENT_FILTER: "content_filter"}


class PromptDetails(Struct, frozen=True, kw_only=True):
    """What the prompt was made of."""

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
    error_code: str
    """`output_truncated`, `agent_error` or `interrupted`."""
    cause: str | None = None
    """The code of the error behind it."""


class ChatResult(Struct, frozen=True, kw_only=True):
    """A turn as one answer."""

    finished: TurnFinished
    text: str
    finish_reason: str
    incomplete: Incomplete | None


def chat_usage(usage: Usage) -> ChatUsage:
    """Return token counts under the names that clients know."""
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cache_read_tokens),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning_tokens),
    )


def finish_reason(finished: TurnFinished, last: AssistantMessage | None) -> str:
    """Return why the answer ends; `last` is the last message that was completed."""
    if finished.handed:
        return "tool_calls"
    if finished.outcome is TurnState.FAILED or finished.error is not None:
        return "error"
    if finished.outcome is TurnState.DONE and last is not None:
        return _FINISH.get(last.finish, "stop")
    return "stop"


def failure_text(finished: TurnFinished) -> str:
    """Return what went wrong, in a sentence or two."""
    error = finished.error
    if error is not None:
        return f"{error.message} {error.hint}".strip()
    if finished.outcome is TurnState.INTERRUPTED:
        return "The turn was interrupted."
    return "The turn did not end with an answer."


def incomplete(finished: TurnFinished, reason: str, *, text: bool) -> Incomplete | None:
    """Say in which way an answer is not complete, if it is not."""
    if finished.outcome is TurnState.DONE and reason != "error":
        if reason != "length":
            return None
        return Incomplete(partial=True, failed=False, error_code="output_truncated")
    return Incomplete(
        partial=text,
        failed=reason == "error",
        error=failure_text(finished),
        error_code="agent_error" if reason == "error" else "interrupted",
        cause=finished.error.code if finished.error else None,
    )


class ChatCollector:
    """Folds the events of a turn into one answer."""

    def __init__(self) -> None:
        self._text = SentText()
        self._said: list[str] = []
        self._last: AssistantMessage | None = None

    def feed(self, event: TurnEvent) -> ChatResult | None:
        """Take the next event; return the answer with the last one."""
        match event:
            case TextDelta():
                self._said.append(self._text.delta(event.text))
            case TextReset():
                self._text.reset()
            case TurnStarted():
                self._said.append(self._text.started(event.earlier))
                self._last = event.earlier[-1] if event.earlier else self._last
            case MessageCompleted():
                self._said.append(self._text.completed(event.message))
                self._last = event.message
            case TurnFinished():
                return self._result(event)
            case _:
                pass
        return None

    def _result(self, finished: TurnFinished) -> ChatResult:
        reason = finish_reason(finished, self._last)
        text = finished.text
        if finished.handed and self._last is not None:
            text = text or self._last.text
        if finished.outcome is not TurnState.DONE:
            text = text or "".join(self._said)
        return ChatResult(
            finished=finished,
            text=text,
            finish_reason=reason,
            incomplete=incomplete(finished, reason, text=bool(text.strip())),
        )
