"""execute_code: scripts that call tools, their limits, and their end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.toolbox import SCRIPT, SCRIPT_SAYS, Toolbox, gone, local_environment
from hermes.agent.tools.wrappers import Approved, Guarded, ToolWrapper
from hermes.domain.errors import ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.settings import Settings
from hermes.domain.settings.execution import CodeExecution
from hermes.domain.tools import ToolContext, ToolSpec


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with local_environment(tmp_path) as environment, asyncio.timeout(40):
        yield Toolbox(environment)


def limited(**limits: Any) -> Settings:
    return Settings(code_execution=CodeExecution(**limits))


async def test_a_script_calls_tools_and_only_what_it_prints_comes_back(box: Toolbox) -> None:
    text = await box.text("execute_code", code=SCRIPT)
    assert text.splitlines()[:2] == SCRIPT_SAYS
    assert "failed: There is no file at nowhere.txt." in text
    assert any(line.startswith("write_file part0.txt") for line in box.progress)
    assert await box.environment.processes() == [], "it is none of the session's processes"


async def test_it_runs_where_the_session_stands_and_tells_how_it_failed(
    box: Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 7\n")
    failed = await box.do(
        "execute_code", code="import helper, sys\nprint(helper.VALUE)\nsys.exit(4)"
    )
    assert failed.content == "7\n[exit code 4]"
    assert failed.failure == "exit 4"
    broken = await box.text("execute_code", code="1/0")
    assert "ZeroDivisionError" in broken
    assert "[exit code 1]" in broken
    assert await box.text("execute_code", code="pass") == "[It printed nothing.]"
    box.settings = limited(mode="strict")
    assert "ModuleNotFoundError" in await box.text("execute_code", code="import helper")


async def test_time_calls_and_output_have_limits(box: Toolbox) -> None:
    box.settings = limited(timeout=0.5)
    late = await box.do("execute_code", code="import time\ntime.sleep(60)")
    assert late.outcome is ToolOutcome.ERROR
    assert str(late.content).endswith("[Stopped: a script may run for 0.5 s. Do less at a time.]")
    box.settings = limited(max_tool_calls=2)
    code = "from hermes_tools import terminal\nfor _ in range(9): print(terminal('echo x'))"
    many = await box.text("execute_code", code=code)
    assert many.startswith("x\nx\n")
    assert "A script may make at most 2 tool calls." in many
    code = "print('a' * 100_000)\nimport sys\nsys.stderr.write('e' * 50_000)"
    much = await box.text("execute_code", code=code)
    assert "bytes cut out" in much
    assert len(much) < 61_000


class Wary:
    """Refuses what deletes."""

    async def admit(
        self, call: ToolCall, _spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> None:
        self.seen = (call.id, context.within)
        if "rm" in str(arguments.get("command")):
            raise ToolRefused("The user refused this.")


async def test_calls_of_a_script_pass_the_same_gate(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    gate = Wary()
    box.tools = Approved(box.tools, gate)
    code = "from hermes_tools import terminal\nterminal('rm kept')"
    assert "The user refused this." in await box.text("execute_code", code=code)
    assert (tmp_path / "kept").exists()
    assert gate.seen == ("call_1:1", "call_1")


class Fewer(ToolWrapper):
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in super().specs() if spec.name != "terminal")


async def test_only_tools_of_the_turn_are_there(box: Toolbox) -> None:
    box.tools = Fewer(box.tools)
    text = await box.text("execute_code", code="from hermes_tools import terminal")
    assert "cannot import name 'terminal'" in text
    code = "import hermes_tools\nhermes_tools.call_tool('execute_code', {'code': '1'})"
    assert "`execute_code` cannot be called" in await box.text("execute_code", code=code)


async def until(ready: Callable[[], bool]) -> None:
    while not ready():  # noqa: ASYNC110 - a file says so
        await asyncio.sleep(0.02)


async def test_an_interrupted_script_is_ended(box: Toolbox, tmp_path: Path) -> None:
    code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    task = asyncio.ensure_future(box.do("execute_code", code=code))
    await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int((tmp_path / "pid").read_text()))


async def test_a_script_gets_the_text_each_time(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("word\n" * 100)
    box.tools = Guarded(box.tools)
    code = "from hermes_tools import read_file\nprint(len({read_file('long') for _ in range(4)}))"
    assert await box.text("execute_code", code=code) == "1"
