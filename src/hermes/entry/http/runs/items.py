"""The input of a run: text, chat messages, or items as `/v1/responses` has them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from hermes.domain.turn_options import ClientTool
from hermes.entry.http.chat.messages import Conversation, read_conversation
from hermes.entry.http.chat.options import client_tools
from hermes.entry.http.chat.wire import (
    CallIn,
    ChatMessage,
    ContentPart,
    FunctionIn,
    ImageUrl,
    ToolFunction,
    ToolIn,
)
from hermes.entry.http.problems import Problem

__all__ = ["InputItem", "RunTool", "conversation", "tools_of"]

PARTS = frozenset({"text", "input_text", "image_url", "input_image"})
CallId = Annotated[str, Meta(min_length=1, max_length=256)]


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a `function_call`, a `function_call_output`, or a part of a user message."""

    type: str = "message"
    role: str | None = None
    content: str | list[ContentPart] | None = None
    tool_calls: list[CallIn] | None = None
    tool_call_id: CallId | None = None
    call_id: CallId | None = None
    name: str | None = None
    arguments: str = ""
    output: str | list[ContentPart] | None = None
    text: str | None = None
    image_url: ImageUrl | str | None = None


class RunTool(Struct, frozen=True, kw_only=True):
    """A function of the client, in the form of chat completions or of responses."""

    type: str = "function"
    function: ToolFunction | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


def conversation(given: str | Sequence[InputItem], before: Sequence[InputItem]) -> Conversation:
    """Take an input apart, and what was said before it; 400 if they make no conversation."""
    items = (InputItem(role="user", content=given),) if isinstance(given, str) else given
    try:
        return read_conversation(list(_messages([*before, *items])))
    except Problem as problem:
        raise Problem(400, problem.message, code=problem.problem_code, param="input") from problem


def tools_of(tools: Sequence[RunTool]) -> tuple[ClientTool, ...]:
    """Check the tools that a client brings."""
    return client_tools([_tool(tool) for tool in tools])


def _tool(tool: RunTool) -> ToolIn:
    function = tool.function
    if function is None and tool.name is not None:
        function = ToolFunction(
            name=tool.name, description=tool.description, parameters=tool.parameters
        )
    return ToolIn(type=tool.type, function=function)


def _messages(items: Sequence[InputItem]) -> Iterator[ChatMessage]:
    calls: list[CallIn] = []
    for item in items:
        if item.type == "function_call":
            calls.append(_call(item))
            continue
        if calls:
            yield ChatMessage(role="assistant", tool_calls=calls)
            calls = []
        if (message := _message(item)) is not None:
            yield message
    if calls:
        yield ChatMessage(role="assistant", tool_calls=calls)


def _call(item: InputItem) -> CallIn:
    if item.call_id is None or item.name is None:
        raise _bad("A function_call needs `call_id` and `name`.")
    return CallIn(id=item.call_id, function=FunctionIn(name=item.name, arguments=item.arguments))


def _message(item: InputItem) -> ChatMessage | None:
    if item.type == "reasoning":
        return None
    if item.type in PARTS:
        part = ContentPart(type=item.type, text=item.text, image_url=item.image_url)
        return ChatMessage(role="user", content=[part])
    if item.type == "function_call_output":
        return ChatMessage(role="tool", tool_call_id=item.call_id, content=item.output)
    if item.type != "message" or item.role is None:
        raise _bad("An item is a message with a role, a function_call or a function_call_output.")
    return ChatMessage(
        role=item.role,
        content=item.content,
        tool_calls=item.tool_calls,
        tool_call_id=item.tool_call_id,
    )


def _bad(message: str) -> Problem:
    return Problem(400, message, code="invalid_value", param="input")
