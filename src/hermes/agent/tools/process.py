"""process: background processes that `terminal` started.

What an earlier process of Hermes left is known from the session's facts. If it still runs it is
found by the mark in its environment and can be ended; its output is lost. If not, it was cut off.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.terminal import MARK
from hermes.domain.errors import UsageError
from hermes.domain.ports.execution import Environment, ProcessInfo, ShellRun
from hermes.domain.session import ENDED_PROCESSES, PROCESSES
from hermes.domain.tools import Intent, ToolContext, ToolResult, ToolSpec

_POLL_CHARS = 4000
_LOG_LINES = 200
_MAX_WAIT = 600.0

ProcessAction = Literal["list", "poll", "log", "wait", "kill", "write", "submit", "close"]


class ProcessArgs(Struct, frozen=True, kw_only=True):
    action: Annotated[
        ProcessAction,
        Meta(
            description="poll: state and newest output; log: page of output lines;"
            " write: send data to stdin; submit: the same and Enter; close: end stdin"
        ),
    ]
    session_id: Annotated[str, Meta(description="From terminal; not for list")] = ""
    data: str = ""
    timeout: Annotated[float, Meta(description="Seconds to wait, default 60")] = 60.0
    offset: Annotated[int, Meta(description="log: first line, from 1; default the last ones")] = 0
    limit: Annotated[int, Meta(description="log: lines, default 200")] = _LOG_LINES


async def process(args: ProcessArgs, context: ToolContext) -> ToolResult:
    """Manage the background processes of this session."""
    environment = context.environment
    left = await _left_behind(context)
    if args.action == "list":
        lines = [await _found(context, each, args) for each in left]
        lines += await _list(environment, context.clock.now())
        return ToolResult(content="\n".join(lines) or "No background processes.")
    if not args.session_id:
        raise UsageError(f"`{args.action}` needs the session_id of a process.")
    for each in left:
        if each["id"] == args.session_id:
            return ToolResult(content=await _found(context, each, args))
    match args.action:
        case "log":
            return ToolResult(content=await _log(environment, args))
        case "write" | "submit" | "close":
            return ToolResult(content=await _feed(environment, args))
        case "kill":
            info = await environment.kill(args.session_id)
        case _:
            seconds = min(max(args.timeout, 0), _MAX_WAIT) if args.action == "wait" else 0
            info = await environment.wait(args.session_id, seconds)
    return ToolResult(content=_status(info) + await _newest(environment, info.id))


def intent(arguments: dict[str, Any]) -> Intent:
    """Return what a call would type into a process, which may be a shell."""
    if arguments.get("action") not in ("write", "submit"):
        return Intent()
    data, enter = str(arguments.get("data", "")), "\n" * (arguments["action"] == "submit")
    return Intent(command=data + enter, process=str(arguments.get("session_id", "")))


async def _list(environment: Environment, now: float) -> list[str]:
    processes = await environment.processes()
    return [f"{_status(p)} ({now - p.started_at:.0f} s): {p.command}" for p in processes]


async def _left_behind(context: ToolContext) -> list[dict[str, Any]]:
    """Return the processes that another process of Hermes started for this session."""
    known = await context.recall(PROCESSES) or []
    ended = await context.recall(ENDED_PROCESSES) or {}
    here = {each.id for each in await context.environment.processes()}
    return [
        {**each, "exit_code": ended.get(each["id"])}
        for each in known
        if each["owner"] != context.owner and each["id"] not in here
    ]


async def _found(context: ToolContext, left: dict[str, Any], args: ProcessArgs) -> str:
    """Tell what became of a process that was left behind; end it if that is asked."""
    if left["exit_code"] is not None:
        return (
            f"{left['id']} ended with exit code {left['exit_code']} before Hermes was restarted,"
            f" its output is gone: {left['command']}"
        )
    environment = context.environment
    mark = f"{MARK}={left['mark']}"
    script = f"grep -lzx {mark} /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'"
    pids = (await environment.run(ShellRun(script=script, cwd="/"))).output.split()
    if not pids:
        return f"{left['id']} was cut off when Hermes was restarted: {left['command']}"
    if args.action == "kill":
        kill = f"kill {' '.join(pids)}; sleep 1; kill -9 {' '.join(pids)} 2>/dev/null; true"
        await environment.run(ShellRun(script=kill, cwd="/"))
        known = await context.recall(PROCESSES) or []
        await context.remember(PROCESSES, [each for each in known if each["id"] != left["id"]])
        return f"{left['id']} was ended."
    return (
        f"{left['id']} still runs from before Hermes was restarted (pid {', '.join(pids)}); its"
        f" output and input are lost, kill ends it: {left['command']}"
    )


async def _feed(environment: Environment, args: ProcessArgs) -> str:
    if args.action == "close":
        await environment.close_stdin(args.session_id)
        return "Its input is closed."
    data = args.data + "\n" if args.action == "submit" else args.data
    await environment.write_stdin(args.session_id, data)
    return f"Sent {len(data)} characters."


async def _newest(environment: Environment, process_id: str) -> str:
    output, _ = await environment.process_output(process_id, 0)
    if not output.strip():
        return "\n[no output]"
    cut = "[...]\n" if len(output) > _POLL_CHARS else ""
    return f"\n{cut}{output[-_POLL_CHARS:].rstrip()}"


async def _log(environment: Environment, args: ProcessArgs) -> str:
    output, end = await environment.process_output(args.session_id, 0)
    lines = output.splitlines()
    limit = max(1, args.limit)
    start = args.offset - 1 if args.offset > 0 else max(0, len(lines) - limit)
    page = lines[start : start + limit]
    gone = end - len(output)
    note = f" ({gone} older characters are gone)" if gone else ""
    shown = f"[lines {start + 1}-{start + len(page)} of {len(lines)}{note}]"
    return "\n".join([*page, shown]) if page else f"[no output in that range of {len(lines)} lines]"


def _status(info: ProcessInfo) -> str:
    return f"{info.id} {'running' if info.running else f'ended with exit code {info.exit_code}'}"


TOOL = tool(
    process,
    ToolSpec(
        name="process",
        toolset="terminal",
        emoji="⚙️",
        verb="process",
        label_field="action",
        intent=intent,
    ),
)
