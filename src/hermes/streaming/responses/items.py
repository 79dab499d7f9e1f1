"""Items: what goes into a response and what comes out of it, as clients see it.

The shapes are those of the Open Responses specification. Fields that it
requires are always sent, also when they are empty.
"""

from typing import Any, Literal

from msgspec import Struct

__all__ = [
    "FunctionCallItem",
    "FunctionCallOutputItem",
    "InputImage",
    "InputText",
    "Item",
    "ItemStatus",
    "MessageItem",
    "OutputText",
    "ReasoningItem",
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
