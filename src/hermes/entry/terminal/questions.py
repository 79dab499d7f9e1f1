"""Pickers on the screen, one at a time, oldest first."""

import asyncio
from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer

from hermes.domain.approvals import ApprovalRequest
from hermes.entry.terminal.pickers import Picker, Reply, list_picker, request_picker

__all__ = ["Questions"]


class _Question:
    """A picker and who waits for its reply."""

    def __init__(self, picker: Picker, request: ApprovalRequest | None) -> None:
        self.picker = picker
        self.request = request
        self.done = asyncio.Event()


class Questions:
    """What a person is asked; the first one has the keys."""

    def __init__(
        self,
        on_reply: Callable[[ApprovalRequest, Reply], None],
        on_change: Callable[[], None],
    ) -> None:
        self.text = Buffer(name="answer", multiline=False)
        self._on_reply = on_reply
        self._on_change = on_change
        self._open: list[_Question] = []

    @property
    def picker(self) -> Picker | None:
        """The picker that is shown."""
        return self._open[0].picker if self._open else None

    @property
    def typing(self) -> bool:
        """True while text is being typed for the picker."""
        return self.picker is not None and self.picker.typing is not None

    def ask(self, request: ApprovalRequest) -> None:
        """Put a request before the person; once, however often it is announced."""
        if all(each.request is None or each.request.id != request.id for each in self._open):
            self._open.append(_Question(request_picker(request), request))
            self._on_change()

    def settle(self, approval_id: str) -> None:
        """Take a request away; an empty id takes all requests away, their turn is over."""
        kept = [
            each
            for each in self._open
            if each.request is None or (approval_id and each.request.id != approval_id)
        ]
        if len(kept) != len(self._open):
            self._open = kept
            self.text.reset()
            self._on_change()

    async def pick(self, title: str, labels: Sequence[str]) -> int | None:
        """Let the person choose one of several; None if they chose nothing."""
        question = _Question(list_picker(title, labels), None)
        self._open.append(question)
        self._on_change()
        try:
            await question.done.wait()
        finally:
            if question in self._open:
                self._open.remove(question)
            self._on_change()
        reply = question.picker.reply
        return int(reply.value) if reply is not None and reply.value else None

    def key(self, name: str) -> None:
        """Give a key to the picker that is shown."""
        if not self._open:
            return
        question = self._open[0]
        _press(question.picker, name, self.text.text)
        if question.picker.reply is not None:
            self._open.pop(0)
            question.done.set()
            if question.request is not None:
                self._on_reply(question.request, question.picker.reply)
        if question.picker.reply is not None or not self.typing:
            self.text.reset()
        self._on_change()

    @property
    def choosing_from_list(self) -> bool:
        """True if the picker belongs to a command, not to the agent."""
        return bool(self._open) and self._open[0].request is None


def _press(picker: Picker, name: str, text: str) -> None:
    match name:
        case "up":
            picker.move(-1)
        case "down":
            picker.move(1)
        case "enter":
            picker.enter(text)
        case "escape":
            picker.escape()
        case _:
            picker.digit(int(name))
