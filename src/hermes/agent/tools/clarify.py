"""clarify: a question to the person, who answers by button, picker or in their own words.

The question is a ledger row like an approval, bound to the call: after a restart the
call asks again, finds the row, and has the answer that was given meanwhile.
"""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import UsageError
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec

MAX_CHOICES = 4


class ClarifyArgs(Struct, frozen=True, kw_only=True):
    question: str
    choices: Annotated[
        list[str], Meta(description="Up to 4 likely answers; leave out for an open question")
    ] = []


async def clarify(args: ClarifyArgs, context: ToolContext) -> ToolResult:
    """Ask the user when you cannot go on without their answer, and wait for it."""
    question = args.question.strip()
    choices = list(dict.fromkeys(each.strip() for each in args.choices if each.strip()))
    if not question:
        raise UsageError("The question is empty.")
    if len(choices) > MAX_CHOICES:
        raise UsageError(f"At most {MAX_CHOICES} choices; the user may always say something else.")
    answer = await context.ask(question, choices)
    return ToolResult(content=f"The user answered: {answer}")


TOOL = tool(
    clarify,
    ToolSpec(
        name="clarify",
        toolset="clarify",
        emoji="❓",
        verb="ask",
        label_field="question",
        needs=frozenset({Need.ASK}),
        replay_safe=True,
        own_time=True,
    ),
)
