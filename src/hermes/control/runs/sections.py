"""Sections: the part of a turn that one request is answered with.

A client that does not know our events gets what waits for a person as ordinary text:

    request 1   -> the turn up to the question, then the question; the run is completed
    turn           waits on the approval in the ledger, as for any other door
    "yes"       -> the approval is decided; run 2 joins the turn and gets the rest of it

So a turn has several runs, one after the other, and each of them a section of its events: cut
where the next one is asked, begun behind the call that the last one asked about. Live events and
those retold from the ledger go through the same filter and give the same text, which is what the
client sends back as its history. Progress of tools, if wanted as text or reasoning, is put in here
too, as messages of their own.
"""

import re
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct, convert
from msgspec.structs import replace

from hermes.domain.approvals import ApprovalKind, ApprovalRequest, is_about
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    TurnStream,
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, Reasoning
from hermes.domain.runs import Run
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.domain.wording import one_line, visible

PROGRESS_CHARS = 120
Progress = Literal["text", "reasoning"]
_ID = re.compile(r"\s*\(`appr_[0-9a-f]{24}`\)\s*\Z")


class TurnSection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    asks: bool = False
    """Questions are put as text, and end it."""
    may_answer: bool = True
    """The key that asked may also approve."""
    progress: Progress | None = None
    """Tool calls are told in the answer's text, or as reasoning."""
    after: str = ""
    """The approval whose question ended the section before."""
    after_call: str = ""
    """The call that it is about."""
    note: str = ""
    """Said first: that the question had been settled before."""


def section_of(run: Run) -> TurnSection | None:
    """Return which part of its turn a run gets; None: all of it, as it is."""
    kept = run.request.get("section")
    return convert(kept, TurnSection) if kept else None


def fenced(text: str) -> str:
    """Put a text into a code block that it cannot end itself."""
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _backticks(text: str) -> Iterable[str]:
    return "".join(each if each == "`" else " " for each in text).split()


def question_text(
    request: ApprovalRequest, redact: Callable[[str], str], *, may_answer: bool = True
) -> str:
    """Return what a client without our events is asked; its id tells it from others like it."""
    subject, reason = visible(redact(request.subject)), visible(redact(request.reason))
    if request.kind is ApprovalKind.QUESTION:
        listed = (f"{n}. {visible(each)}" for n, each in enumerate(request.choices, start=1))
        parts = [subject, "\n".join(listed), "Answer in your next message."]
    else:
        parts = ["I need your consent to run this: answer yes or no.", fenced(subject)]
        parts.append(f"Why I ask: {one_line(reason, 500)}." if reason else "")
        parts.append("Your next message decides; anything else than yes means no.")
    if not may_answer:
        parts[-1] = (
            "The key of this program may not answer that. Whoever runs Hermes can, or a program "
            f"whose key may approve, at `/v1/approvals/{request.id}`; then say anything here."
        )
    return "\n\n".join(filter(None, (*parts, id_mark(request))))


def id_mark(request: ApprovalRequest) -> str:
    """Return what a question ends with."""
    return f"(`{request.id}`)"


def without_id(text: str) -> str:
    """Return a text that ends with a question as clients have it that hide the id."""
    return _ID.sub("", text)


