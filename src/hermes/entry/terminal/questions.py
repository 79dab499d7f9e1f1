"""Questions on the screen: one at a time, oldest first, and never answered by typing ahead.

A question of the agent may appear in the middle of a sentence. So it stands above the
input line and leaves the keyboard there: whatever was or is being typed stays text.

    Tab, after STILL_SECONDS without a key     the list gets the keyboard, *Deny* is marked
    arrows, digits                             move the mark, choose nothing
    Enter, SETTLE_SECONDS after the list did   chooses; *always* asks once more, with the grant
    Esc, or any other text                     the keyboard is the input line's again

Keys closer together than BURST_SECONDS are a paste, or a buffer that was read late: text,
too. Lists that a person has called up with a command have the keyboard at once.

What a question quotes stands behind a bar and shows control characters as escapes, so that
no command can imitate the lines around it.
"""

import asyncio
import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice, choice_labels
from hermes.domain.ports.clock import Clock
from hermes.domain.wording import elapsed_words, visible, visible_line
from hermes.entry.terminal.paint import cut, wrap

STILL_SECONDS = 0.7
SETTLE_SECONDS = 0.3
BURST_SECONDS = 0.02
SHOWN_OPTIONS = 10
STEPS = {"up": -1, "down": 1, "pageup": -SHOWN_OPTIONS, "pagedown": SHOWN_OPTIONS}
NO_ANSWER = "(no answer)"
BACK = "back"


class Option(Struct, frozen=True, kw_only=True):
    value: str
    label: str
    asks_text: bool = False
    """Choosing it asks for a line of text first."""
    confirm: str = ""
    """What has to be confirmed before it counts."""


class PickerReply(Struct, frozen=True, kw_only=True):
    value: str
    text: str = ""


