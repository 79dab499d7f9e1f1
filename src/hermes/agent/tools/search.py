"""search_files: lines or file names, through the session's environment."""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.file_read import hidden_place
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.domain.tools import Intent, Parallel, ToolContext, ToolResult, ToolSpec

_MAX_LINE = 400

_END = "\x1f"
"""Stands behind names in place of NUL, which does not get through on every backend."""
_TRANSLATED = r"| tr '\0' '\037'"
_LINE = re.compile(r"(\d+)([:-])([^\n]*)(?:\n|\Z)")
_COUNT = re.compile(r"(\d+)(?:\n|\Z)")
_PLAIN_LINE = re.compile(r"^(/.*?):(\d+)(:)(.*)$", re.MULTILINE)
_PLAIN_COUNT = re.compile(r"^(/.*):(\d+)$", re.MULTILINE)


class Hit(Struct, frozen=True, kw_only=True):
    """A matching line, a line beside one, or a file."""

    path: str
    number: int = 0
    text: str = ""
    is_match: bool = True
    count: str = ""
    """How many lines match in the file, if only that is asked."""

    @property
    def file(self) -> str:
        return self.path.removesuffix(self.count)


def _parsed(output: str, mode: str, root: str) -> list[Hit]:
    """Return the lines, files or counts in what a script printed."""
    ended = _END in output
    if mode == "content":
        lines = _named(_LINE, output) if ended else _PLAIN_LINE.findall(output)
        return [
            Hit(path=_from_root(name, root), number=int(number), text=text, is_match=mark == ":")
            for name, number, mark, text in lines
        ]
    if mode == "count":
        counts = _named(_COUNT, output) if ended else _PLAIN_COUNT.findall(output)
        shown = ((_from_root(name, root), count) for name, count in counts if count != "0")
        return [Hit(path=f"{name}: {count}", count=f": {count}") for name, count in shown]
    names = output.split(_END if ended else "\n")
    return [Hit(path=_from_root(name, root)) for name in names if root in name]


def _named(rest: re.Pattern[str], output: str) -> Iterator[tuple[str, ...]]:
    """Yield names and what follows them, each looked at once, whatever was cut off in between."""
    start, end = 0, output.find(_END)
    while end >= 0:
        follows = rest.match(output, end + 1)
        if follows is not None:
            yield output[start:end], *follows.groups()
        start = end + 1 if follows is None else follows.end()
        end = output.find(_END, start)


def render(found: Iterable[Hit], page: list[Hit], context: int, cwd: str) -> str:
    """Return the hits of `page` and the context lines around them, file by file."""
    wanted = {
        (hit.path, number)
        for hit in page
        for number in range(hit.number - context, hit.number + context + 1)
    }
    lines: list[str] = []
    last_path = None
    for hit in found:
        if (hit.path, hit.number) not in wanted:
            continue
        if hit.path != last_path:
            lines.append(hit.path.removeprefix(cwd.rstrip("/") + "/"))
            last_path = hit.path
        if hit.number:
            mark = ":" if hit.is_match else "-"
            cut = f"{hit.text[:_MAX_LINE]} [...]" if len(hit.text) > _MAX_LINE else hit.text
            lines.append(f"{hit.number}{mark}{cut}")
    return "\n".join(lines)


def _from_root(name: str, root: str) -> str:
    return name[max(0, name.find(root)) :]


# Exit code 1 means "nothing found", so the options are known.
_PROBE = "grep -q {} --null --include=x -e x /dev/null 2>/dev/null || [ $? = 1 ]"

_SKIPPED = (".git", ".hg", ".venv", "__pycache__", "node_modules")


class Search(Struct, frozen=True, kw_only=True):
    """What to look for, and where (an absolute path)."""

    pattern: str
    root: str
    glob: str | None
    mode: str
    context: int
    max_lines: int


