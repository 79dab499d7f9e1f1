"""todo: the plan of a long task, kept with the session."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from hermes.agent.tools.define import tool
from hermes.domain.errors import UsageError
from hermes.domain.tools import ToolContext, ToolResult, ToolSpec

TODO_FACT = "todo"
"""The durable fact of the session under which the list is kept."""

MAX_TODOS = 256

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todo(Struct, frozen=True, kw_only=True):
    id: str
    content: str = ""
    status: Status = "pending"


class TodoArgs(Struct, frozen=True, kw_only=True):
    todos: Annotated[list[Todo] | None, Meta(description="Leave out to read the list")] = None
    merge: Annotated[bool, Meta(description="Update by id instead of replacing the list")] = False


async def todo(args: TodoArgs, context: ToolContext) -> ToolResult:
    """Keep a list of steps for tasks with three or more; only one in_progress at a time."""
    stored: list[dict[str, Any]] = await context.recall(TODO_FACT) or []
    todos = {item["id"]: Todo(**item) for item in stored}
    if args.todos is not None:
        if not args.merge:
            todos = {}
        for item in args.todos:
            known = todos.get(item.id)
            content = item.content or (known.content if known else "")
            if not content:
                raise UsageError(f"The step {item.id} needs `content`.")
            todos[item.id] = replace(item, content=content)
        if len(todos) > MAX_TODOS:
            raise UsageError(f"The list takes at most {MAX_TODOS} steps.")
        await context.remember(TODO_FACT, to_builtins(list(todos.values())))
    lines = [f"{_MARKS[item.status]} {item.id}: {item.content}" for item in todos.values()]
    return ToolResult(content="\n".join(lines) or "The list is empty.")


TOOL = tool(
    todo,
    ToolSpec(
        name="todo",
        toolset="todo",
        emoji="📋",
        verb="plan",
        replay_safe=True,
    ),
)
