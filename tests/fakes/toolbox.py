"""Runs tools the way the loop does, in any environment."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.messages import ToolCall, content_text
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environment
from hermes.domain.settings import Settings
from hermes.domain.tools import ToolCapabilities, ToolContext, ToolResult, ToolRunner
from hermes.execution.backends.local import LocalEnvironment
from hermes.execution.clock import SystemClock
from hermes.testing import FakeClock

SCRIPT = """
from hermes_tools import read_file, search_files, terminal, write_file, ToolError
for number in range(3):
    write_file(f"part{number}.txt", f"text {number}\\n")
found = search_files("text", path=".", output_mode="files_only")
print(len(found.splitlines()), read_file("part1.txt"))
result = terminal("echo out; exit 3")
print(result["exit_code"], "out" in result["output"], result.get("error"))
try:
    read_file("nowhere.txt")
except ToolError as error:
    print("failed:", error)
"""
"""Calls every tool that there is everywhere; prints `SCRIPT_SAYS` first."""
SCRIPT_SAYS = ["3 1|text 1", "3 True None"]

PATH = "/usr/local/bin:/usr/bin:/bin"


class Toolbox:
    """Tools bound to one environment; `do` runs one call."""

    def __init__(
        self,
        environment: Environment,
        tools: ToolRunner | None = None,
        clock: Clock | None = None,
        session_id: str = "20261115_120000_abcd1234",
    ) -> None:
        self.environment = environment
        self.tools = tools or ToolRegistry(["code_execution", "file", "terminal", "todo"])
        self.clock: Clock = clock or FakeClock()
        self.session_id = session_id
        self.turn_id = "turn_1"
        self.facts: dict[str, Any] = {}
        self.settings = Settings()
        self.progress: list[str] = []
        self.redact: Callable[[str], str] = str
        self._calls = 0

    async def call(self, tool: str, arguments: str) -> ToolResult:
        """Run a call whose arguments are JSON text."""
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name=tool, arguments=arguments)
        return await self.tools.run(call, self.context(call.id))

    async def do(self, tool: str, **arguments: Any) -> ToolResult:
        """Run a call."""
        return await self.call(tool, json.dumps(arguments))

    async def text(self, tool: str, **arguments: Any) -> str:
        """Run a call and return the text of its result."""
        return content_text((await self.do(tool, **arguments)).content)

    def context(self, call_id: str = "call_0") -> ToolContext:
        """Return a context for one call."""
        return ToolContext(
            agent_id="main",
            session_id=self.session_id,
            turn_id=self.turn_id,
            call_id=call_id,
            environment=self.environment,
            clock=self.clock,
            progress=self.progress.append,
            recall=self._recall,
            remember=self._remember,
            capabilities=ToolCapabilities(settings=lambda: self.settings, redact=self.redact),
            tools=self.tools,
        )

    async def _recall(self, name: str) -> Any:
        return self.facts.get(name)

    async def _remember(self, name: str, value: Any) -> None:
        self.facts[name] = json.loads(json.dumps(value))


async def gone(pid: int) -> None:
    """Wait until a process that was signalled runs no more; reaping it is its parent's business."""
    status = Path(f"/proc/{pid}/stat")
    while True:
        try:
            text = await asyncio.to_thread(status.read_text)
        except (FileNotFoundError, ProcessLookupError):
            return
        if text.rpartition(") ")[2][0] in "ZX":
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def local_environment(
    cwd: Path, notify: Callable[[str, str, int | None], None] = lambda *_: None
) -> AsyncIterator[LocalEnvironment]:
    """Open the `local` backend in `cwd` with a small environment."""
    environment = LocalEnvironment(
        cwd=str(cwd),
        env={"PATH": PATH, "HOME": str(cwd)},
        clock=SystemClock(),
        notify=notify,
        kill_grace=0.5,
    )
    try:
        yield environment
    finally:
        await environment.close()
