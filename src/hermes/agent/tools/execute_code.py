"""execute_code: a Python script that calls tools, where the session's commands run.

    tool  <- frames on the bridge's output, answers on its input ->  bridge  <- socket ->  script

The bridge and the module with the stubs are `code_child.py`; it is sent along, so that every
backend with a python3 will do. A call of the script goes through the tools of the turn, with the
same approvals, as a call inside this one. The time that such calls take is not the script's.
"""

import asyncio
import contextlib
import json
import shlex
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from hermes.agent.tools.define import parse_object, tool
from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.domain.messages import ToolOutcome, content_text
from hermes.domain.ports.execution import ShellRun
from hermes.domain.tools import Intent, ToolContext, ToolResult, ToolRunner, ToolSpec

CALLABLE = (
    *("read_file", "write_file", "patch", "search_files", "terminal"),
    *("web_search", "web_extract"),
)
MAX_STDOUT, MAX_STDERR = 50_000, 10_000
_MARK = "hermes:"
_START = (
    "command -v python3 >/dev/null || { echo 'hermes:{\"missing\":1}'; exit; }; exec python3 -c "
)
_LOOK_AGAIN = 1.0
"""How often a silent script is looked at, in case its end was not told."""
_STOP_SECONDS = 5.0


class ExecuteCodeArgs(Struct, frozen=True, kw_only=True):
    code: Annotated[str, Meta(description="Python; only what it prints comes back")]


async def execute_code(args: ExecuteCodeArgs, context: ToolContext) -> ToolResult:
    """Run a Python script for many steps at once.

    `from hermes_tools import read_file, terminal, ...` (file, terminal and web tools, same
    arguments, return text).
    """
    if not args.code.strip():
        raise UsageError("There is no code.")
    environment = context.environment
    frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said = _Frames(frames)
    command = ShellRun(script=_START + shlex.quote(_child_text()), listed=False)
    process = await environment.spawn(command, said.feed)
    try:
        await _send(context, process.id, _given(args, context))
        return await _Conversation(context, process.id, frames, said).result()
    finally:
        with contextlib.suppress(NotFound):
            await environment.kill(process.id)


