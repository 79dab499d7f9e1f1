"""A turn as the events of the Responses API, numbered from 0 without a gap.

The same turn gives the same items under the same ids, numbers and order,
whether its events come live, from a run's log or from the ledger afterwards.
Ids are made of the response's own id and a count, and the outputs of tools
that ran side by side are put in the order of their calls.

A message that the model had to begin again goes on in another part of its
item, and so does its reasoning; the item ends with the text of the last part.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall, ToolOutcome
from hermes.domain.runs import RunState
from hermes.domain.turn import TurnState
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView
from hermes.streaming.wire.frames import approval_fields, decision_fields, frame
from hermes.streaming.wire.response_types import (
    FunctionCallItem,
    FunctionCallOutputItem,
    IncompleteDetails,
    InputText,
    Item,
    ItemStatus,
    MessageItem,
    OutputText,
    ReasoningItem,
    ResponseResource,
    ResponseStatus,
    SummaryText,
    error_of,
    usage_of,
)

SHUTDOWN = "shutdown"
_CUT_OFF = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.INTERRUPTED: "interrupted",
}
_FINAL_EVENT: dict[ResponseStatus, str] = {
    "completed": "response.completed",
    "failed": "response.failed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
}
_encoder = msgspec.json.Encoder()


class ResponseEvent(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    sequence_number: int
    fields: dict[str, Any]

    def body(self) -> dict[str, Any]:
        return {"type": self.name, "sequence_number": self.sequence_number, **self.fields}

    def frame(self) -> bytes:
        return frame(_encoder.encode(self.body()), self.name)


class _Emitter:
    def __init__(self) -> None:
        self._next = 0
        self._waiting: list[ResponseEvent] = []

    def emit(self, name: str, /, **fields: Any) -> None:
        self.add(name, fields)

    def add(self, name: str, fields: dict[str, Any]) -> None:
        event = ResponseEvent(name=name, sequence_number=self._next, fields=fields)
        self._next += 1
        self._waiting.append(event)

    def take(self) -> list[ResponseEvent]:
        taken, self._waiting = self._waiting, []
        return taken


class _OpenItem:
    """An item whose text still grows."""

    part_event: ClassVar[str]
    text_event: ClassVar[str]
    number_field: ClassVar[str]
    part: ClassVar[type[OutputText] | type[SummaryText]]
    extra: ClassVar[dict[str, Any]] = {}

    def __init__(self, emitter: _Emitter, item_id: str, index: int) -> None:
        self.index = index
        self.id = item_id
        self.text = ""
        """What the client has of the current part, up to the last commit."""
        self._emitter = emitter
        self._emit = emitter.emit
        self._new: list[str] = []
        self._kept = ""
        """What is certain."""
        self._delta_event = f"{self.text_event}.delta"
        self._place: dict[str, Any] = {
            "item_id": item_id,
            "output_index": index,
            self.number_field: 0,
        }
        self._emit("response.output_item.added", output_index=index, item=self.empty())
        self._open_part()

    def empty(self) -> Item:
        raise NotImplementedError

    def snapshot(self, status: ItemStatus = "in_progress") -> Item:
        raise NotImplementedError

    def say(self, text: str) -> None:
        if text:
            self._new.append(text)
            self._emitter.add(self._delta_event, {**self._place, "delta": text, **self.extra})

    def start_over(self, text: str) -> None:
        """Go on in another part: what is not certain is void."""
        self._close_part()
        self._place = self._place | {self.number_field: self._place[self.number_field] + 1}
        self._open_part()
        self.text, self._new = "", []
        self.say(self._kept + text)

    def commit(self, text: str) -> None:
        """Take the text since the last commit as it is in the ledger."""
        self._kept += text
        if self._kept.startswith(sent := self.said):
            self.say(self._kept[len(sent) :])
        self.text, self._new = self._kept, []

    @property
    def said(self) -> str:
        return self.text + "".join(self._new)

    def close(self, status: ItemStatus = "completed") -> Item:
        self._close_part()
        item = self.snapshot(status)
        self._emit("response.output_item.done", output_index=self.index, item=item)
        return item

    def _open_part(self) -> None:
        self._emit(f"{self.part_event}.added", **self._place, part=self.part(text=""))

    def _close_part(self) -> None:
        text = self.said
        self._emit(f"{self.text_event}.done", **self._place, text=text, **self.extra)
        self._emit(f"{self.part_event}.done", **self._place, part=self.part(text=text))


class _OpenMessage(_OpenItem):
    part_event = "response.content_part"
    text_event = "response.output_text"
    number_field = "content_index"
    part = OutputText
    extra: ClassVar[dict[str, Any]] = {"logprobs": ()}
    cut_off = False
    """The model stopped at a limit."""

    def empty(self) -> MessageItem:
        return MessageItem(id=self.id, status="in_progress", role="assistant")

    def snapshot(self, status: ItemStatus = "in_progress") -> MessageItem:
        content = (OutputText(text=self.said),)
        return MessageItem(id=self.id, status=status, role="assistant", content=content)


class _OpenReasoning(_OpenItem):
    part_event = "response.reasoning_summary_part"
    text_event = "response.reasoning_summary_text"
    number_field = "summary_index"
    part = SummaryText

    def empty(self) -> ReasoningItem:
        return ReasoningItem(id=self.id)

    def snapshot(self, status: ItemStatus = "in_progress") -> ReasoningItem:  # noqa: ARG002 (it has none)
        return ReasoningItem(id=self.id, summary=(SummaryText(text=self.said),))


class ResponseStream:
    """Makes the events and the resource of one response of the events of its turn."""

    def __init__(self, base: ResponseResource, redact: Callable[[str], str] = str) -> None:
        self._base = base
        self._redact = redact
        self._ids = base.id.removeprefix("resp_")
        self._view = TurnView()
        self._emitter = _Emitter()
        self._items: list[Item] = []
        self._message: _OpenMessage | None = None
        self._reasoning: _OpenReasoning | None = None
        self._replies = 0
        """How many messages of the turn are complete."""
        self._thought_at = -1
        """The reply whose reasoning has its item."""
        self._calls: dict[str, int] = {}
        """Call id -> which call of the turn it is."""
        self._awaited: list[str] = []
        """Calls of the last reply whose output has not been shown, in order."""
        self._results: dict[str, ToolFinished] = {}

    @property
    def resource(self) -> ResponseResource:
        return msgspec.structs.replace(self._base, output=tuple(self._output()))

    def begin(self) -> list[ResponseEvent]:
        self._emitter.emit("response.created", response=self._base)
        waiting = self._base.status == "queued"
        name = "response.queued" if waiting else "response.in_progress"
        self._emitter.emit(name, response=self._base)
        return self._emitter.take()

    def feed(self, event: TurnEvent) -> list[ResponseEvent]:
        if isinstance(event, TurnFinished):
            return self.finish(event)
        for piece in self._view.feed(event):
            self._take(piece)
        return self._emitter.take()

    def finish(
        self, event: TurnFinished, state: RunState | None = None, at: float | None = None
    ) -> list[ResponseEvent]:
        """Take the last event; `state` and `at` say how and when the run ended."""
        if event.error is not None and event.error.code == SHUTDOWN:
            return self.broken(event.error.code, f"{event.error.message} {event.error.hint}")
        for piece in self._view.feed(event):
            self._take(piece)
        for call in event.handed:
            self._call(call)
        status = self._status(event, state)
        self._close_reasoning()
        self._close_message("completed" if status == "completed" else "incomplete")
        self._show_outputs(all_there=True)
        self._base = msgspec.structs.replace(
            self._base,
            status=status,
            completed_at=int(at) if status == "completed" and at is not None else None,
            incomplete_details=self._details(event) if status == "incomplete" else None,
            error=error_of(event.error) if status == "failed" else None,
            usage=usage_of(event.usage),
        )
        self._emitter.emit(_FINAL_EVENT[status], response=self.resource)
        return self._emitter.take()

    def broken(self, code: str, message: str) -> list[ResponseEvent]:
        """Return what is sent when the stream ends although the response does not."""
        text = message.strip()
        error = {"type": "server_error", "code": code, "message": text, "param": None}
        self._emitter.emit("error", code=code, message=text, param=None, error=error)
        return self._emitter.take()

    def _take(self, piece: Piece) -> None:
        match piece:
            case Said():
                self._say(piece)
            case Thought():
                self._think(piece)
            case Completed(message, differs):
                if differs and self._message is not None:
                    self._message.start_over(message.text)
                self._complete(message)
            case ToolStarted() if piece.call_id not in self._calls:
                arguments = msgspec.json.encode(piece.arguments).decode()
                self._call(ToolCall(id=piece.call_id, name=piece.name, arguments=arguments))
            case ToolDone(finished=finished) if finished.call_id in self._awaited:
                self._results[finished.call_id] = finished
                self._show_outputs(all_there=False)
            case ApprovalAsked() | ApprovalAnswered():
                self._approval(piece)
            case TurnStarted() if self._base.status == "queued":
                self._base = msgspec.structs.replace(self._base, status="in_progress")
                self._emitter.emit("response.in_progress", response=self.resource)
            case _:
                pass

    def _approval(self, event: ApprovalAsked | ApprovalAnswered) -> None:
        if isinstance(event, ApprovalAsked):
            name, fields = "request", approval_fields(event.request, self._redact)
        else:
            name, fields = "responded", {"id": event.approval_id, **decision_fields(event.decision)}
        self._emitter.emit(f"hermes.approval.{name}", response_id=self._base.id, **fields)

    # -- what the model says ----------------------------------------------------

    def _say(self, said: Said) -> None:
        self._close_reasoning()
        if self._message is None:
            self._message = _OpenMessage(self._emitter, self._id("msg"), len(self._items))
            self._items.append(self._message.empty())
        if said.again:
            self._message.start_over(said.text)
        else:
            self._message.say(said.text)

    def _think(self, thought: Thought) -> None:
        if self._reasoning is None:
            if self._thought_at == self._replies:
                return  # closed when the model began to speak
            self._reasoning = _OpenReasoning(self._emitter, self._id("rs"), len(self._items))
            self._items.append(self._reasoning.empty())
            self._thought_at = self._replies
        text = self._redact(thought.text)
        if thought.again:
            self._reasoning.start_over(text)
        else:
            self._reasoning.say(text)

    def _complete(self, message: AssistantMessage) -> None:
        self._show_outputs(all_there=True)
        if message.reasoning is not None and message.reasoning.text:
            self._settle_reasoning(message.reasoning.text)
        self._close_reasoning()
        if self._message is not None:
            self._message.commit(message.text)
            self._message.cut_off = message.finish in _CUT_OFF
            if message.tool_calls or message.finish is not FinishReason.LENGTH:
                self._close_message("incomplete" if self._message.cut_off else "completed")
        for call in message.tool_calls:
            self._call(call)
        self._replies += 1

    def _settle_reasoning(self, text: str) -> None:
        """Give the reply the reasoning that is in the ledger."""
        if self._thought_at != self._replies:
            self._think(Thought(text))
        if self._reasoning is not None:
            self._reasoning.commit(self._redact(text))

    # -- tools ------------------------------------------------------------------

    def _call(self, call: ToolCall) -> None:
        if call.id in self._calls:
            return
        number, index = len(self._calls), len(self._items)
        self._calls[call.id] = number
        self._awaited.append(call.id)
        arguments = self._redact(call.arguments)
        item = FunctionCallItem(
            id=f"fc_{self._ids}_{number}",
            call_id=call.id,
            name=call.name,
            arguments=arguments,
            status="completed",
        )
        begun = msgspec.structs.replace(item, arguments="", status="in_progress")
        place = {"item_id": item.id, "output_index": index}
        emit, event = self._emitter.emit, "response.function_call_arguments"
        emit("response.output_item.added", output_index=index, item=begun)
        emit(f"{event}.delta", **place, delta=arguments)
        emit(f"{event}.done", **place, name=call.name, arguments=arguments)
        emit("response.output_item.done", output_index=index, item=item)
        self._items.append(item)

    def _show_outputs(self, *, all_there: bool) -> None:
        """Show outputs in the order of the calls; with `all_there` nothing is waited for."""
        while self._awaited:
            result = self._results.pop(self._awaited[0], None)
            if result is None and not all_there:
                return
            call_id = self._awaited.pop(0)
            if result is not None:
                self._show_output(call_id, result)

    def _show_output(self, call_id: str, result: ToolFinished) -> None:
        unsure = result.outcome in (ToolOutcome.UNKNOWN, ToolOutcome.SKIPPED)
        item = FunctionCallOutputItem(
            id=f"fco_{self._ids}_{self._calls[call_id]}",
            call_id=call_id,
            output=(InputText(text=result.output or result.preview),),
            status="incomplete" if unsure else "completed",
        )
        index = len(self._items)
        self._emitter.emit("response.output_item.added", output_index=index, item=item)
        self._emitter.emit("response.output_item.done", output_index=index, item=item)
        self._items.append(item)

    # -- the end ----------------------------------------------------------------

    def _close_message(self, status: ItemStatus) -> None:
        if self._message is not None:
            self._items[self._message.index] = self._message.close(status)
            self._message = None

    def _close_reasoning(self) -> None:
        if self._reasoning is not None:
            self._items[self._reasoning.index] = self._reasoning.close()
            self._reasoning = None

    @property
    def _finish_reason(self) -> FinishReason:
        return self._view.last.finish if self._view.last else FinishReason.STOP

    def _status(self, event: TurnFinished, state: RunState | None) -> ResponseStatus:
        if event.outcome is TurnState.FAILED:
            return "failed"
        if event.outcome is TurnState.DONE:
            return "incomplete" if self._finish_reason in _CUT_OFF else "completed"
        cancelled = self._base.background if state is None else state is RunState.CANCELLED
        return "cancelled" if cancelled else "incomplete"

    def _details(self, event: TurnFinished) -> IncompleteDetails:
        done = event.outcome is TurnState.DONE
        return IncompleteDetails(reason=_CUT_OFF[self._finish_reason] if done else "interrupted")

    def _output(self) -> Iterator[Item]:
        growing = {each.index: each for each in (self._message, self._reasoning) if each}
        for index, item in enumerate(self._items):
            yield growing[index].snapshot() if index in growing else item

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._ids}_{self._replies}"
