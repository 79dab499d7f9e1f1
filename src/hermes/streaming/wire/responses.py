"""The events of a turn as those of the Responses API, numbered from 0 without a gap.

The fold is pure: the same turn events give the same items under the same ids,
numbers and order, whether they come live, from a run's log or from the ledger
told afterwards. Ids are made of the response's own id and a count, and the
outputs of tools that ran side by side are put in the order of their calls.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall, ToolOutcome
from hermes.domain.runs import RunState
from hermes.domain.turn import TurnState
from hermes.streaming.wire.frames import approval_fields, decision_fields
from hermes.streaming.wire.response_items import (
    Emitter,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputText,
    Item,
    ItemStatus,
    OpenMessage,
    OpenReasoning,
    ResponseEvent,
)
from hermes.streaming.wire.response_resource import (
    IncompleteDetails,
    ResponseResource,
    ResponseStatus,
    error_of,
    usage_of,
)

__all__ = ["ResponseEvent", "ResponseFold"]

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


class ResponseFold:
    """Follows the turn of one response."""

    def __init__(self, base: ResponseResource, redact: Callable[[str], str] = str) -> None:
        self._base = base
        self._redact = redact
        self._ids = base.id.removeprefix("resp_")
        self._emitter = Emitter()
        self._items: list[Item] = []
        self._message: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._spoke = False
        """A message item was added."""
        self._replies = 0
        """How many messages of the turn are complete."""
        self._thought_at = -1
        """The reply whose reasoning has its item."""
        self._calls: dict[str, int] = {}
        """Call id -> which call of the turn it is."""
        self._awaited: list[str] = []
        """Calls of the last reply whose output has not been shown, in order."""
        self._results: dict[str, ToolFinished] = {}
        self._last_finish = FinishReason.STOP

    @property
    def resource(self) -> ResponseResource:
        """The response as it stands."""
        return msgspec.structs.replace(self._base, output=tuple(self._output()))

    def begin(self) -> list[ResponseEvent]:
        """Return what is sent before the turn begins."""
        self._emitter.emit("response.created", response=self._base)
        waiting = self._base.status == "queued"
        name = "response.queued" if waiting else "response.in_progress"
        self._emitter.emit(name, response=self._base)
        return self._emitter.take()

    def feed(self, event: TurnEvent) -> list[ResponseEvent]:
        """Take an event other than the last and return what is sent for it."""
        match event:
            case TextDelta(text=text):
                self._say(text)
            case ReasoningDelta(text=text):
                self._think(text)
            case TextReset():
                self._start_over()
            case TurnStarted():
                self._started(event)
            case MessageCompleted(message=message):
                self._complete(message)
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case ApprovalAsked() | ApprovalAnswered():
                self._approval(event)
            case TurnFinished():
                return self.finish(event)
            case _:
                pass
        return self._emitter.take()

    def finish(
        self, event: TurnFinished, state: RunState | None = None, at: float | None = None
    ) -> list[ResponseEvent]:
        """Take the last event; `state` and `at` say how and when the run ended."""
        if event.error is not None and event.error.code == SHUTDOWN:
            return self.broken(event.error.code, f"{event.error.message} {event.error.hint}")
        if event.outcome is TurnState.DONE and event.text and not self._spoke:
            self._say(event.text)
        for call in event.handed:
            self._call(call)
        status = self._status(event, state)
        whole: ItemStatus = "completed" if status == "completed" else "incomplete"
        self._close_reasoning()
        self._close_message(whole)
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

    def _approval(self, event: ApprovalAsked | ApprovalAnswered) -> None:
        if isinstance(event, ApprovalAsked):
            name, fields = "request", approval_fields(event.request, self._redact)
        else:
            name, fields = "responded", {"id": event.approval_id, **decision_fields(event.decision)}
        self._emitter.emit(f"hermes.approval.{name}", response_id=self._base.id, **fields)

    # -- what the model says ----------------------------------------------------

    def _say(self, text: str) -> None:
        self._close_reasoning()
        if self._message is None:
            self._message = OpenMessage(self._emitter, self._id("msg"), len(self._items))
            self._items.append(self._message.snapshot())
            self._spoke = True
        self._message.said.say(text)

    def _think(self, text: str) -> None:
        if self._reasoning is None:
            if self._thought_at == self._replies:
                return  # closed when the model began to speak
            self._reasoning = OpenReasoning(self._emitter, self._id("rs"), len(self._items))
            self._items.append(self._reasoning.snapshot())
            self._thought_at = self._replies
        self._reasoning.thought.say(self._redact(text))

    def _start_over(self) -> None:
        if self._message is not None:
            self._message.said.reset()
        if self._reasoning is not None:
            self._reasoning.thought.reset()

    def _started(self, event: TurnStarted) -> None:
        if self._base.status == "queued":
            self._base = msgspec.structs.replace(self._base, status="in_progress")
            self._emitter.emit("response.in_progress", response=self.resource)
        if event.resumes:
            for message in event.earlier[self._replies :]:
                self._complete(message)
            self._start_over()

    def _complete(self, message: AssistantMessage) -> None:
        self._show_outputs(all_there=True)
        if message.reasoning is not None and message.reasoning.text:
            self._settle_reasoning(message.reasoning.text)
        self._close_reasoning()
        if message.text and self._message is None:
            self._say("")
        if self._message is not None:
            self._message.said.commit(message.text)
            self._message.cut_off = message.finish in _CUT_OFF
            if message.tool_calls or message.finish is not FinishReason.LENGTH:
                self._close_message("incomplete" if self._message.cut_off else "completed")
        for call in message.tool_calls:
            self._call(call)
        self._replies += 1
        self._last_finish = message.finish

    def _settle_reasoning(self, text: str) -> None:
        """Give the reply the reasoning that is in the ledger."""
        if self._thought_at != self._replies:
            self._think(text)
        if self._reasoning is not None:
            self._reasoning.thought.commit(self._redact(text))

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
        emit = self._emitter.emit
        emit("response.output_item.added", output_index=index, item=begun)
        emit("response.function_call_arguments.delta", **place, delta=arguments)
        emit(
            "response.function_call_arguments.done",
            **place,
            name=call.name,
            arguments=arguments,
        )
        emit("response.output_item.done", output_index=index, item=item)
        self._items.append(item)

    def _tool_started(self, event: ToolStarted) -> None:
        if event.call_id not in self._calls:
            arguments = msgspec.json.encode(event.arguments).decode()
            self._call(ToolCall(id=event.call_id, name=event.name, arguments=arguments))

    def _tool_finished(self, event: ToolFinished) -> None:
        if event.call_id in self._awaited:
            self._results[event.call_id] = event
            self._show_outputs(all_there=False)

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

    def _status(self, event: TurnFinished, state: RunState | None) -> ResponseStatus:
        if event.outcome is TurnState.FAILED:
            return "failed"
        if event.outcome is TurnState.DONE:
            return "incomplete" if self._last_finish in _CUT_OFF else "completed"
        cancelled = self._base.background if state is None else state is RunState.CANCELLED
        return "cancelled" if cancelled else "incomplete"

    def _details(self, event: TurnFinished) -> IncompleteDetails:
        done = event.outcome is TurnState.DONE
        return IncompleteDetails(reason=_CUT_OFF[self._last_finish] if done else "interrupted")

    def _output(self) -> Iterator[Item]:
        growing: dict[int, Any] = {
            item.index: item for item in (self._message, self._reasoning) if item is not None
        }
        for index, item in enumerate(self._items):
            yield growing[index].snapshot() if index in growing else item

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._ids}_{self._replies}"
