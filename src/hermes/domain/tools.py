"""Tools: what the model may call.

A tool is a typed argument struct, an async function and a `ToolSpec`. A
`ToolRunner` is anything that lists specs and runs calls: the registry is one,
and policy is added by wrapping it (`Approved(Budgeted(Filtered(registry)))`).
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from hermes.domain.messages import Content, ToolCall, ToolOutcome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment

__all__ = [
    "Intent",
    "Parallel",
    "ToolContext",
    "ToolResult",
    "ToolRunner",
    "ToolSpec",
]


class Parallel(StrEnum):
    """When calls of one batch may overlap."""

    ALWAYS = "always"
    """Reads only: may run beside anything."""
    BY_PATH = "by_path"
    """May run beside calls that touch other paths."""
    NEVER = "never"
    """Runs alone, in its place in the order."""


class Intent(Struct, frozen=True, kw_only=True):
    """What a call is about to do, in the terms that policy judges."""

    command: str = ""
    """A shell command it would run."""
    workdir: str | None = None
    """Where that command would run, if not in the session's directory."""
    writes: tuple[str, ...] = ()
    """Files it would create, change or delete."""
    code: str = ""
    """Program text it would run, other than shell."""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """What is known about a tool without running it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments; sorted and stable."""
    toolset: str
    emoji: str = "🔧"
    verb: str = ""
    """What a tool line says it is doing, e.g. `read`."""
    label_field: str = ""
    """The argument that tells calls apart at a glance, e.g. `path`."""
    parallel: Parallel = Parallel.NEVER
    path_fields: tuple[str, ...] = ()
    """Arguments that hold paths, for `Parallel.BY_PATH`."""
    replay_safe: bool = False
    """Running it twice is as good as once: it is run again after a crash."""
    destructive: bool = False
    """Always needs an approval, whatever its arguments."""
    intent: Callable[[dict[str, Any]], Intent] | None = None
    """Tells policy what a call with these arguments would do; None: nothing to judge."""
    max_result_chars: int = 100_000
    client: bool = False
    """Carried out by the program that asked, not here."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool gives back."""

    content: Content
    outcome: ToolOutcome = ToolOutcome.OK
    diff: str | None = None


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a running tool may use. Nothing else is reachable from a tool."""

    agent_id: str
    session_id: str
    turn_id: str
    call_id: str
    environment: Environment
    clock: Clock
    progress: Callable[[str], None]
    """Show something while the call is still running."""
    recall: Callable[[str], Awaitable[Any]]
    """Read a small durable fact of this session."""
    remember: Callable[[str, Any], Awaitable[None]]
    """Keep a small durable fact with this session (JSON-able)."""


class ToolRunner(Protocol):
    """Lists tools and runs calls."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the available tools, sorted by name."""
        ...

    def spec(self, name: str) -> ToolSpec | None:
        """Return the spec of one tool, if it is available."""
        ...

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out `call`. Failures are results; only bugs raise."""
        ...
