"""Pickers on the screen, one at a time, oldest first."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice
from hermes.entry.terminal.paint import cut, harmless, wrap

SHOWN_OPTIONS = 10
SUBJECT_LINES = 8
STEPS = {"up": -1, "down": 1, "pageup": -SHOWN_OPTIONS, "pagedown": SHOWN_OPTIONS}


class Option(Struct, frozen=True, kw_only=True):
    value: str
    label: str
    asks_text: bool = False
    """Choosing it asks for a line of text first."""


class PickerReply(Struct, frozen=True, kw_only=True):
    value: str
    text: str = ""


class Picker:
    """A question with options; `reply` is set when it is answered."""

    def __init__(self, title: str, body: str, options: Sequence[Option], on_escape: str) -> None:
        self.title = title
        self.body = body
        self.options = tuple(options)
        self.reply: PickerReply | None = None
        self.typing: Option | None = None
        """The option for which text is being typed."""
        self.selected = 0
        self._on_escape = on_escape

    def press(self, key: str, text: str = "") -> None:
        """Take an arrow, a page, `enter` with what was typed, `escape` or a digit."""
        match key:
            case "enter":
                self._enter(text)
            case "escape" if self.typing is not None:
                self.typing = None
            case "escape":
                self.reply = PickerReply(value=self._on_escape)
            case _ if self.typing is not None:
                pass
            case "up" | "down" | "pageup" | "pagedown":
                self.selected = (self.selected + STEPS[key]) % len(self.options)
            case _ if 1 <= int(key) <= min(len(self.options), 9):
                self.selected = int(key) - 1
                self._enter("")
            case _:
                pass

    def _enter(self, text: str) -> None:
        option = self.typing or self.options[self.selected]
        if option.asks_text and self.typing is None:
            self.typing = option
            return
        if self.typing is not None and not text.strip() and option.value == "":
            return
        self.reply = PickerReply(value=option.value, text=text.strip())

    def lines(self, cells: int, *, pointer: str = "❯") -> list[tuple[str, str]]:
        """Return (style, text) lines: `title`, `body`, `option`, `selected` or `hint`."""
        lines = [("title", line) for line in wrap(harmless(self.title), cells)]
        body = [line for line in wrap(harmless(self.body), max(1, cells - 2)) if line.strip()]
        lines += [("body", f"  {line}") for line in body[:SUBJECT_LINES]]
        if len(body) > SUBJECT_LINES:
            lines.append(("body", f"  … {len(body) - SUBJECT_LINES} more lines"))
        if self.typing is not None:
            return [*lines, ("hint", cut(f"{self.typing.label}  (Enter sends, Esc back)", cells))]
        most = max(0, len(self.options) - SHOWN_OPTIONS)
        start = min(max(0, self.selected - SHOWN_OPTIONS // 2), most)
        for number, option in enumerate(self.options[start : start + SHOWN_OPTIONS], start + 1):
            chosen = number - 1 == self.selected
            mark = pointer if chosen else " "
            text = f"{mark} {number}. {harmless(option.label)}"
            lines.append(("selected" if chosen else "option", cut(text, cells)))
        more = f" · {len(self.options)} in all" if most else ""
        return [*lines, ("hint", cut(f"↑↓ or digit, Enter, Esc{more}", cells))]


def request_picker(request: ApprovalRequest) -> Picker:
    if request.kind is ApprovalKind.APPROVAL:
        return approval_picker(request)
    options = [Option(value=choice, label=choice) for choice in request.choices]
    own = Option(value="", label="In your own words…", asks_text=True)
    return Picker("The agent asks", request.subject, [*options, own], on_escape="")


def approval_picker(request: ApprovalRequest) -> Picker:
    pattern = f" ({request.pattern})" if request.pattern else ""
    labels = {
        Choice.ONCE: "Allow once",
        Choice.SESSION: f"Allow for this conversation{pattern}",
        Choice.ALWAYS: f"Always allow{pattern}",
        Choice.DENY: "Deny",
    }
    offered = [Choice(each) for each in request.choices if each in set(Choice)] or list(Choice)
    options = [Option(value=each.value, label=labels[each]) for each in offered]
    reason = Option(value=Choice.DENY.value, label="Deny, and say why…", asks_text=True)
    title = f"Approve {request.tool}? {request.reason}".rstrip()
    return Picker(title, request.subject, [*options, reason], on_escape=Choice.DENY.value)


def list_picker(title: str, labels: Sequence[str]) -> Picker:
    """Make a picker whose reply is the position of the chosen label."""
    options = [Option(value=str(number), label=label) for number, label in enumerate(labels)]
    return Picker(title, "", options, on_escape="")


class _Question:
    def __init__(self, picker: Picker, request: ApprovalRequest | None) -> None:
        self.picker = picker
        self.request = request
        self.done = asyncio.Event()


class Questions:
    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._open: list[_Question] = []

    @property
    def picker(self) -> Picker | None:
        return self._open[0].picker if self._open else None

    @property
    def typing(self) -> bool:
        return self.picker is not None and self.picker.typing is not None

    @property
    def choosing_from_list(self) -> bool:
        """True if the picker belongs to a command, not to the agent."""
        return bool(self._open) and self._open[0].request is None

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
            self._on_change()

    async def pick(self, title: str, labels: Sequence[str]) -> int | None:
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

    def key(self, name: str, text: str = "") -> tuple[ApprovalRequest, PickerReply] | None:
        """Press a key in the first picker; return a request of the agent and its answer."""
        if not self._open:
            return None
        question = self._open[0]
        question.picker.press(name, text)
        reply = question.picker.reply
        if reply is not None:
            self._open.pop(0)
            question.done.set()
        self._on_change()
        return (question.request, reply) if question.request and reply else None
