"""What a chat request wants of its turn."""

import re
from typing import Any

from hermes.domain.turn_options import ClientTool, TurnOptions
from hermes.entry.http.chat.wire import ChatRequest, NamedChoice, ResponseFormat, ToolIn
from hermes.entry.http.problems import Problem

__all__ = ["client_tools", "turn_options"]

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


def _bad(message: str, param: str) -> Problem:
    return Problem(400, message, code="invalid_value", param=param)
