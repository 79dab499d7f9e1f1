"""Requests to `/v1/responses`: checked, and repeated in the response and its list of input."""

import re
from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, Meta, Struct, convert, to_builtins
from msgspec.json import encode

from hermes.entry.http.api.conversation import (
    FILES,
    PICTURES,
    TEXTS,
    ContentPart,
    ImageUrl,
    InputItem,
    InputItems,
    Short,
    bad_value,
)
from hermes.entry.http.api.options import (
    AnswerOptions,
    TextOptions,
    ToolChoice,
    name_of,
    own_names,
)
from hermes.streaming.wire.response_resource import (
    CompactionItem,
    ConversationRef,
    FunctionCallItem,
    FunctionCallOutputItem,
    FunctionTool,
    InputFile,
    InputImage,
    InputText,
    Item,
    McpCallError,
    McpCallItem,
    McpTool,
    MessageItem,
    OutputText,
    ReasoningEcho,
    ResponseResource,
    Role,
    TextEcho,
    ToolErrorText,
)

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]


class ConversationName(Struct, frozen=True, kw_only=True):
    """A conversation by its name."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


class CreateResponse(AnswerOptions, frozen=True, kw_only=True):
    """A request for a response."""

    input: str | InputItems | None = None
    instructions: str | None = None
    previous_response_id: Short | None = None
    conversation: Annotated[str, Meta(min_length=1, max_length=256)] | ConversationName | None = (
        None
    )
    """A name of the client's choice; requests under one name are one conversation."""
    conversation_history: tuple[InputItem, ...] | None = None
    """What was said before, for clients that keep it themselves."""
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None
    prompt_cache_key: Short | None = None


_ROLES = get_args(Role)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def conversation_name(body: CreateResponse) -> str | None:
    given = body.conversation
    name = given if given is None or isinstance(given, str) else given.id
    if name is not None and _CONTROL.search(name):
        raise bad_value("The name of a conversation has no control characters.", "conversation")
    return name


_ECHOED = (
    *("previous_response_id", "instructions", "truncation", "temperature", "top_p", "metadata"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "max_output_tokens"),
    *("max_tool_calls", "safety_identifier", "prompt_cache_key", "user", "service_tier"),
)
"""What the response repeats if it was asked for."""


def base_resource(
    body: CreateResponse, response_id: str, model: str, at: float
) -> ResponseResource:
    """Return the response before anything has happened."""
    name, choice = conversation_name(body), body.tool_choice
    given = {field: getattr(body, field) for field in _ECHOED}
    return ResponseResource(
        id=response_id,
        created_at=int(at),
        status="queued" if body.background else "in_progress",
        model=model,
        tools=tuple(
            McpTool(allowed_tools=own_names(tool))
            if tool.type == "mcp"
            else convert(to_builtins(tool.function or tool) | {"type": "function"}, FunctionTool)
            for tool in body.tools or ()
        ),
        tool_choice=_choice_echo(choice) if isinstance(choice, ToolChoice) else choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=_text_echo(body.text),
        reasoning=convert(body.reasoning, ReasoningEcho | None, from_attributes=True),
        store=body.store is not False,
        background=bool(body.background),
        conversation=ConversationRef(id=name) if name else None,
        **{field: value for field, value in given.items() if value is not None},
    )


def _choice_echo(choice: ToolChoice) -> dict[str, Any]:
    if choice.type == "allowed_tools":
        allowed = choice.allowed_tools or choice
        names = ({"type": tool.type, "name": name_of(tool)} for tool in allowed.tools or ())
        return {"type": choice.type, "mode": allowed.mode or "auto", "tools": list(names)}
    return {"type": choice.type, "name": name_of(choice)}


def _text_echo(options: TextOptions | None) -> TextEcho:
    wanted = options.format if options else None
    echo: dict[str, Any] = {"type": wanted.type if wanted else "text"}
    if wanted is not None and wanted.type == "json_schema":
        echo |= {
            "name": wanted.name or "answer",
            "description": wanted.description,
            "schema": wanted.schema,
            "strict": bool(wanted.strict),
        }
    return TextEcho(format=echo, verbosity=(options and options.verbosity) or "medium")


def listed_input(body: CreateResponse, response_id: str) -> tuple[Item, ...]:
    """Return the items of a request under the ids they are listed with."""
    token = response_id.removeprefix("resp_")
    given = () if body.input is None else body.input
    items = (InputItem(role="user", content=given),) if isinstance(given, str) else given
    return tuple(
        _listed(item, f"{token}_in{number}")
        for number, item in enumerate(items)
        if item.type not in ("reasoning", "mcp_list_tools")
    )


def _listed(item: InputItem, token: str) -> Item:
    if item.type in ("compaction", "compaction_summary"):
        return CompactionItem(id=f"cmp_{token}", encrypted_content=item.encrypted_content or "")
    if item.type == "function_call":
        return FunctionCallItem(
            id=f"fc_{token}",
            call_id=item.call_id or "",
            name=item.name or "",
            arguments=item.arguments or "{}",
            status="completed",
        )
    if item.type == "mcp_call":
        return McpCallItem(
            id=f"mcp_{token}",
            name=item.name or "",
            arguments=item.arguments or "{}",
            output=item.output if isinstance(item.output, str) else None,
            error=_error(item.error),
            status="failed" if item.error else "completed",
        )
    if item.type == "function_call_output":
        given = item.output or ""
        return FunctionCallOutputItem(
            id=f"fco_{token}",
            call_id=item.call_id or "",
            output=given if isinstance(given, str) else tuple(map(_given_part, given)),
            status="completed",
        )
    content: str | tuple[ContentPart, ...] = item.content or ""
    if item.type in (*TEXTS, *PICTURES, *FILES):
        content = (convert(item, ContentPart, from_attributes=True),)
    parts = (ContentPart(type="text", text=content),) if isinstance(content, str) else content
    said = item.role == "assistant"
    return MessageItem(
        id=f"msg_{token}",
        status="completed",
        role=convert(item.role if item.role in _ROLES else "user", Role),
        content=tuple(
            OutputText(text=_text(part)) if said else _given_part(part) for part in parts
        ),
        phase=item.phase or UNSET,
    )


def _error(given: Any) -> McpCallError | None:
    said = given if isinstance(given, str) else encode(given).decode()
    return McpCallError(content=(ToolErrorText(text=said),)) if given else None


def _given_part(part: ContentPart) -> InputText | InputImage | InputFile:
    if part.type in FILES:
        given = part.file or part
        return InputFile(filename=given.filename or "file", file_url=given.file_url)
    if part.type not in PICTURES:
        return InputText(text=_text(part))
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    inline = url is None or url[:5].lower() == "data:"
    return InputImage(image_url=None if inline else url, detail=part.detail or "auto")


def _text(part: ContentPart) -> str:
    return part.text or part.refusal or ""