class Picker:
    """Something to choose from; `chosen` is set when that is done."""

    def __init__(
        self, title: str, body: str, options: Sequence[Option], *, selected: int = 0
    ) -> None:
        self.title = visible_line(title)
        self.body = visible(body)
        self.options = tuple(options)
        self.selected = selected
        self.digits_choose = False
        self.chosen: Option | None = None
        self.text = ""
        self.typing: Option | None = None
        """The option for which text is being typed."""
        self._first = 0
        """The first line of the body that is shown."""
        self._page = 1
        self._wrapped: tuple[int, list[str]] = (0, [])

    def press(self, key: str, text: str = "") -> None:
        """Take an arrow, a page, a digit, or `enter` with what was typed."""
        if key == "enter":
            self._enter(text)
        elif key in ("pageup", "pagedown") and self.body:
            self._first += self._page if key == "pagedown" else -self._page
        elif self.typing is None and key in STEPS:
            # It stops at both ends: a key too many must not come round to what allows.
            self.selected = min(max(self.selected + STEPS[key], 0), len(self.options) - 1)
        elif self.typing is None and key.isdecimal() and 1 <= int(key) <= len(self.options):
            self.selected = int(key) - 1
            if self.digits_choose:
                self._enter("")

    def _enter(self, text: str) -> None:
        option = self.typing or self.options[self.selected]
        if option.asks_text and self.typing is None:
            self.typing = option
        elif self.typing is None or text.strip() or option.value:
            self.chosen, self.text = option, text.strip()

    def again(self) -> None:
        self.chosen = self.typing = None

    def lines(
        self, cells: int, hint: str, *, rows: int = 1_000_000, pointer: str = "❯"
    ) -> list[tuple[str, str]]:
        """Return (style, text) lines: `title`, `body`, `option`, `selected` or `hint`.

        The body is shown in what is left of `rows`, page by page; without a pointer
        nothing is marked.
        """
        title = [("title", line) for line in wrap(self.title, cells)]
        hints = [("hint", line) for line in wrap(hint, cells)]
        if self.typing is not None:
            options = [("option", cut(self.typing.label, cells))]
        else:
            options = self._option_lines(cells, rows - len(title) - len(hints) - 2, pointer)
        body = self._body_lines(cells, rows - len(title) - len(options) - len(hints))
        return [*title, *body, *options, *hints]

    def _option_lines(self, cells: int, rows: int, pointer: str) -> list[tuple[str, str]]:
        shown = max(1, min(SHOWN_OPTIONS, rows))
        most = max(0, len(self.options) - shown)
        start = min(max(0, self.selected - shown // 2), most)
        lines = []
        for number, option in enumerate(self.options[start : start + shown], start + 1):
            marked = bool(pointer) and number - 1 == self.selected
            text = f"{pointer if marked else ' '} {number}. {visible_line(option.label)}"
            lines.append(("selected" if marked else "option", cut(text, cells)))
        return lines

    def _body_lines(self, cells: int, rows: int) -> list[tuple[str, str]]:
        if not self.body:
            return []
        if self._wrapped[0] != cells:
            whole = wrap(self.body, max(1, cells - 2))
            self._wrapped = cells, [line for line in whole if line.strip()]
        lines = self._wrapped[1]
        fits = len(lines) <= rows
        self._page = len(lines) if fits else max(1, rows - 1)
        self._first = max(0, min(self._first, len(lines) - self._page))
        last = self._first + self._page
        shown = [("body", f"│ {line}") for line in lines[self._first : last]]
        where = f"lines {self._first + 1}-{last} of {len(lines)} (PgUp, PgDn)"
        return shown if fits else [*shown, ("hint", cut(where, cells))]


def request_picker(request: ApprovalRequest) -> Picker:
    if request.kind is ApprovalKind.APPROVAL:
        return approval_picker(request)
    options = [Option(value=choice, label=choice) for choice in request.choices]
    own = Option(value="", label="In your own words…", asks_text=True)
    none = Option(value=NO_ANSWER, label="No answer")
    return Picker("The agent asks", request.subject, [*options, own, none])


def approval_picker(request: ApprovalRequest) -> Picker:
    exact, labels = request.pattern.startswith("= sha256:"), choice_labels(request)
    labels[Choice.ALWAYS] += "…"
    offered = [Choice(each) for each in request.choices if each in set(Choice)] or list(Choice)
    granted = request.subject if exact else request.pattern
    options = [
        Option(
            value=each.value,
            label=labels[each],
            confirm=granted or request.subject if each is Choice.ALWAYS else "",
        )
        for each in offered
    ]
    reason = Option(value=Choice.DENY.value, label="Deny, and say why…", asks_text=True)
    deny = offered.index(Choice.DENY) if Choice.DENY in offered else len(offered)
    title = f"Approve {request.tool}? {request.reason}"
    return Picker(title, request.subject, [*options, reason], selected=deny)


def confirm_picker(option: Option) -> Picker:
    title = "Always allow this, in every conversation, also when nobody is there to ask?"
    back = Option(value=BACK, label="No, back to the question")
    return Picker(title, option.confirm, [back, Option(value=option.value, label="Yes, always")])


def list_picker(title: str, labels: Sequence[str]) -> Picker:
    """Make a picker whose options are the positions of the labels."""
    options = [Option(value=str(number), label=label) for number, label in enumerate(labels)]
    picker = Picker(title, "", options)
    picker.digits_choose = True
    return picker


class _Question:
    def __init__(self, picker: Picker, request: ApprovalRequest | None) -> None:
        self.asked = self.picker = picker
        """What is asked first, and what is asked now: it or its confirmation."""
        self.request = request
        self.done = asyncio.Event()

    def step(self) -> PickerReply | None:
        """Return the reply if there is one; go on to a confirmation, or back from it."""
        chosen = self.picker.chosen
        if chosen is not None and chosen.confirm:
            self.picker = confirm_picker(chosen)
        elif chosen is not None and chosen.value == BACK and self.picker is not self.asked:
            self.back()
        elif chosen is not None:
            return PickerReply(value=chosen.value, text=self.picker.text)
        return None

    def back(self) -> None:
        self.picker = self.asked
        self.picker.again()


Answered = tuple[ApprovalRequest, PickerReply]


class Questions:
    def __init__(self, on_change: Callable[[], None], clock: Clock) -> None:
        self.focused = False
        """Whether the keys go to the picker."""
        self.still = False
        """Whether the last key came after a moment without any."""
        self.burst = False
        """Whether the last key came faster than anybody types."""
        self._on_change = on_change
        self._clock = clock
        self._open: list[_Question] = []
        self._front: _Question | None = None
        self._shown: Picker | None = None
        self._shown_at = self._focused_at = self._key_at = self._key_before = 0.0

    @property
    def picker(self) -> Picker | None:
        return self._open[0].picker if self._open else None

    @property
    def request(self) -> ApprovalRequest | None:
        """The request of the agent that is on the screen."""
        return self._open[0].request if self._open else None

    @property
    def typing(self) -> bool:
        return self.picker is not None and self.picker.typing is not None

    @property
    def choosing_from_list(self) -> bool:
        """True if the picker belongs to a command, not to the agent."""
        return bool(self._open) and self._open[0].request is None

    # -- what is asked ---------------------------------------------------------

    def ask(self, request: ApprovalRequest) -> None:
        """Put a request before the person; once, however often it is announced."""
        if all(each.request is None or each.request.id != request.id for each in self._open):
            self._open.append(_Question(request_picker(request), request))
            self._changed()

    def settle(self, approval_id: str) -> None:
        """Take a request away; an empty id takes all requests away, their turn is over."""
        kept = [
            each
            for each in self._open
            if each.request is None or (approval_id and each.request.id != approval_id)
        ]
        if len(kept) != len(self._open):
            self._open = kept
            self._changed()

    async def pick(self, title: str, labels: Sequence[str]) -> int | None:
        question = _Question(list_picker(title, labels), None)
        self._open.insert(0, question)
        self._changed()
        try:
            await question.done.wait()
        finally:
            if question in self._open:
                self._open.remove(question)
            self._changed()
        chosen = question.picker.chosen
        return int(chosen.value) if chosen is not None else None

    def _changed(self) -> None:
        """A question that comes to the front begins without the keyboard."""
        front = self._open[0] if self._open else None
        if front is not self._front or (front and front.picker is not self._shown):
            same = front is self._front
            self._front, self._shown = front, self.picker
            self._shown_at = math.inf
            self.focus(on=self.choosing_from_list or (same and self.focused))
        self._on_change()

    # -- keys ------------------------------------------------------------------

    def key_pressed(self) -> None:
        """Note a key before it is acted on."""
        now = self._clock.monotonic()
        self.still = now - max(self._key_at, self._shown_at) >= STILL_SECONDS
        self.burst = now - self._key_at < BURST_SECONDS
        self._key_before, self._key_at = self._key_at, now

    def enter(self) -> bool:
        """Give the picker the keyboard if nobody was typing; False if somebody was."""
        if self.still:
            self.focus(on=True)
        else:  # A key that was pressed too early must not make the next one too early.
            self._key_at = self._key_before
        self._on_change()
        return self.still

    def focus(self, *, on: bool) -> None:
        self.focused, self._focused_at = on, self._clock.monotonic()

    def key(self, name: str, text: str = "") -> Answered | None:
        """Press a key in the first picker; return a request of the agent and its answer."""
        if not self._open:
            return None
        question = self._open[0]
        if name == "escape":
            self._escape(question)
        elif name != "enter" or self.typing or self._settled(question):
            question.picker.press(name, text)
        return self._step(question)

    def choose(self, number: int, text: str = "") -> Answered | None:
        """Choose an option of the first picker by its number, with its text."""
        question, picker = self._open[0], self._open[0].picker
        option = picker.options[number - 1]
        if option.asks_text and (text or option.value):
            picker.typing = option
        picker.press(str(number))
        picker.press("enter", text)
        return self._step(question)

    def reply(self, text: str) -> Answered | None:
        """Answer the first question in the person's own words."""
        question = self._open.pop(0)
        self._changed()
        request = question.request
        return (request, PickerReply(value="", text=text.strip())) if request else None

    def _settled(self, question: _Question) -> bool:
        waited = self._clock.monotonic() - self._focused_at
        return question.request is None or (waited >= SETTLE_SECONDS and not self.burst)

    def _escape(self, question: _Question) -> None:
        if question.picker.typing is not None:
            question.picker.again()
        elif question.picker is not question.asked:
            question.back()
        elif question.request is None:
            question.done.set()
            self._open.pop(0)
        else:
            self.focus(on=False)

    def _step(self, question: _Question) -> Answered | None:
        reply = question.step()
        if reply is not None:
            self._open.remove(question)
            question.done.set()
        self._changed()
        return (question.request, reply) if question.request and reply else None

    # -- what it looks like ------------------------------------------------------

    def lines(self, cells: int, rows: int, pointer: str) -> list[tuple[str, str]]:
        if self._shown_at == math.inf:  # Painted for the first time, now.
            self._shown_at = self._clock.monotonic()
        picker, marked = self.picker, pointer if self.focused else ""
        return picker.lines(cells, self._hint(), rows=rows, pointer=marked) if picker else []

    def _hint(self) -> str:
        if self.typing:
            keys = "Enter sends, Esc back"
        elif self.focused:
            keys = "↑↓ digit, Enter, Esc"
        else:
            keys = "Tab to answer"
        if self.choosing_from_list and self.picker and len(self.picker.options) > SHOWN_OPTIONS:
            keys += f" · {len(self.picker.options)} in all"
        return " · ".join(filter(None, (keys, self.time_left())))

    def time_left(self) -> str:
        """Return how long the question stands."""
        request = self.request
        if request is None or request.expires_at is None:
            return ""
        left = elapsed_words(max(0.0, request.expires_at - self._clock.now()))
        approval = request.kind is ApprovalKind.APPROVAL
        return f"denied in {left}" if approval else f"open for {left}"
