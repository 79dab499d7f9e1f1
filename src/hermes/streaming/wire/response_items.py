"""Items: what goes into a response and what comes out of it, as clients see it.

The shapes are those of the Open Responses specification. Fields that it
requires are always sent, also when they are empty.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hermes.streaming.wire.frames import frame

__all__ = [
    "Emitter",
    "FunctionCallItem",
    "FunctionCallOutputItem",
    "GrowingText",
    "InputImage",
    "InputText",
    "Item",
    "ItemStatus",
    "MessageItem",
    "OpenMessage",
    "OpenReasoning",
    "OutputText",
    "ReasoningItem",
    "ResponseEvent",
    "SummaryText",
]


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text that the agent said."""

    text: str
    annotations: tuple[dict[str, Any], ...] = ()
    logprobs: tuple[dict[str, Any], ...] = ()


class InputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_text"):
    """Text that was given to the agent."""

    text: str


class InputImage(Struct, frozen=True, kw_only=True, tag_field="type", tag="input_image"):
    """A picture that was given to the agent."""

    image_url: str | None = None
    """Null if the picture came with the request itself."""
    detail: str = "auto"


class SummaryText(Struct, frozen=True, kw_only=True, tag_field="type", tag="summary_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message to or from the agent."""

    id: str
    status: ItemStatus
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[OutputText | InputText | InputImage, ...] = ()


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a tool: one of the client, or one that the agent ran itself."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class FunctionCallOutputItem(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call_output"
):
    """What a tool call gave back."""

    id: str
    call_id: str
    output: str | tuple[InputText | InputImage, ...]
    status: ItemStatus


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before it spoke."""

    id: str
    summary: tuple[SummaryText, ...] = ()


Item = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem


_encoder = msgspec.json.Encoder()


class ResponseEvent(Struct, frozen=True, kw_only=True, gc=False):
    """One event of a response stream."""

    name: str
    sequence_number: int
    fields: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """Return the event as clients read it."""
        return {"type": self.name, "sequence_number": self.sequence_number, **self.fields}

    def frame(self) -> bytes:
        """Return the event as it is sent."""
        return frame(_encoder.encode(self.body()), self.name)


class Emitter:
    """Collects events until they are taken."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: list[ResponseEvent] = []

    def emit(self, name: str, /, **fields: Any) -> None:
        """Add an event."""
        event = ResponseEvent(name=name, sequence_number=self._next, fields=fields)
        self._next += 1
        self._waiting.append(event)

    def take(self) -> list[ResponseEvent]:
        """Return and clear what was added."""
        taken, self._waiting = self._waiting, []
        return taken


class GrowingText:
    """Text that was sent in pieces, some of which may have become void."""

    def __init__(self, send: Callable[[str], None], begin_anew: Callable[[], None]) -> None:
        self._send = send
        self._begin_anew = begin_anew
        self._sent: list[str] = []
        self._kept = ""
        """What is certain."""
        self._again: str | None = None
        """What was said since a restart, while it repeats what was sent before."""

    @property
    def text(self) -> str:
        """What the client has."""
        return "".join(self._sent)

    def say(self, text: str) -> None:
        """Take a piece."""
        if self._again is None:
            self._pass_on(text)
            return
        self._again += text
        self._catch_up(self._again)

    def reset(self) -> None:
        """Declare void what is not certain."""
        if self.text != self._kept:
            self._again = self._kept

    def commit(self, text: str) -> None:
        """Take the text since the last commit as it is in the ledger."""
        self._kept += text
        if self._again is not None:
            self._catch_up(self._kept, final=True)
        elif self._kept.startswith(sent := self.text):
            self._pass_on(self._kept[len(sent) :])
        self._sent, self._again = [self._kept], None

    def _catch_up(self, said: str, *, final: bool = False) -> None:
        sent = self.text
        if said.startswith(sent):
            self._again = None
            self._pass_on(said[len(sent) :])
        elif final or not sent.startswith(said):
            self._begin_anew()
            self._sent, self._again = [], None
            self._pass_on(said)

    def _pass_on(self, text: str) -> None:
        if text:
            self._sent.append(text)
            self._send(text)


class OpenMessage:
    """The message that the agent is saying."""

    def __init__(self, emitter: Emitter, item_id: str, index: int) -> None:
        self._emitter = emitter
        self._id = item_id
        self.index = index
        self._part = 0
        self.cut_off = False
        """The model stopped at a limit."""
        self.said = GrowingText(self._delta, self._next_part)
        emitter.emit(
            "response.output_item.added", output_index=index, item=self._item("in_progress")
        )
        self._open_part()

    def snapshot(self) -> MessageItem:
        """Return the item as it is now."""
        return self._item("in_progress", self.said.text)

    def close(self, status: ItemStatus) -> MessageItem:
        """End the item and return it."""
        text = self.said.text
        self._close_part(text)
        item = self._item(status, text)
        self._emitter.emit("response.output_item.done", output_index=self.index, item=item)
        return item

    def _item(self, status: ItemStatus, text: str | None = None) -> MessageItem:
        content = () if text is None else (OutputText(text=text),)
        return MessageItem(id=self._id, status=status, role="assistant", content=content)

    def _delta(self, text: str) -> None:
        self._emitter.emit(
            "response.output_text.delta",
            item_id=self._id,
            output_index=self.index,
            content_index=self._part,
            delta=text,
            logprobs=(),
        )

    def _next_part(self) -> None:
        self._close_part(self.said.text)
        self._part += 1
        self._open_part()

    def _open_part(self) -> None:
        self._emitter.emit(
            "response.content_part.added",
            item_id=self._id,
            output_index=self.index,
            content_index=self._part,
            part=OutputText(text=""),
        )

    def _close_part(self, text: str) -> None:
        place = {
            "item_id": self._id,
            "output_index": self.index,
            "content_index": self._part,
        }
        self._emitter.emit("response.output_text.done", **place, text=text, logprobs=())
        self._emitter.emit("response.content_part.done", **place, part=OutputText(text=text))


class OpenReasoning:
    """What the model thinks before it speaks."""

    def __init__(self, emitter: Emitter, item_id: str, index: int) -> None:
        self._emitter = emitter
        self._id = item_id
        self.index = index
        self._part = 0
        self.thought = GrowingText(self._delta, self._next_part)
        emitter.emit(
            "response.output_item.added", output_index=index, item=ReasoningItem(id=item_id)
        )
        self._open_part()

    def snapshot(self) -> ReasoningItem:
        """Return the item as it is now."""
        return ReasoningItem(id=self._id, summary=(SummaryText(text=self.thought.text),))

    def close(self) -> ReasoningItem:
        """End the item and return it."""
        self._close_part(self.thought.text)
        item = self.snapshot()
        self._emitter.emit("response.output_item.done", output_index=self.index, item=item)
        return item

    def _delta(self, text: str) -> None:
        self._emitter.emit("response.reasoning_summary_text.delta", **self._place(), delta=text)

    def _next_part(self) -> None:
        self._close_part(self.thought.text)
        self._part += 1
        self._open_part()

    def _open_part(self) -> None:
        self._emitter.emit(
            "response.reasoning_summary_part.added", **self._place(), part=SummaryText(text="")
        )

    def _close_part(self, text: str) -> None:
        place = self._place()
        self._emitter.emit("response.reasoning_summary_text.done", **place, text=text)
        self._emitter.emit(
            "response.reasoning_summary_part.done", **place, part=SummaryText(text=text)
        )

    def _place(self) -> dict[str, object]:
        return {"item_id": self._id, "output_index": self.index, "summary_index": self._part}