def content_script(search: Search) -> str:
    """Return a script that prints matching lines, files or counts.

    Output that is not a result is a message; the exit code is that of the search.
    """
    pattern, root = shlex.quote(search.pattern), shlex.quote(search.root)
    rg = ["rg", "--no-config", "--color=never", "--no-messages", "--null", "--sort=path", "-H"]
    rg += ["--hidden"]
    rg += _MODE[search.mode]["rg"]
    gnu = ["grep", "-rHIs", "--null", "--color=never"]
    gnu += [f"--exclude-dir={name}" for name in _SKIPPED]
    gnu += _MODE[search.mode]["grep"]
    plain = ["grep", "-HsE", *_MODE[search.mode]["grep"]]
    if search.glob:
        rg.append(f"--glob={shlex.quote(search.glob)}")
        gnu.append(f"--include={shlex.quote(search.glob)}")
    rg += [f"--glob=!{name}" for name in _SKIPPED]
    if search.context and search.mode == "content":
        for command in (rg, gnu, plain):
            command += ["-C", str(search.context)]
    rest = f"-e {pattern} -- {root}"
    found = f"{_find(root)} -type f -name {shlex.quote(search.glob or '*')}"
    return (
        "if command -v rg >/dev/null 2>&1; then"
        f" {' '.join(rg)} {rest};"
        f" elif {_PROBE.format('-P')}; then {' '.join(gnu)} -P {rest};"
        f" elif {_PROBE.format('-E')}; then {' '.join(gnu)} -E {rest};"
        f" else {found} -exec {' '.join(plain)} -e {pattern} {{}} +; fi 2>&1"
        f" | head -n {search.max_lines} {_TRANSLATED}; exit ${{PIPESTATUS[0]}}"
    )


_MODE = {
    "content": {"rg": ["-n", "--no-heading"], "grep": ["-n"]},
    "files_only": {"rg": ["-l"], "grep": ["-l"]},
    "count": {"rg": ["-c"], "grep": ["-c"]},
}


def files_script(search: Search) -> str:
    """Return a script that prints the files whose name matches a glob."""
    glob = re.sub(r"^(\*\*/)+", "", search.pattern).replace("**/", "*")
    test = f"-path {shlex.quote('*/' + glob)}" if "/" in glob else f"-name {shlex.quote(glob)}"
    return f"{_find(shlex.quote(search.root))} -type f {test} -print0 2>/dev/null {_TRANSLATED}"


def _find(root: str) -> str:
    pruned = " -o ".join(f"-name {shlex.quote(name)}" for name in _SKIPPED)
    return f"find {root} \\( -type d \\( {pruned} \\) -prune \\) -o"


MAX_LIMIT = 1000
MAX_CONTEXT = 20
_MAX_BYTES = 2_000_000
_TIMEOUT = 60.0


class SearchFilesArgs(Struct, frozen=True, kw_only=True):
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
        if environment.hides(search.root):
            raise hidden_place(environment, args.path)
        raise NotFound(f"There is nothing at {args.path} to search.")
    script = files_script(search) if args.target == "files" else content_script(search)
    result = await environment.run(
        ShellRun(script=script, cwd="/", timeout=_TIMEOUT, max_output=_MAX_BYTES)
    )
    mode = "files_only" if args.target == "files" else search.mode
    found = _parsed(result.output, mode, search.root)
    if args.target == "files":
        found.sort(key=lambda hit: hit.path)
    elif not found and result.exit_code and result.output.strip() and not result.timed_out:
        why = result.output.strip().partition("\n\nConsider ")[0]  # options of ripgrep, not ours
        raise UsageError(
            f"The search failed: {why[:300]}",
            hint="A pattern is matched line by line, without look-around and back-references.",
        )
    hidden = frozenset[str]()
    if args.target == "content" and mode != "files_only":
        hidden = await context.capabilities.hidden(context, list({hit.file: 0 for hit in found}))
        found = [hit for hit in found if hit.file not in hidden]
    page = [hit for hit in found if hit.is_match][offset : offset + limit + 1]
    text = render(found, page[:limit], around, environment.cwd)
    text = _with_notes(text, offset, page, limit, result)
    if not page and environment.hides(search.root):
        text += "\n[The sandbox does not show what the machine has there.]"
    if hidden:
        cwd = environment.cwd.rstrip("/") + "/"
        names = ", ".join(sorted(path.removeprefix(cwd) for path in hidden))
        text += f"\n[Left out, for they may hold secrets: {names}. read_file asks for them.]"
    return ToolResult(content=text)


def _with_notes(text: str, offset: int, page: list[Hit], limit: int, result: CommandResult) -> str:
    notes: list[str] = []
    if len(page) > limit:
        notes.append(f"[More follow: offset={offset + limit}.]")
    if result.timed_out:
        notes.append(f"[Stopped after {_TIMEOUT:g} s; there may be more. Search a smaller path.]")
    if not text:
        text = "Nothing found." if offset == 0 else f"Nothing found from result {offset} on."
    return "\n".join([text, *notes])


TOOL = tool(
    search_files,
    ToolSpec(
        name="search_files",
        toolset="file",
        emoji="🔎",
        verb="search",
        label_field="pattern",
        parallel=Parallel.ALWAYS,
        path_fields=("path",),
        replay_safe=True,
        intent=lambda arguments: Intent(reads=(str(arguments.get("path") or "."),)),
    ),
)
