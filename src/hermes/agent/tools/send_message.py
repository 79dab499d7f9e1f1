"""send_message: a message to another chat than the one that is answered."""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import UsageError
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec

MAX_CHARS = 20_000


class SendMessageArgs(Struct, frozen=True, kw_only=True):
    target: Annotated[str, Meta(description="platform, or platform:chat[:thread]")]
    message: Annotated[str, Meta(description="Text; files go only into your own answer")]


async def send_message(args: SendMessageArgs, context: ToolContext) -> ToolResult:
    """Send a message to another chat; not for answering here."""
    if not args.message.strip() or len(args.message) > MAX_CHARS:
        raise UsageError(f"The message must have between 1 and {MAX_CHARS} characters.")
    if any(line.strip().startswith("MEDIA:") for line in args.message.splitlines()):
        raise UsageError(
            "Files cannot be sent to another chat.",
            hint="Leave the MEDIA line out, or answer here.",
        )
    context.unsecret(args.message)
    await context.send(args.target.strip(), args.message)
    return ToolResult(content=f"It goes to {args.target}.")


TOOL = tool(
    send_message,
    ToolSpec(
        name="send_message",
        toolset="messaging",
        emoji="📨",
        verb="send to",
        label_field="target",
        replay_safe=True,
        needs=frozenset({Need.SEND}),
    ),
)
