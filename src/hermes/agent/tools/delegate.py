"""delegate_task: child agents that work on tasks of their own.

Each task is a child turn (`control.child_turns`): a session of its own with a fresh context, a
budget of model calls, and at most the tools of whoever asks. The call may be repeated after a
restart: it finds the same children and waits for them.
"""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.agent.tools.define import spill, tool
from hermes.agent.tools.toolsets import resolve_toolsets
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.messages import ToolOutcome
from hermes.domain.settings.agent import ToolDelegation
from hermes.domain.tools import Need, Spawned, ToolContext, ToolResult, ToolSpec
from hermes.domain.wording import one_line

MAX_TASKS = 20
NEVER = frozenset({"clarify", "memory", "send_message", "cronjob", "skill_manage", "ask_agent"})
"""What no child has: it speaks and remembers for nobody."""
LEAF = frozenset({"delegate_task", "execute_code"})
"""What only orchestrators have."""

Role = Literal["leaf", "orchestrator"]


class Task(Struct, frozen=True, kw_only=True):
    goal: str
    context: str = ""
    toolsets: list[str] = []
    role: Role = "leaf"


class DelegateTaskArgs(Struct, frozen=True, kw_only=True):
    goal: Annotated[str, Meta(description="One task: what to achieve, complete in itself")] = ""
    context: Annotated[str, Meta(description="What the child must know: it sees nothing else")] = ""
    toolsets: Annotated[list[str], Meta(description="Fewer tools than yours")] = []
    role: Annotated[Role, Meta(description="orchestrator may delegate further")] = "leaf"
    tasks: Annotated[list[Task], Meta(description="Several tasks at once, in place of goal")] = []
    background: Annotated[bool, Meta(description="Return at once; the report comes later")] = False


async def delegate_task(args: DelegateTaskArgs, context: ToolContext) -> ToolResult:
    """Give self-contained tasks to child agents and get their reports; several run in parallel."""
    given = Task(goal=args.goal, context=args.context, toolsets=args.toolsets, role=args.role)
    tasks = args.tasks or [given]
    if args.tasks and args.goal.strip():
        raise UsageError("Give `goal` or `tasks`, not both.", hint="Put the goal into `tasks`.")
    if any(not each.goal.strip() for each in tasks):
        raise UsageError("A task needs a goal.", hint="Give `goal`, or `tasks` with a goal each.")
    if len(tasks) > MAX_TASKS:
        raise UsageError(f"At most {MAX_TASKS} tasks at once.")
    limits = context.settings.delegation
    slots, done = asyncio.Semaphore(limits.max_concurrent_children), 0

    async def run(number: int, task: Task) -> Spawned:
        nonlocal done
        async with slots:
            spawned = await _spawned(context, limits, task, number, background=args.background)
        done += 1
        if len(tasks) > 1:
            context.progress(f"{done} of {len(tasks)} tasks ended")
        return spawned

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run(n, each)) for n, each in enumerate(tasks, start=1)]
    ended = [each.result() for each in running]
    outcome = ToolOutcome.ERROR if all(each.failed for each in ended) else ToolOutcome.OK
    result = ToolResult(content=_report(tasks, ended), outcome=outcome)
    return await spill(result, limits.max_summary_chars * len(tasks), context)


async def _spawned(
    context: ToolContext, limits: ToolDelegation, task: Task, number: int, *, background: bool
) -> Spawned:
    leads = task.role == "orchestrator" and limits.orchestrator_enabled
    about = f"\n\nContext:\n{task.context.strip()}" if task.context.strip() else ""
    try:
        return await context.spawn(
            context.agent_id,
            f"{task.goal.strip()}{about}",
            name=str(number),
            tools=_tools(context, task, leads=leads),
            max_model_calls=limits.max_iterations,
            orchestrator=leads,
            background=background,
            seconds=limits.child_timeout_seconds,
        )
    except HermesError as error:
        return Spawned(session_id="", text=f"{error.message} {error.hint}".strip(), failed=True)


def _tools(context: ToolContext, task: Task, *, leads: bool) -> tuple[str, ...]:
    """Return the tools of a child: of those of the turn, what the task may have."""
    specs = context.tools.specs() if context.tools else ()
    ours = {spec.name: spec.toolset for spec in specs if not spec.client}
    wanted = resolve_toolsets(task.toolsets or ["all"], (), ours)
    if wanted.unknown:
        known = ", ".join(sorted(set(ours.values())))
        raise UsageError(f"There is no toolset `{wanted.unknown[0]}`.", hint=f"Yours: {known}.")
    return tuple(sorted((wanted.tools & ours.keys()) - NEVER - (frozenset() if leads else LEAF)))


def _report(tasks: list[Task], ended: list[Spawned]) -> str:
    if len(ended) == 1:
        return told(ended[0])
    titles = [f"## Task {n}: {one_line(each.goal, 80)}" for n, each in enumerate(tasks, start=1)]
    return "\n\n".join(f"{title}\n{told(each)}" for title, each in zip(titles, ended, strict=True))


def told(child: Spawned) -> str:
    if child.running:
        return (
            f"Started in the background as {child.session_id}."
            " You are told when it has ended: go on, or end your turn."
        )
    spent = child.spent
    cost = f", ${spent.cost_usd:.4f}" if spent.calls > spent.unpriced_calls else ""
    used = f"[{child.session_id}: {spent.calls} model calls, {spent.tokens} tokens{cost}]"
    failed = "It failed: " if child.failed else ""
    return f"{failed}{child.text}\n{used if child.session_id else ''}".rstrip()


TOOL = tool(
    delegate_task,
    ToolSpec(
        name="delegate_task",
        toolset="delegation",
        emoji="🧑‍🔧",
        verb="delegate",
        label_field="goal",
        needs=frozenset({Need.SPAWN}),
        replay_safe=True,
        own_time=True,
    ),
)
