"""A turn as the events of the Responses API, numbered from 0 without a gap.

The same turn gives the same items under the same ids, numbers and order,
whether its events come live, from a run's log or from the ledger afterwards.
Ids are made of the response's own id and a count, and the outputs of tools
that ran side by side are put in the order of their calls.

A message that the model had to begin again goes on in another part of its
item, and so does its reasoning; the item ends with the text of the last part.

Tools that the agent ran itself are `mcp_call` items of the server `hermes`: clients know
these as done. A `function_call` means that the client has to carry it out.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import AssistantMessage, FinishReason, ToolCall, ToolOutcome
from hermes.domain.runs import Run, RunState
from hermes.domain.turn import TurnState
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView
from hermes.streaming.wire.chat import FELL_SHORT
from hermes.streaming.wire.frames import aside_fields, error_fields, frame, told_logprobs
from hermes.streaming.wire.response_resource import (
    FunctionCallItem,
    FunctionTool,
    IncompleteDetails,
    Item,
    ItemStatus,
    McpCallError,
    McpCallItem,
    MessageItem,
    OutputText,
    ReasoningItem,
    ResponseResource,
    ResponseStatus,
    SummaryText,
    ToolErrorText,
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
_encode = msgspec.json.Encoder().encode


class ResponseEvent(Struct, frozen=True, gc=False):
    name: str
    sequence_number: int
    fields: dict[str, Any]

    def frame(self) -> bytes:
        body = {"type": self.name, "sequence_number": self.sequence_number, **self.fields}
        return frame(_encode(body), self.name)


class _OpenItem:
    """An item whose text still grows."""

    part_event: ClassVar[str]
    text_event: ClassVar[str]
    number_field: ClassVar[str]
    part: ClassVar[type[OutputText] | type[SummaryText]]
    extra: ClassVar[dict[str, Any]] = {}

    def __init__(self, emit: Callable[[str, dict[str, Any]], None], id: str, index: int) -> None:  # noqa: A002 (the field's name)
        self.index = index
        self.id = id
        self._emit = emit
        self._said = ""
        """What the client has of the current part, up to the last commit."""
        self._new: list[str] = []
        self._kept = ""
        """What is certain."""
        self._place: dict[str, Any] = {"item_id": id, "output_index": index, self.number_field: 0}
        added = {"output_index": index, "item": self.item("in_progress")}
        emit("response.output_item.added", added)
        self._open_part()

    def item(self, status: ItemStatus, *parts: str) -> Item:
        raise NotImplementedError

    @property
    def said(self) -> str:
        return self._said + "".join(self._new)

    def say(self, text: str, *, again: bool = False) -> None:
        if again:
            self.start_over(text)
        elif text:
            self._new.append(text)
            self._emit(f"{self.text_event}.delta", {**self._place, "delta": text, **self.extra})

    def start_over(self, text: str) -> None:
        """Go on in another part: what is not certain is void."""
        self._close_part()
        self._place = self._place | {self.number_field: self._place[self.number_field] + 1}
        self._open_part()
        self._said, self._new = "", []
        self.say(self._kept + text)

    def commit(self, text: str) -> None:
        """Take the text since the last commit as it is in the ledger."""
        self._kept += text
        if self._kept.startswith(sent := self.said):
            self.say(self._kept[len(sent) :])
        self._said, self._new = self._kept, []

    def close(self, status: ItemStatus) -> Item:
        self._close_part()
        item = self.item(status, self.said)
        self._emit("response.output_item.done", {"output_index": self.index, "item": item})
        return item

    def _open_part(self) -> None:
        self._emit(f"{self.part_event}.added", {**self._place, "part": self.part(text="")})

    def _close_part(self) -> None:
        text = self.said
        self._emit(f"{self.text_event}.done", {**self._place, "text": text, **self.extra})
        self._emit(f"{self.part_event}.done", {**self._place, "part": self.part(text=text)})


class _OpenMessage(_OpenItem):
    part_event = "response.content_part"
    text_event = "response.output_text"
    number_field = "content_index"
    part = OutputText
    extra: ClassVar[dict[str, Any]] = {"logprobs": ()}

    def item(self, status: ItemStatus, *parts: str) -> MessageItem:
        content = tuple(OutputText(text=text) for text in parts)
        return MessageItem(id=self.id, status=status, role="assistant", content=content)


class _OpenReasoning(_OpenItem):
    part_event = "response.reasoning_summary_part"
    text_event = "response.reasoning_summary_text"
    number_field = "summary_index"
    part = SummaryText

    def item(self, status: ItemStatus, *parts: str) -> ReasoningItem:  # noqa: ARG002 (it has none)
        return ReasoningItem(id=self.id, summary=tuple(SummaryText(text=text) for text in parts))


class ResponseStream:
    """Makes the events and the resource of one response of the events of its turn."""

    def __init__(self, base: ResponseResource, redact: Callable[[str], str] = str) -> None:
        self._base = base
        self._redact = redact
        self._ids = base.id.removeprefix("resp_")
        self._view = TurnView()
        self._sent = 0
        self._events: list[ResponseEvent] = []
        """Made and not yet taken."""
        self._items: list[Item | _OpenItem] = []
        self._message: _OpenMessage | None = None
        self._reasoning: _OpenReasoning | None = None
        self._replies = 0
        """How many messages of the turn are complete."""
        self._thought_at = -1
        """The reply whose reasoning has its item."""
        self._calls: dict[str, int] = {}
        """Call id -> which call of the turn it is."""
        self._client_tools = {tool.name for tool in base.tools if isinstance(tool, FunctionTool)}
        self._awaited: dict[str, int] = {}
        """Own calls that have not ended, in order, and where their items are."""
        self._results: dict[str, ToolFinished] = {}
        self._streamed: dict[str, int] = {}
        """Calls for the client whose arguments are being told, and where their items are."""

    @property
    def resource(self) -> ResponseResource:
        output = tuple(
            each.item("in_progress", each.said) if isinstance(each, _OpenItem) else each
            for each in self._items
        )
        return replace(self._base, output=output)

    def begin(self) -> list[ResponseEvent]:
        self._emit("response.created", {"response": self._base})
        waiting = self._base.status == "queued"
        name = "response.queued" if waiting else "response.in_progress"
        self._emit(name, {"response": self._base})
        return self._taken()

    def feed(self, event: TurnEvent, ended: Run | None = None) -> list[ResponseEvent]:
        """Take the next event; with the last one the run says how and when it ended."""
        if isinstance(event, TurnFinished):
            self._finish(event, ended)
        else:
            self._take_all(event)
        return self._taken()

    def _finish(self, event: TurnFinished, ended: Run | None) -> None:
        if event.error is not None and event.error.code == SHUTDOWN:
            # The stream ends although the response does not.
            fields = {**error_fields(event.error), "param": None}
            self._emit("error", {**fields, "error": {"type": "server_error", **fields}})
            return
        self._take_all(event)
        for call in event.handed:
            self._call(call)
        for index in self._streamed.values():
            item = self._items[index]
            assert isinstance(item, FunctionCallItem)
            self._items[index] = item = replace(item, status="incomplete")
            self._item_done(index, item)
        status, cut_off = self._ending(event, ended)
        self._close_reasoning()
        self._close_message("completed" if status == "completed" else "incomplete")
        self._show_outputs(all_there=True)
        self._tell_logprobs(event.logprobs)
        self._base = replace(
            self._base,
            status=status,
            completed_at=int(ended.updated_at) if ended and status == "completed" else None,
            incomplete_details=IncompleteDetails(reason=cut_off) if cut_off else None,
            error=error_of(event.error) if status == "failed" else None,
            usage=usage_of(event.usage),
        )
        self._emit(_FINAL_EVENT[status], {"response": self.resource})

    def _tell_logprobs(self, told: str) -> None:
        """Put them into the answer, which is the last item."""
        last = self._items[-1] if told and self._items else None
        if isinstance(last, MessageItem) and isinstance(last.content[-1], OutputText):
            part = replace(last.content[-1], logprobs=told_logprobs(told))
            self._items[-1] = replace(last, content=(*last.content[:-1], part))

    def _emit(self, name: str, fields: dict[str, Any]) -> None:
        self._events.append(ResponseEvent(name, self._sent, fields))
        self._sent += 1

    def _taken(self) -> list[ResponseEvent]:
        taken, self._events = self._events, []
        return taken

    def _ending(self, event: TurnFinished, ended: Run | None) -> tuple[ResponseStatus, str | None]:
        """Return the status and, if that is `incomplete`, the reason."""
        if event.outcome is TurnState.FAILED:
            code = event.error.code if event.error else ""
            return ("incomplete", code) if code in FELL_SHORT else ("failed", None)
        if event.outcome is TurnState.DONE:
            last = self._view.last
            cut_off = _CUT_OFF.get(last.finish) if last else None
            return ("incomplete" if cut_off else "completed"), cut_off
        outcome = ended.outcome if ended else None
        cancelled = outcome.state is RunState.CANCELLED if outcome else self._base.background
        return ("cancelled", None) if cancelled else ("incomplete", "interrupted")

    def _take_all(self, event: TurnEvent) -> None:
        for piece in self._view.feed(event):
            self._take(piece)

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
            case CallDelta():
                self._stream_call(piece)
            case ToolStarted() if piece.call_id not in self._calls:
                arguments = msgspec.json.encode(piece.arguments).decode()
                self._call(ToolCall(id=piece.call_id, name=piece.name, arguments=arguments))
            case ToolDone(finished=finished) if finished.call_id in self._awaited:
                self._results[finished.call_id] = finished
                self._show_outputs(all_there=False)
            case ApprovalAsked() | ApprovalAnswered():
                name, fields = aside_fields(piece, self._redact)
                self._emit(f"hermes:{name}", {"response_id": self._base.id, **fields})
            case TurnStarted() if self._base.status == "queued":
                self._base = replace(self._base, status="in_progress")
                self._emit("response.in_progress", {"response": self.resource})
            case _:
                pass

    # -- what the model says ----------------------------------------------------

    def _say(self, said: Said) -> None:
        self._close_reasoning()
        if self._message is None:
            self._message = _OpenMessage(self._emit, self._id("msg"), len(self._items))
            self._items.append(self._message)
        self._message.say(said.text, again=said.again)

    def _think(self, thought: Thought) -> None:
        if self._reasoning is None:
            if self._thought_at == self._replies:
                return  # closed when the model began to speak
            self._reasoning = _OpenReasoning(self._emit, self._id("rs"), len(self._items))
            self._items.append(self._reasoning)
            self._thought_at = self._replies
        self._reasoning.say(self._redact(thought.text), again=thought.again)

    def _complete(self, message: AssistantMessage) -> None:
        self._show_outputs(all_there=True)
        if message.reasoning is not None and message.reasoning.text:
            self._settle_reasoning(message.reasoning.text)
        self._close_reasoning()
        if self._message is not None:
            self._message.commit(message.text)
            if message.tool_calls or message.finish is not FinishReason.LENGTH:
                self._close_message("incomplete" if message.finish in _CUT_OFF else "completed")
        for call in message.tool_calls:
            self._call(call)
        self._replies += 1

    def _settle_reasoning(self, text: str) -> None:
        """Give the reply the reasoning that is in the ledger."""
        if self._thought_at != self._replies:
            self._think(Thought(text))
        if self._reasoning is not None:
            self._reasoning.commit(self._redact(text))

    def _close_message(self, status: ItemStatus) -> None:
        if self._message is not None:
            self._items[self._message.index] = self._message.close(status)
            self._message = None

    def _close_reasoning(self) -> None:
        if self._reasoning is not None:
            self._items[self._reasoning.index] = self._reasoning.close("completed")
            self._reasoning = None

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._ids}_{self._replies}"

    # -- tools ------------------------------------------------------------------

    def _call(self, call: ToolCall) -> None:
        if call.id in self._streamed:
            self._end_streamed(call)
        if call.id in self._calls:
            return
        number = self._calls[call.id] = len(self._calls)
        token, arguments = f"{self._ids}_{number}", self._redact(call.arguments)
        if call.name in self._client_tools:
            self._client_call(f"fc_{token}", call, arguments)
            return
        item = McpCallItem(
            id=f"mcp_{token}", name=call.name, arguments=arguments, status="in_progress"
        )
        place = self._awaited[call.id] = len(self._items)
        self._added(item)
        self._emit("response.mcp_call.in_progress", {"item_id": item.id, "output_index": place})
        self._items.append(item)

    def _stream_call(self, piece: CallDelta) -> None:
        """Tell a piece of the arguments of a call for the client."""
        if piece.call_id not in self._streamed:
            number = self._calls[piece.call_id] = len(self._calls)
            item = FunctionCallItem(
                id=f"fc_{self._ids}_{number}",
                call_id=piece.call_id,
                name=piece.name,
                arguments="",
                status="in_progress",
            )
            self._close_reasoning()
            index = self._streamed[piece.call_id] = len(self._items)
            self._emit("response.output_item.added", {"output_index": index, "item": item})
            self._items.append(item)
        index = self._streamed[piece.call_id]
        item = self._streamed_item(index, piece.arguments)
        place = {"item_id": item.id, "output_index": index}
        event = "response.function_call_arguments.delta"
        self._emit(event, {**place, "delta": piece.arguments})

    def _streamed_item(self, index: int, more: str) -> FunctionCallItem:
        item = self._items[index]
        assert isinstance(item, FunctionCallItem)
        self._items[index] = item = replace(item, arguments=item.arguments + more)
        return item

    def _end_streamed(self, call: ToolCall) -> None:
        """End a call whose arguments were told as they came."""
        index, said = self._streamed.pop(call.id), self._redact(call.arguments)
        item = self._streamed_item(index, "")
        place = {"item_id": item.id, "output_index": index}
        event = "response.function_call_arguments"
        if said.startswith(item.arguments) and (rest := said[len(item.arguments) :]):
            self._emit(f"{event}.delta", {**place, "delta": rest})
        self._emit(f"{event}.done", {**place, "name": call.name, "arguments": said})
        self._items[index] = item = replace(item, arguments=said, status="completed")
        self._item_done(index, item)

    def _client_call(self, item_id: str, call: ToolCall, arguments: str) -> None:
        item = FunctionCallItem(
            id=item_id, call_id=call.id, name=call.name, arguments=arguments, status="completed"
        )
        self._added(item)
        self._item_done(len(self._items), item)
        self._items.append(item)

    def _added(self, item: FunctionCallItem | McpCallItem) -> None:
        """Announce a call and tell its arguments."""
        index = len(self._items)
        empty = replace(item, arguments="", status="in_progress")
        self._emit("response.output_item.added", {"output_index": index, "item": empty})
        ours = isinstance(item, McpCallItem)
        event = f"response.{'mcp' if ours else 'function'}_call_arguments"
        named, said = {} if ours else {"name": item.name}, item.arguments
        place = {"item_id": item.id, "output_index": index}
        self._emit(f"{event}.delta", {**place, "delta": said})
        self._emit(f"{event}.done", {**place, **named, "arguments": said})

    def _item_done(self, index: int, item: Item) -> None:
        self._emit("response.output_item.done", {"output_index": index, "item": item})

    def _show_outputs(self, *, all_there: bool) -> None:
        """End calls in their order; with `all_there` nothing is waited for."""
        while self._awaited:
            call_id = next(iter(self._awaited))
            if not all_there and call_id not in self._results:
                return
            self._end_call(self._awaited.pop(call_id), self._results.pop(call_id, None))

    def _end_call(self, index: int, result: ToolFinished | None) -> None:
        item = self._items[index]
        assert isinstance(item, McpCallItem)
        said = (result.output or result.preview) if result else ""
        error = McpCallError(content=(ToolErrorText(text=said),)) if result else None
        if result is None or result.outcome in (ToolOutcome.UNKNOWN, ToolOutcome.SKIPPED):
            item = replace(item, status="incomplete", error=error)
        elif result.outcome is ToolOutcome.OK:
            item = replace(item, status="completed", output=said)
        else:
            item = replace(item, status="failed", error=error)
        how = "completed" if item.status == "completed" else "failed"
        self._emit(f"response.mcp_call.{how}", {"item_id": item.id, "output_index": index})
        self._item_done(index, item)
        self._items[index] = item
