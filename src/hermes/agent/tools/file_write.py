"""write_file: a whole file at once."""

import asyncio
from typing import Any

from msgspec import Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.text_file import (
    MAX_EDITABLE,
    TextFile,
    load_if_there,
    syntax_problem,
    unified_diff,
    until_settled,
)
from hermes.domain.errors import UsageError
from hermes.domain.ports.execution import NOTHING
from hermes.domain.tools import Intent, Parallel, ToolContext, ToolResult, ToolSpec


class WriteFileArgs(Struct, frozen=True, kw_only=True):
    path: str
    content: str


async def write_file(args: WriteFileArgs, context: ToolContext) -> ToolResult:
    """Create or replace a whole file and its directories; use patch to change existing files."""
    environment = context.environment
    if len(args.content) > MAX_EDITABLE:
        raise UsageError("The content is too large for one call.", hint="Use the terminal.")
    data = args.content.encode("utf-8", "surrogateescape")

    async def replaced() -> TextFile | None:
        before = await _previous(args.path, context)
        await environment.write(args.path, data, before.digest if before else NOTHING)
        return before

    before = await until_settled(replaced)
    diff, problem = await asyncio.to_thread(_review, args, before)
    lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
    done = "Replaced" if before else "Wrote"
    text = f"{done} {environment.resolve(args.path)}: {len(data)} bytes, {lines} lines."
    if problem:
        text += f" It does not parse: {problem}."
    return ToolResult(content=text, diff=diff or None)


def intent(arguments: dict[str, Any]) -> Intent:
    return Intent(writes=(str(arguments.get("path", "")),))


async def _previous(path: str, context: ToolContext) -> TextFile | None:
    try:
        return await load_if_there(context.environment, path)
    except UsageError:
        # Binary or too large to compare: what cannot be written is refused by `write`.
        return TextFile(text="")


def _review(args: WriteFileArgs, before: TextFile | None) -> tuple[str, str]:
    diff = unified_diff(args.path, before.text if before else None, args.content)
    return diff, syntax_problem(args.path, args.content)


TOOL = tool(
    write_file,
    ToolSpec(
        name="write_file",
        toolset="file",
        emoji="✍️",
        verb="write",
        label_field="path",
        parallel=Parallel.BY_PATH,
        path_fields=("path",),
        replay_safe=True,
        intent=intent,
    ),
)
