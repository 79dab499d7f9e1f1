"""A tool that says what it is told, fails on request, and needs nothing."""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.agent.tools.define import Check, Tool, always_available, tool
from hermes.domain.errors import ToolRefused, UsageError
from hermes.domain.tools import ToolContext, ToolResult, ToolSpec


class Inner(Struct, frozen=True, kw_only=True):
    """Not for the model."""

    size: int = 0


class EchoArgs(Struct, frozen=True, kw_only=True):
    """Not for the model."""

    text: Annotated[str, Meta(description="What to say")]
    times: int = 1
    loud: bool = False
    inner: Inner | None = None
    tags: list[str] = []


async def echo(args: EchoArgs, context: ToolContext) -> ToolResult:
    """Say something."""
    if args.text == "refuse":
        raise ToolRefused("Not that.", hint="Say something else.")
    if args.text == "fail":
        raise UsageError("It failed.", hint="Try again.")
    if args.text == "bug":
        raise ZeroDivisionError
    inner = f" {args.inner.size}" if args.inner else ""
    text = args.text.upper() if args.loud else args.text
    return ToolResult(content=" ".join([text] * args.times) + inner + "".join(args.tags))


def echo_tool(*, max_result_chars: int = 100_000, check: Check = always_available) -> Tool:
    """Make the tool, in the toolset `extra`."""
    spec = ToolSpec(name="echo", toolset="extra", max_result_chars=max_result_chars)
    return tool(echo, spec, check)
