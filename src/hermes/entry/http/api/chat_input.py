"""From the messages of a chat request to what a session understands.

    system, developer      -> instructions for this turn
    everything before      -> history, for a session that is opened for the request
    the tool results and   -> what is new: results for calls that wait in a session,
    user messages at the end  or the end of the history; then the input

The history is checked like OpenAI does: every call has its result right after
it, and every result its call. Clients reuse call ids; within one history a
second call under the same id gets a new one, together with its result.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from hermes.domain.ids import new_call_id
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    FinishReason,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.turn import ClientResult, ClientTool, TurnOptions
from hermes.entry.http.api.chat_wire import (
    CallIn,
    ChatMessage,
    ChatRequest,
    ContentPart,
    NamedChoice,
    ResponseFormat,
    ToolIn,
)
from hermes.entry.http.context import MediaShelf
from hermes.entry.http.errors import Problem
from hermes.entry.http.media import MAX_PICTURES, picture

__all__ = [
    "Conversation",
    "Picture",
    "SaidBefore",
    "client_tools",
    "history_of",
    "read_conversation",
    "turn_options",
]


_SYSTEM = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")


class Picture(Struct, frozen=True):
    """A picture that a message shows."""

    url: str
    param: str


class SaidBefore(Struct, frozen=True, kw_only=True):
    """One message, checked: text, pictures, and calls or the call it answers."""

    role: str
    where: str
    """Its place in the request, for errors."""
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""

    @property
    def empty(self) -> bool:
        """True if it says nothing at all."""
        return not (self.text.strip() or self.pictures or self.calls or self.call_id)


class Conversation(Struct, frozen=True, kw_only=True):
    """A request's messages, taken apart."""

    instructions: str
    earlier: tuple[SaidBefore, ...]
    """Everything before the input, including `results`."""
    results: tuple[ClientResult, ...]
    """Tool results directly before the input."""
    text: str
    pictures: tuple[Picture, ...]


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Take the messages of a request apart; 400 if they make no valid conversation."""
    read = [_said(message, f"messages[{at}]") for at, message in enumerate(messages)]
    talk = [said for said in read if said.role not in _SYSTEM]
    if not talk:
        raise _bad("There is no message from the user.", "messages")
    if talk[-1].role == "assistant":
        raise _bad("The last message has to be from the user or a tool.", "messages")
    if sum(len(said.pictures) for said in talk) > MAX_PICTURES:
        raise _bad(f"There are more than {MAX_PICTURES} pictures.", "messages")
    earlier = talk[: _last(talk, "user")]
    new = talk[len(earlier) :]
    results = earlier[_last(earlier, "tool") :]
    pictures = tuple(shown for said in new for shown in said.pictures)
    text = _joined(said.text for said in new)
    if new and not text and not pictures:
        raise _bad("The last message is empty.", f"{new[-1].where}.content")
    return Conversation(
        instructions=_joined(said.text for said in read if said.role in _SYSTEM),
        earlier=_checked(earlier),
        results=tuple(ClientResult(call_id=said.call_id, content=said.text) for said in results),
        text=text,
        pictures=pictures,
    )


async def history_of(said: Sequence[SaidBefore], media: MediaShelf) -> tuple[Message, ...]:
    """Return the history that a new session begins with."""
    history: list[Message] = []
    seen: set[str] = set()
    names: dict[str, ToolCall] = {}
    for one in said:
        match one.role:
            case "user":
                history.append(UserMessage(content=await _content(one, media)))
            case "assistant":
                names = {call.id: _unique(call, seen) for call in one.calls}
                calls = tuple(names.values())
                finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
                history.append(AssistantMessage(text=one.text, tool_calls=calls, finish=finish))
            case _:
                call = names[one.call_id]
                history.append(ToolMessage(call_id=call.id, name=call.name, content=one.text))
    return tuple(history)


def _last(said: Sequence[SaidBefore], role: str) -> int:
    """Return where the run of messages of one role begins that ends it."""
    at = len(said)
    while at and said[at - 1].role == role:
        at -= 1
    return at


def _joined(texts: Iterator[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _checked(said: Sequence[SaidBefore]) -> tuple[SaidBefore, ...]:
    """Check that calls and results belong together; put results in the order of the calls."""
    checked: list[SaidBefore] = []
    waiting: dict[str, SaidBefore | None] = {}
    for one in said:
        if one.role == "tool":
            if one.call_id not in waiting or waiting[one.call_id] is not None:
                text = f"The tool result for `{one.call_id}` follows no call of that id."
                raise _bad(text, f"{one.where}.tool_call_id")
            waiting[one.call_id] = one
            continue
        checked += _results(waiting)
        waiting = {call.id: None for call in one.calls}
        if len(waiting) < len(one.calls):
            raise _bad("Two calls of one message have the same id.", f"{one.where}.tool_calls")
        if not one.empty:
            checked.append(one)
    return (*checked, *_results(waiting))


def _results(waiting: dict[str, SaidBefore | None]) -> Iterator[SaidBefore]:
    for call_id, result in waiting.items():
        if result is None:
            raise _bad(f"The call `{call_id}` has no tool result after it.", "messages")
        yield result


def _said(message: ChatMessage, where: str) -> SaidBefore:
    text, pictures = _read_content(message, where)
    match message.role:
        case "system" | "developer" | "user":
            return SaidBefore(role=message.role, where=where, text=text, pictures=pictures)
        case "assistant":
            calls = tuple(_call(call, where) for call in message.tool_calls or ())
            return SaidBefore(role="assistant", where=where, text=text, calls=calls)
        case "tool":
            if not message.tool_call_id:
                raise _bad("A tool result needs the id of its call.", f"{where}.tool_call_id")
            return SaidBefore(role="tool", where=where, text=text, call_id=message.tool_call_id)
        case _:
            roles = "system, developer, user, assistant or tool"
            raise _bad(f"The role `{message.role}` is not one of {roles}.", f"{where}.role")


def _call(call: CallIn, where: str) -> ToolCall:
    if call.type != "function":
        raise _bad("Only calls of functions are supported.", f"{where}.tool_calls")
    return ToolCall(
        id=call.id, name=call.function.name, arguments=call.function.arguments.strip() or "{}"
    )


def _read_content(message: ChatMessage, where: str) -> tuple[str, tuple[Picture, ...]]:
    content = message.content
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    pictures: list[Picture] = []
    for at, part in enumerate(content):
        param = f"{where}.content[{at}]"
        if part.type in _TEXTS:
            texts.append(part.text or "")
        elif part.type == "refusal" and message.role == "assistant":
            texts.append(part.refusal or "")
        elif part.type in _PICTURES and message.role == "user":
            pictures.append(_picture(part, f"{param}.image_url"))
        else:
            what = f"`{part.type}` is not supported in a message of the role `{message.role}`"
            raise _bad(f"{what}; text is, and `image_url` from the user.", f"{param}.type")
    return "\n".join(texts), tuple(pictures)


def _picture(part: ContentPart, param: str) -> Picture:
    if part.image_url is None:
        raise _bad("The address of the picture is missing.", param)
    url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
    return Picture(url, param)


async def _content(said: SaidBefore, media: MediaShelf) -> Content:
    if not said.pictures:
        return said.text
    parts: list[Part] = [TextPart(said.text)] if said.text else []
    for shown in said.pictures:
        kept = await picture(shown.url, media, shown.param)
        parts.append(FilePart(path=kept.path, name=kept.name, media_type=kept.media_type))
    return tuple(parts)


def _unique(call: ToolCall, seen: set[str]) -> ToolCall:
    kept = call
    if call.id in seen:
        kept = ToolCall(id=new_call_id(), name=call.name, arguments=call.arguments)
    seen.add(kept.id)
    return kept


def _bad(message: str, param: str) -> Problem:
    return Problem(400, message, code="invalid_value", param=param)


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_CHOICES = ("auto", "none", "required")


def turn_options(request: ChatRequest, instructions: str) -> TurnOptions:
    """Check the wishes of a request and put them into our words."""
    if request.n not in (None, 1):
        raise _bad("Only one answer at a time is given: `n` has to be 1.", "n")
    if request.functions:
        raise _bad("`functions` is not supported. Use `tools`.", "functions")
    tools = client_tools(request.tools or ())
    return TurnOptions(
        instructions=instructions,
        client_tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        temperature=request.temperature,
        reasoning_effort=request.reasoning_effort,
        response_schema=_schema(request.response_format),
    )


def client_tools(tools: list[ToolIn] | tuple[ToolIn, ...]) -> tuple[ClientTool, ...]:
    """Check the tools that the client brings."""
    names: set[str] = set()
    checked: list[ClientTool] = []
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        function = tool.function
        if tool.type != "function" or function is None:
            raise _bad("Only tools of the type `function` are supported.", f"{where}.type")
        param = f"{where}.function.name"
        if not _NAME.match(function.name) or function.name in _CHOICES:
            text = "A function name is 1 to 64 letters, digits, underscores or hyphens"
            raise _bad(f"{text}, and not one of {', '.join(_CHOICES)}.", param)
        if function.name in names:
            raise _bad(f"There are two functions `{function.name}`.", param)
        names.add(function.name)
        checked.append(
            ClientTool(
                name=function.name,
                description=function.description or "",
                parameters=function.parameters or {"type": "object", "properties": {}},
            )
        )
    return tuple(checked)


def _tool_choice(choice: str | NamedChoice | None, tools: tuple[ClientTool, ...]) -> str | None:
    if choice is None or choice == "auto":
        return None
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise _bad("`tool_choice` is auto, none, required or a function.", "tool_choice")
        return choice
    name = choice.function.name
    if all(tool.name != name for tool in tools):
        raise _bad(f"There is no function `{name}` in `tools`.", "tool_choice.function.name")
    return name


def _schema(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise _bad("The schema is missing.", "response_format.json_schema.schema")
    return wanted.json_schema.schema
