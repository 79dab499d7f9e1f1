import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.toolbox import Toolbox, local_environment
from hermes.agent.tools import process, terminal
from hermes.domain.messages import ToolOutcome
from hermes.domain.ports.execution import CommandResult
from hermes.domain.settings import Settings
from hermes.domain.settings.execution import Terminal
from hermes.testing import FakeClock
from hermes.testing.environment import FakeEnvironment


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with local_environment(tmp_path) as env, asyncio.timeout(30):
        yield Toolbox(env)


async def test_output_exit_code_and_directory_are_reported(tools: Toolbox) -> None:
    assert await tools.text("terminal", command="echo hi") == "hi"
    assert await tools.text("terminal", command="true") == "[no output]"
    assert await tools.text("terminal", command="echo no; exit 3") == "no\n[exit code 3]"
    assert await tools.text("terminal", command="cd /usr") == "[now in /usr]"
    assert await tools.text("terminal", command="pwd", workdir="/") == "/"
    assert await tools.text("terminal", command="pwd") == "/usr"


async def test_a_command_that_fails_is_not_a_failed_call_but_a_timeout_is(tools: Toolbox) -> None:
    assert (await tools.do("terminal", command="false")).outcome is ToolOutcome.OK
    result = await tools.do("terminal", command="echo so far; sleep 60", timeout=0.1)
    assert result.outcome is ToolOutcome.ERROR
    assert str(result.content).startswith("so far\n[Stopped after 1 s, exit code 124.")


async def test_a_foreground_command_never_gets_more_than_ten_minutes() -> None:
    env = FakeEnvironment(answers={"x": ""})
    await Toolbox(env).do("terminal", command="x", timeout=99_999)
    assert env.commands[0].timeout == 600
    box = Toolbox(env)
    box.settings = Settings(terminal=Terminal(timeout=7))
    await box.do("terminal", command="x")
    assert env.commands[1].timeout == 7


async def test_progress_is_shown_now_and_then() -> None:
    clock = FakeClock()
    env = FakeEnvironment(answers={"x": "newest line\n"})
    tools = Toolbox(env, clock=clock)
    await tools.do("terminal", command="x")
    assert tools.progress == [], "too early"

    class Slow(FakeEnvironment):
        async def run(self, command, on_output=None) -> CommandResult:  # type: ignore[no-untyped-def]
            clock.advance(2)
            return await super().run(command, on_output)

    tools = Toolbox(Slow(answers={"x": "newest line\n"}), clock=clock)
    await tools.do("terminal", command="x")
    assert tools.progress == ["newest line"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "  "},
        {"command": "x", "watch_patterns": ["y"]},
        {"command": "x", "notify_on_complete": True},
    ],
)
async def test_calls_that_make_no_sense_are_errors(
    tools: Toolbox, arguments: dict[str, object]
) -> None:
    assert (await tools.do("terminal", **arguments)).outcome is ToolOutcome.ERROR


async def test_a_background_process_is_followed_fed_and_ended(tools: Toolbox) -> None:
    assert await tools.text("process", action="list") == "No background processes."
    started = await tools.text(
        "terminal", command="while read x; do echo got $x; done; exit 7", background=True
    )
    found = re.search(r"proc_\w+", started)
    assert found is not None
    name = found[0]
    assert (
        await tools.text("process", action="poll", session_id=name)
        == f"{name} running\n[no output]"
    )
    await tools.do("process", action="write", session_id=name, data="o")
    await tools.do("process", action="submit", session_id=name, data="ne")
    await tools.do("process", action="submit", session_id=name, data="two")
    await tools.do("process", action="close", session_id=name)
    ended = await tools.text("process", action="wait", session_id=name, timeout=10)
    assert ended == f"{name} ended with exit code 7\ngot one\ngot two"
    log = await tools.text("process", action="log", session_id=name, offset=2, limit=1)
    assert log == "got two\n[lines 2-2 of 2]"
    assert f"{name} ended with exit code 7" in await tools.text("process", action="list")


async def test_a_background_process_is_killed(tools: Toolbox) -> None:
    started = await tools.text("terminal", command="exec sleep 60", background=True)
    name = re.findall(r"proc_\w+", started)[0]
    assert "ended with exit code 143" in await tools.text("process", action="kill", session_id=name)


async def test_an_unknown_process_is_an_error_that_lists_the_known(tools: Toolbox) -> None:
    result = await tools.do("process", action="poll", session_id="proc_none")
    assert result.outcome is ToolOutcome.ERROR
    assert "known: none" in str(result.content)
    assert (await tools.do("process", action="poll")).outcome is ToolOutcome.ERROR
    assert (await tools.do("process", action="dance")).outcome is ToolOutcome.ERROR


def test_policy_is_told_the_command_and_what_is_typed_into_a_process() -> None:
    run, feed = terminal.TOOL.spec.intent, process.TOOL.spec.intent
    assert run is not None
    assert feed is not None
    intent = run({"command": "rm -rf x", "workdir": "/"})
    assert (intent.command, intent.workdir) == ("rm -rf x", "/")
    assert feed({"action": "submit", "data": "rm -rf /"}).command == "rm -rf /\n"
    assert feed({"action": "poll"}).command == ""
