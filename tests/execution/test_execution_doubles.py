import asyncio

import pytest

from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import CommandResult, Environment, Environments, ShellRun
from hermes.execution.clock import SystemClock
from hermes.testing import FakeClock
from hermes.testing.environment import FakeEnvironment, FakeEnvironments


async def test_sleepers_wake_in_order_when_time_is_moved() -> None:
    clock = FakeClock(now=1000.0)
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.create_task(sleeper(seconds))
        await clock.until_sleeping(3)
        clock.advance(2.5)
        assert clock.now() == 1002.5
        await asyncio.sleep(0)
        assert woken == [1.0, 2.0]
        assert clock.sleeping == 1
        clock.advance(0.5)
    assert woken == [1.0, 2.0, 3.0]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.ensure_future(clock.sleep(10))
    await clock.until_sleeping()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleeping == 0


async def test_the_system_clock_moves_by_itself() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now() > 1_700_000_000


async def test_the_fake_environment_answers_from_its_script() -> None:
    env = FakeEnvironment(
        files={"a.txt": "hello", "sub/b": b"\x00"},
        answers={
            "ls": "a.txt\n",
            "cd /x": CommandResult(exit_code=0, output="", cwd="/x"),
        },
    )
    port: Environment = env
    heard: list[str] = []
    assert (await port.run(ShellRun(script="ls"), heard.append)).output == "a.txt\n"
    assert heard == ["a.txt\n"]
    assert (await port.run(ShellRun(script="nope"))).exit_code == 127
    assert await port.read("a.txt", offset=1, limit=3) == b"ell"
    assert [entry.name for entry in await port.list_dir(".")] == ["a.txt", "sub"]
    with pytest.raises(UsageError):
        await port.read("sub")
    with pytest.raises(NotFound):
        await port.read("missing")
    await port.run(ShellRun(script="cd /x"))
    assert port.resolve("y") == "/x/y"
    assert [command.script for command in env.commands] == ["ls", "nope", "cd /x"]


async def test_the_fake_environment_keeps_background_processes() -> None:
    env = FakeEnvironment()
    started = await env.spawn(ShellRun(script="serve"))
    await env.write_stdin(started.id, "q\n")
    env.end(started.id, 2, "bye\n")
    assert (await env.wait(started.id, 0)).exit_code == 2
    assert await env.process_output(started.id) == ("bye\n", 4)
    assert env.typed == {started.id: "q\n"}


async def test_fake_environments_are_one_per_session() -> None:
    fakes = FakeEnvironments()
    port: Environments = fakes
    one = await port.get("main", "s1", None)
    assert await port.get("main", "s1", None) is one
    assert await port.get("main", "s2", None) is not one
    await port.release("s1")
    assert isinstance(one, FakeEnvironment)
    assert one.closed
