"""terminal: a shell command, in the foreground or in the background."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import UsageError
from hermes.domain.ids import new_id
from hermes.domain.messages import ToolOutcome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.domain.session import KEPT_INSIDE, PROCESSES
from hermes.domain.tools import Intent, Offer, ToolContext, ToolResult, ToolSpec
from hermes.domain.wording import one_line, visible_line

MAX_FOREGROUND = 600.0
_MAX_OUTPUT = 2_000_000
"""Bytes that are kept; what is too long for the model goes to a file."""
MARK = "HERMES_PROCESS"
"""The variable by which a background process is found again after a restart."""
_REMEMBERED = 19
_EVIDENCE_READ, _EVIDENCE_SHOWN = 4000, 200
_PLAIN_QUOTES = str.maketrans("“”„‟«»", '"' * 6)
_PROGRESS_EVERY = 1.0
_PROGRESS_CHARS = 200


class TerminalArgs(Struct, frozen=True, kw_only=True):
    command: str
    background: Annotated[bool, Meta(description="Return at once; follow it with `process`")] = (
        False
    )
    timeout: Annotated[float | None, Meta(description="Seconds, default 180, at most 600")] = None
    workdir: Annotated[str | None, Meta(description="Directory for this command only")] = None
    escalate: Annotated[
        str,
        Meta(
            description="Why it must leave the sandbox: needs keys, files or services outside."
            " What was exported inside stays there"
        ),
    ] = ""
    pty: Annotated[bool, Meta(description="Give it a terminal, for interactive programs")] = False
    notify_on_complete: Annotated[bool, Meta(description="Background: tell me when it ends")] = (
        False
    )
    watch_patterns: Annotated[
        list[str], Meta(description="Background: tell me when a line matches a regex; at most 8")
    ] = []


async def terminal(args: TerminalArgs, context: ToolContext) -> ToolResult:
    """Run a bash command; the directory and exported variables carry over to the next one.

    Use the file tools instead of cat, sed, grep or find.
    """
    if not args.command.strip():
        raise UsageError("The command is empty.")
    if args.background:
        return await _start(args, context)
    if args.notify_on_complete or args.watch_patterns:
        raise UsageError("notify_on_complete and watch_patterns need background=true.")
    before = context.environment.cwd
    usual = context.settings.terminal.timeout
    timeout = min(max(usual if args.timeout is None else args.timeout, 1.0), MAX_FOREGROUND)
    result = await context.environment.run(
        ShellRun(
            script=args.command,
            cwd=args.workdir,
            timeout=timeout,
            max_output=_MAX_OUTPUT,
            pty=args.pty,
            outside=_leaves(args, context),
        ),
        _Progress(context).show,
    )
    content = _report(result, before, timeout)
    if result.walled and not result.repeatable:
        content += await _part_that_failed(result.walled, context)
    return ToolResult(
        content=content,
        outcome=ToolOutcome.ERROR if result.timed_out else ToolOutcome.OK,
        failure=_failure(result),
        offer=_offer(result, context) if result.walled and result.repeatable else None,
    )


async def _part_that_failed(why: str, context: ToolContext) -> str:
    """Return what to say of several commands: no offer, for those that worked are not repeated."""
    hint = f"\n[The sandbox may be why: {why}. What worked before it has had its effect"
    if why in (await context.recall(KEPT_INSIDE) or []):
        return f"{hint}; the user did not want such a thing outside.]"
    return f"{hint}: `escalate` with a reason can ask for the part that failed, and that alone.]"


def _offer(result: CommandResult, context: ToolContext) -> Offer:
    """Return how the command could run outside; the person sees what it has printed about it."""
    reason = f"it has run in the sandbox and failed there: {result.walled}"
    said = visible_line(context.capabilities.redact(result.evidence[:_EVIDENCE_READ]))
    # In other quotation marks: those around it stay the only ones.
    said = one_line(said.translate(_PLAIN_QUOTES), _EVIDENCE_SHOWN)
    return Offer(arguments={"escalate": reason}, reason=result.walled, said=said)


def _leaves(args: TerminalArgs, context: ToolContext) -> bool:
    environment = context.environment
    if args.escalate and not environment.can_leave and environment.exposed != ("/",):
        raise UsageError(
            "Commands cannot leave the sandbox here.", hint="Do it inside, or say what is missing."
        )
    return bool(args.escalate) and environment.can_leave


def intent(arguments: dict[str, Any]) -> Intent:
    workdir = arguments.get("workdir")
    return Intent(
        command=str(arguments.get("command", "")),
        workdir=str(workdir) if workdir is not None else None,
        escalate=str(arguments.get("escalate") or ""),
    )


async def _start(args: TerminalArgs, context: ToolContext) -> ToolResult:
    mark = new_id("bg")
    process = await context.environment.spawn(
        ShellRun(
            script=args.command,
            cwd=args.workdir,
            env={MARK: mark},
            pty=args.pty,
            outside=_leaves(args, context),
            notify_on_complete=args.notify_on_complete,
            watch_patterns=tuple(args.watch_patterns),
        )
    )
    known = await context.recall(PROCESSES) or []
    notify = args.notify_on_complete or bool(args.watch_patterns)
    about = {
        "id": process.id,
        "mark": mark,
        "command": args.command[:500],
        "owner": context.owner,
        "notify": notify,
    }
    await context.remember(PROCESSES, [*known[-_REMEMBERED:], about])
    return ToolResult(
        content=f"Started in the background with session_id {process.id}."
        " Follow it with the `process` tool."
    )


def _failure(result: CommandResult) -> str:
    if result.timed_out:
        return "timed out"
    return f"exit {result.exit_code}" if result.exit_code else ""


def _report(result: CommandResult, before: str, timeout: float) -> str:
    parts = [result.output.rstrip("\n")] if result.output.strip() else []
    if result.timed_out:
        parts.append(
            f"[Stopped after {timeout:g} s, exit code {result.exit_code}."
            " Use background=true for what takes longer.]"
        )
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    if result.cwd != before:
        parts.append(f"[now in {result.cwd}]")
    return "\n".join(parts) or "[no output]"


class _Progress:
    """Shows the newest output now and then, not each piece."""

    def __init__(self, context: ToolContext) -> None:
        self._clock: Clock = context.clock
        self._show = context.progress
        self._next = context.clock.monotonic() + _PROGRESS_EVERY

    def show(self, piece: str) -> None:
        now = self._clock.monotonic()
        if now >= self._next and piece.strip():
            self._next = now + _PROGRESS_EVERY
            self._show(piece.strip()[-_PROGRESS_CHARS:])


TOOL = tool(
    terminal,
    ToolSpec(
        name="terminal",
        toolset="terminal",
        emoji="💻",
        verb="run",
        max_result_chars=50_000,
        label_field="command",
        intent=intent,
    ),
)