class SectionStream(TurnStream):
    """The events of a turn that belong to one request, and what is said in their place."""

    def __init__(
        self, turn_id: str, session_id: str, section: TurnSection, redact: Callable[[str], str]
    ) -> None:
        super().__init__(turn_id, session_id)
        self.asked: ApprovalRequest | None = None
        """What it ended with, if that is a question."""
        self._section = section
        self._redact = redact
        self._answered: set[str] = {section.after}
        self._begun = not section.after_call
        self._counts = self._begun
        """Whether the next usage belongs here and not to the section before."""
        self._used, self._cost, self._calls = Usage(), 0.0, 0

    @classmethod
    def of(cls, turn: TurnStream, section: TurnSection, redact: Callable[[str], str]) -> TurnStream:
        """Follow a turn from its first event."""
        made = cls(turn.turn_id, turn.session_id, section, redact)
        made.retell(turn.events)
        if made.finished is None:
            turn.tap(made.take)
        return made

    def retell(self, events: Iterable[TurnEvent]) -> None:
        events = list(events)
        self._answered |= {e.approval_id for e in events if isinstance(e, ApprovalAnswered)}
        for event in events:
            self.take(event)

    def take(self, event: TurnEvent) -> None:
        if self._finished is not None:
            return
        if self._begun and isinstance(event, TextDelta | ReasoningDelta):
            self.emit(event)
        elif isinstance(event, TurnStarted):
            self._start(event)
        elif isinstance(event, TurnFinished):
            self._finish(event)
        elif self._begun:
            self._pass(event)
        elif isinstance(event, MessageCompleted):
            self._begin_behind(event.message)

    def _start(self, event: TurnStarted) -> None:
        """Leave out what the section before has told."""
        if not self._section.after_call:
            self.emit(event)
            return
        earlier = list(event.earlier)
        for at, message in enumerate(earlier):
            if self._asks_in(message):
                self.emit(replace(event, earlier=()))
                if not self._begun:
                    self._begin_behind(message)
                for said in earlier[at + 1 :]:
                    self._say(said)
                return
        self.emit(replace(event, earlier=()))

    def _asks_in(self, message: AssistantMessage) -> bool:
        return any(is_about(self._section.after_call, call.id) for call in message.tool_calls)

    def _begin_behind(self, message: AssistantMessage) -> None:
        """Begin with the call that was asked about, and those after it."""
        if not self._asks_in(message):
            return
        self._begun = True
        self._note()
        asked = [is_about(self._section.after_call, call.id) for call in message.tool_calls]
        calls = message.tool_calls[asked.index(True) :]
        done = AssistantMessage(tool_calls=calls, finish=message.finish)
        self.emit(MessageCompleted(message_id=0, message=done))

    def _note(self) -> None:
        if self._section.note:
            self._say(AssistantMessage(text=self._section.note))

    def _say(self, message: AssistantMessage) -> None:
        if message.reasoning is not None and message.reasoning.text:
            self.emit(ReasoningDelta(message.reasoning.text))
        if message.text:
            self.emit(TextDelta(message.text))
        self.emit(MessageCompleted(message_id=0, message=message))

    def _pass(self, event: TurnEvent) -> None:
        match event:
            case ApprovalAsked(request=request) if self._section.asks:
                if request.id not in self._answered:
                    self.end_with(request)
                return
            case ApprovalAnswered() if self._section.asks:
                return
            case MessageCompleted():
                self._counts = True
            case UsageReported() if not self._counts:
                return
            case UsageReported(usage=usage, cost_usd=cost):
                self._used += usage
                self._cost += cost or 0.0
                self._calls += 1
            case _:
                pass
        self.emit(event)
        if isinstance(event, ToolStarted) and self._section.progress is not None:
            self._tell(event)

    def _tell(self, started: ToolStarted) -> None:
        about = one_line(visible(str(next(iter(started.arguments.values()), ""))), PROGRESS_CHARS)
        line = self._redact(f"{started.name}: {about}" if about else started.name)
        if self._section.progress == "text":
            self._say(AssistantMessage(text=f"`{line.replace('`', chr(39))}`"))
        else:
            self._say(AssistantMessage(reasoning=Reasoning(text=f"{line}\n")))

    def end_with(self, request: ApprovalRequest) -> None:
        """End with a question: to the client it is the answer."""
        self.asked = request
        text = question_text(request, self._redact, may_answer=self._section.may_answer)
        self._say(AssistantMessage(text=text))
        self.emit(
            TurnFinished(
                outcome=TurnState.DONE,
                text=text,
                usage=self._used,
                cost_usd=self._cost,
                model_calls=self._calls,
            )
        )

    def _finish(self, event: TurnFinished) -> None:
        if not self._begun:
            self._begun = True
            self._note()
        if self._section.after and self._calls:
            used = {"usage": self._used, "cost_usd": self._cost, "model_calls": self._calls}
            event = replace(event, **used)
        if self._section.note and event.text:
            event = replace(event, text=f"{self._section.note}\n\n{event.text}")
        self.emit(event)


def retold_section(
    events: Iterable[TurnEvent],
    section: TurnSection,
    asked: ApprovalRequest | None,
    redact: Callable[[str], str],
) -> list[TurnEvent]:
    """Return the section of a turn that is retold from the ledger, up to the question `asked`."""
    stream = SectionStream("", "", section, redact)
    events, call_id = list(events), asked.call_id if asked else ""
    *told, finished = events
    if asked is None:
        stream.retell(told)
        return [*stream.events, finished]
    reached = False
    for event in told:
        if reached and isinstance(event, TextDelta | ReasoningDelta | MessageCompleted):
            break
        if isinstance(event, MessageCompleted):
            reached = any(is_about(call_id, call.id) for call in event.message.tool_calls)
        if not (isinstance(event, ToolFinished) and is_about(call_id, event.call_id)):
            stream.take(event)
    stream.end_with(asked)
    return [*stream.events[:-1], finished]