class _Frames:
    """What the bridge says, line by line; what is no frame is kept to explain a failure."""

    def __init__(self, frames: asyncio.Queue[dict[str, Any]]) -> None:
        self._frames = frames
        self._rest = ""
        self.trouble = ""

    def feed(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            frame = parse_object(line[len(_MARK) :]) if line.startswith(_MARK) else None
            if frame is None:
                self.trouble = f"{self.trouble}{line}\n"[-2000:]
            else:
                self._frames.put_nowait(frame)


class _Conversation:
    def __init__(
        self,
        context: ToolContext,
        process_id: str,
        frames: asyncio.Queue[dict[str, Any]],
        said: _Frames,
    ) -> None:
        self._context = context
        self._process_id = process_id
        self._frames = frames
        self._said = said
        self._left = context.settings.code_execution.timeout
        self._calls = 0

    async def result(self) -> ToolResult:
        while (frame := await self._next()) is not None:
            if "tool" in frame:
                await _send(self._context, self._process_id, await self._answer(frame))
            elif "missing" in frame:
                raise UsageError("There is no python3 where your commands run.")
            else:
                return self._report(frame, timed_out=False)
        if self._left > 0:
            raise HermesError(f"The script could not be run. {self._said.trouble.strip()}".strip())
        return await self._stopped()

    async def _next(self) -> dict[str, Any] | None:
        """Return what the script says next; None when its time is over or it is gone."""
        loop = asyncio.get_running_loop()
        while self._left > 0:
            began = loop.time()
            try:
                async with asyncio.timeout(min(self._left, _LOOK_AGAIN)):
                    return await self._frames.get()
            except TimeoutError:
                with contextlib.suppress(NotFound):
                    info = await self._context.environment.wait(self._process_id, 0)
                    if info.running or not self._frames.empty():
                        continue
                return None
            finally:
                self._left -= loop.time() - began
        return None

    async def _answer(self, frame: dict[str, Any]) -> dict[str, Any]:
        name, arguments, context = str(frame["tool"]), frame["arguments"], self._context
        limit = context.settings.code_execution.max_tool_calls
        self._calls += 1
        if self._calls > limit:
            return {"error": f"A script may make at most {limit} tool calls."}
        if name not in _names(context.tools):
            return {"error": f"`{name}` cannot be called from a script here."}
        about = next((str(value) for value in arguments.values()), "")
        context.progress(f"{name} {about[:120]}")
        result = await context.call(name, arguments, self._calls)
        text = content_text(result.content)
        if result.outcome is not ToolOutcome.OK:
            return {"error": text or f"{name} failed."}
        code = result.failure.removeprefix("exit ")
        return {"content": text, "exit_code": int(code) if code.isdecimal() else 0}

    async def _stopped(self) -> ToolResult:
        """End a script whose time is over; what it printed until then is kept."""
        await _send(self._context, self._process_id, {"stop": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                while "exit" not in (frame := await self._frames.get()):
                    pass
                return self._report(frame, timed_out=True)
        return self._report({}, timed_out=True)

    def _report(self, frame: dict[str, Any], *, timed_out: bool) -> ToolResult:
        exit_code, out, err = frame.get("exit", 0), frame.get("out", ""), frame.get("err", "")
        parts = [out.rstrip("\n")] if out.strip() else []
        if err.strip():
            parts.append(f"[stderr]\n{err.rstrip()}")
        if timed_out:
            limit = self._context.settings.code_execution.timeout
            parts.append(f"[Stopped: a script may run for {limit:g} s. Do less at a time.]")
        elif exit_code:
            parts.append(f"[exit code {exit_code}]")
        return ToolResult(
            content="\n".join(parts) or "[It printed nothing.]",
            outcome=ToolOutcome.ERROR if timed_out else ToolOutcome.OK,
            failure="timed out" if timed_out else f"exit {exit_code}" if exit_code else "",
        )


async def _send(context: ToolContext, process_id: str, message: dict[str, Any]) -> None:
    with contextlib.suppress(HermesError):  # it has ended; its last words are in the queue
        await context.environment.write_stdin(process_id, json.dumps(message) + "\n")


def _given(args: ExecuteCodeArgs, context: ToolContext) -> dict[str, Any]:
    specs = {spec.name: spec for spec in context.tools.specs()} if context.tools else {}
    stubs = [_stub(specs[name]) for name in CALLABLE if name in specs]
    return {
        "code": args.code,
        "module": "\n\n".join([_child_text(), *stubs]),
        "strict": context.settings.code_execution.mode == "strict",
        "stdout": MAX_STDOUT,
        "stderr": MAX_STDERR,
    }


def _stub(spec: ToolSpec) -> str:
    """Return a function with the arguments of a tool, required ones first."""
    fields, required = list(spec.parameters["properties"]), spec.parameters.get("required", [])
    named = [*(f for f in fields if f in required), *(f for f in fields if f not in required)]
    given = ", ".join(name if name in required else f"{name}=None" for name in named)
    values = ", ".join(f"{name!r}: {name}" for name in named)
    return (
        f"def {spec.name}({given}):\n    {spec.description!r}\n"
        f"    return call_tool({spec.name!r}, {{{values}}})\n"
    )


def _names(tools: ToolRunner | None) -> set[str]:
    return {spec.name for spec in tools.specs()} & set(CALLABLE) if tools else set()


@cache
def _child_text() -> str:
    return Path(__file__).with_name("code_child.py").read_text("utf-8")


def intent(arguments: dict[str, Any]) -> Intent:
    return Intent(code=str(arguments.get("code", "")))


TOOL = tool(
    execute_code,
    ToolSpec(
        name="execute_code",
        toolset="code_execution",
        emoji="🐍",
        verb="script",
        label_field="code",
        max_result_chars=MAX_STDOUT + MAX_STDERR + 1000,
        own_time=True,
        intent=intent,
    ),
)
