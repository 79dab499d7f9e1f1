"""search_files: lines or file names, through the session's environment."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.search_output import (
    Hit,
    parse_counts,
    parse_lines,
    parse_names,
    render,
)
from hermes.agent.tools.search_script import Search, content_script, files_script
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ports.execution import Command, CommandResult
from hermes.domain.tools import Parallel, ToolContext, ToolResult

__all__ = ["TOOLS", "SearchFilesArgs"]

MAX_LIMIT = 1000
MAX_CONTEXT = 20
_MAX_BYTES = 2_000_000
_TIMEOUT = 60.0


class SearchFilesArgs(Struct, frozen=True, kw_only=True):
    """Arguments of `search_files`."""

    pattern: Annotated[str, Meta(description="Regex; for target files a glob such as *.py")]
    target: Literal["content", "files"] = "content"
    path: Annotated[str, Meta(description="Directory or file, default the current one")] = "."
    file_glob: Annotated[str | None, Meta(description="Only files such as *.ts")] = None
    limit: Annotated[int, Meta(description="Default 50")] = 50
    offset: Annotated[int, Meta(description="Results to skip")] = 0
    output_mode: Literal["content", "files_only", "count"] = "content"
    context: Annotated[int, Meta(description="Lines around each match")] = 0


async def search_files(args: SearchFilesArgs, context: ToolContext) -> ToolResult:
    """Search file contents by regex, or find files by name."""
    if not args.pattern or "\0" in args.pattern + args.path + (args.file_glob or ""):
        raise UsageError("The pattern is empty or has a NUL character.")
    environment = context.environment
    limit, offset = min(max(1, args.limit), MAX_LIMIT), max(0, args.offset)
    around = min(max(0, args.context), MAX_CONTEXT) if args.output_mode == "content" else 0
    search = Search(
        pattern=args.pattern,
        root=environment.resolve(args.path),
        glob=args.file_glob,
        mode=args.output_mode,
        context=around,
        max_lines=(offset + limit + 1) * (2 * around + 2) + 100,
    )
    if await environment.stat(search.root) is None:
        raise NotFound(f"There is nothing at {args.path} to search.")
    script = files_script(search) if args.target == "files" else content_script(search)
    result = await environment.run(
        Command(script=script, cwd="/", timeout=_TIMEOUT, max_output=_MAX_BYTES)
    )
    if args.target == "files":
        names = sorted(parse_names(result.output, search.root))
        found = [Hit(path=name) for name in names]
    else:
        found = _hits(result, search)
    page = [hit for hit in found if hit.is_match][offset : offset + limit + 1]
    text = render(found, page[:limit], around, environment.cwd)
    return ToolResult(content=_with_notes(text, offset, page, limit, result))


def _hits(result: CommandResult, search: Search) -> list[Hit]:
    parse = {"content": parse_lines, "files_only": _names_as_hits, "count": parse_counts}
    found = parse[search.mode](result.output, search.root)
    if not found and result.exit_code and result.output.strip() and not result.timed_out:
        raise UsageError(f"The search failed: {result.output.strip()[:300]}")
    return found


def _names_as_hits(output: str, root: str) -> list[Hit]:
    return [Hit(path=name) for name in parse_names(output, root)]


def _with_notes(text: str, offset: int, page: list[Hit], limit: int, result: CommandResult) -> str:
    notes: list[str] = []
    if len(page) > limit:
        notes.append(f"[More follow: offset={offset + limit}.]")
    if result.timed_out:
        notes.append(f"[Stopped after {_TIMEOUT:g} s; there may be more. Search a smaller path.]")
    if not text:
        text = "Nothing found." if offset == 0 else f"Nothing found from result {offset} on."
    return "\n".join([text, *notes])


TOOLS = (
    tool(
        name="search_files",
        toolset="file",
        emoji="🔎",
        verb="search",
        label_field="pattern",
        parallel=Parallel.ALWAYS,
        path_fields=("path",),
        replay_safe=True,
    )(search_files),
)
