"""Pickers: choosing with arrows, digits, Enter and Esc. Pure state, no terminal.

An approval offers once, session, always and deny, and denying with a reason.
A question offers its choices and, always, an answer in one's own words.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice
from hermes.entry.terminal.cells import cut, wrap
from hermes.streaming.terminal import harmless

__all__ = ["Option", "Picker", "Reply", "approval_picker", "list_picker", "request_picker"]

SHOWN_OPTIONS = 10
SUBJECT_LINES = 8


class Option(Struct, frozen=True, kw_only=True):
    """Something that can be chosen."""

    value: str
    label: str
    asks_text: bool = False
    """Choosing it asks for a line of text first."""


class Reply(Struct, frozen=True, kw_only=True):
    """What was chosen."""

    value: str
    text: str = ""


class Picker:
    """A question with options; `reply` is set when it is answered."""

    def __init__(self, title: str, body: str, options: Sequence[Option], on_escape: str) -> None:
        self.title = title
        self.body = body
        self.options = tuple(options)
        self.reply: Reply | None = None
        self.typing: Option | None = None
        """The option for which text is being typed."""
        self.selected = 0
        self._on_escape = on_escape

    def move(self, step: int) -> None:
        """Select another option, around the ends."""
        if self.typing is None:
            self.selected = (self.selected + step) % len(self.options)

    def digit(self, number: int) -> None:
        """Choose an option by its number, counted from 1."""
        if self.typing is None and 1 <= number <= min(len(self.options), 9):
            self.selected = number - 1
            self.enter()

    def enter(self, text: str = "") -> None:
        """Choose the selected option, or finish typing."""
        option = self.typing or self.options[self.selected]
        if option.asks_text and self.typing is None:
            self.typing = option
            return
        if self.typing is not None and not text.strip() and option.value == "":
            return
        self.reply = Reply(value=option.value, text=text.strip())

    def escape(self) -> None:
        """Leave the text, or refuse to choose."""
        if self.typing is not None:
            self.typing = None
        else:
            self.reply = Reply(value=self._on_escape)

    def lines(self, cells: int, *, pointer: str = "❯") -> list[tuple[str, str]]:
        """Return (style, text) lines: `title`, `body`, `option`, `selected` or `hint`."""
        lines = [("title", line) for line in wrap(harmless(self.title), cells)]
        body = [line for line in wrap(harmless(self.body), max(1, cells - 2)) if line.strip()]
        lines += [("body", f"  {line}") for line in body[:SUBJECT_LINES]]
        if len(body) > SUBJECT_LINES:
            lines.append(("body", f"  … {len(body) - SUBJECT_LINES} more lines"))
        if self.typing is not None:
            return [*lines, ("hint", cut(f"{self.typing.label}  (Enter sends, Esc back)", cells))]
        start = self._first_shown()
        for number, option in enumerate(self.options[start : start + SHOWN_OPTIONS], start + 1):
            chosen = number - 1 == self.selected
            mark = pointer if chosen else " "
            text = f"{mark} {number}. {harmless(option.label)}"
            lines.append(("selected" if chosen else "option", cut(text, cells)))
        hidden = len(self.options) - SHOWN_OPTIONS
        more = f" · {len(self.options)} in all" if hidden > 0 else ""
        return [*lines, ("hint", cut(f"↑↓ or digit, Enter, Esc{more}", cells))]

    def _first_shown(self) -> int:
        if len(self.options) <= SHOWN_OPTIONS:
            return 0
        start = self.selected - SHOWN_OPTIONS // 2
        return max(0, min(start, len(self.options) - SHOWN_OPTIONS))


def request_picker(request: ApprovalRequest) -> Picker:
    """Make the picker for an approval or a question."""
    if request.kind is ApprovalKind.APPROVAL:
        return approval_picker(request)
    options = [Option(value=choice, label=choice) for choice in request.choices]
    own = Option(value="", label="In your own words…", asks_text=True)
    return Picker("The agent asks", request.subject, [*options, own], on_escape="")


def approval_picker(request: ApprovalRequest) -> Picker:
    """Make the picker for an approval."""
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
