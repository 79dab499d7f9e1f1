"""What a turn says, as text that can only grow.

A stream to a client cannot take anything back. A call that starts over says
its text again: what the client has already got is swallowed, and the stream
goes on where it stopped. If the new text takes another way, it follows after
an empty line. What the model says before a tool call is set off from what it
says after it in the same manner.

Every method returns the text to send now.
"""

from collections.abc import Sequence

from hermes.domain.messages import AssistantMessage, FinishReason

__all__ = ["SentText"]


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
