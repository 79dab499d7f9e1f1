"""ask_agent: a question to another agent of this gateway.

It is a child turn (`control.child_turns`) of the other agent: with its own home, model, tools and
secrets, in a session of its own for each question, under the budget of whoever asks. Nothing of
the asking conversation goes along but the words of the question. `ask_agent.agents` names whom an
agent may ask; `max_depth`, `max_questions`, `max_model_calls` and `timeout` bound it.
"""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.delegate import told
from hermes.domain.errors import AgentUnavailable, ToolRefused, UsageError
from hermes.domain.messages import ToolOutcome
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.settings import Settings
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec
from hermes.domain.wording import one_line

ASK_AGENT = "ask_agent"
"""The name of the tool, and of the condition under which it is offered."""
ASKED = "asked_agents"
"""The fact of a session that counts the questions of its turn: `[turn, calls]`."""


class AskAgentArgs(Struct, frozen=True, kw_only=True):
    agent: Annotated[str, Meta(description="Its id; empty to see whom you may ask")] = ""
    question: Annotated[str, Meta(description="Complete in itself: it sees nothing else")] = ""


async def ask_agent(args: AskAgentArgs, context: ToolContext) -> ToolResult:
    """Ask another agent, which has its own memory, skills and tools, and get its answer."""
    limits, name = context.settings.ask_agent, args.agent.strip().removeprefix("hermes/")
    allowed = _allowed(context.settings, context.agent_id)
    if not limits.enabled or not allowed:
        raise ToolRefused("You may not ask other agents.")
    known = "\n".join(f"- {each}{f': {about}' if about else ''}" for each, about in allowed.items())
    if not name:
        return ToolResult(content=f"You may ask:\n{known}")
    if name not in allowed:
        raise ToolRefused(f"You may not ask `{name}`.", hint=f"You may ask:\n{known}")
    if not args.question.strip():
        raise UsageError("There is no question.")
    await _count(context, limits.max_questions)
    question = context.capabilities.redact(args.question.strip())
    try:
        answer = await context.spawn(
            name,
            f"The agent `{context.agent_id}` asks you (it is no person):\n\n{question}",
            max_model_calls=limits.max_model_calls,
            orchestrator=limits.max_depth > 1,
            depth=limits.max_depth,
            seconds=limits.timeout,
        )
    except AgentUnavailable:
        raise ToolRefused(f"The agent `{name}` cannot answer now.") from None
    outcome = ToolOutcome.ERROR if answer.failed else ToolOutcome.OK
    return ToolResult(content=told(answer), outcome=outcome)


def _allowed(settings: Settings, agent_id: str) -> dict[str, str]:
    """Return whom an agent may ask, and what they are for."""
    there = {DEFAULT_AGENT: None, **settings.agents}
    named = settings.ask_agent.agents
    return {
        each: one_line(str(entry.get("description") or ""), 200) if isinstance(entry, dict) else ""
        for each, entry in there.items()
        if each != agent_id and (each in named or "*" in named)
    }


async def _count(context: ToolContext, limit: int) -> None:
    """Count the questions of a turn; a call that is repeated after a restart counts once."""
    turn, calls = await context.recall(ASKED) or ("", [])
    calls = [*calls] if turn == context.turn_id else []
    if context.call_id not in calls:
        if len(calls) >= limit:
            raise ToolRefused(f"One turn may ask {limit} times.", hint="Go on with what you know.")
        await context.remember(ASKED, [context.turn_id, [*calls, context.call_id]])


def _check(names: frozenset[str]) -> str:
    return (
        "" if ASK_AGENT in names else "ask_agent.enabled is off, or ask_agent.agents names nobody"
    )


TOOL = tool(
    ask_agent,
    ToolSpec(
        name=ASK_AGENT,
        toolset="delegation",
        emoji="🗣️",
        verb="ask",
        label_field="agent",
        needs=frozenset({Need.SPAWN}),
        replay_safe=True,
        own_time=True,
    ),
    check=_check,
)
