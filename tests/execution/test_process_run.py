import asyncio
import os
from pathlib import Path

import pytest

from fakes.toolbox import gone, local_environment
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.host.process import Launch, run


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_output_of_both_streams_comes_in_order(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        result = await shell.run(ShellRun(script="echo one; echo two >&2; echo three"))
    assert (result.exit_code, result.output) == (0, "one\ntwo\nthree\n")


async def test_output_is_passed_on_while_the_command_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    seen = asyncio.Event()
    async with local_environment(tmp_path) as shell, asyncio.timeout(20):
        task = asyncio.ensure_future(
            shell.run(ShellRun(script="echo first; read x < go; echo $x"), lambda _: seen.set())
        )
        await seen.wait()
        await asyncio.to_thread((tmp_path / "go").write_text, "second\n")
        assert (await task).output == "first\nsecond\n"


async def test_standard_input_is_given_or_empty(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        assert (await shell.run(ShellRun(script="cat", stdin=b"in\xff"))).output == "in\ufffd"
        big = await shell.run(ShellRun(script="wc -c", stdin=b"x" * 1_000_000))
        assert big.output.strip() == "1000000"
        assert (await shell.run(ShellRun(script="cat"))).output == ""


async def test_a_timeout_ends_the_whole_group_with_124(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        result = await shell.run(ShellRun(script="sleep 60 & echo $!; wait", timeout=0.3))
    assert (result.exit_code, result.timed_out) == (124, True)
    async with asyncio.timeout(5):
        await gone(int(result.output))


async def test_a_group_that_ignores_the_first_signal_is_killed(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell, asyncio.timeout(10):
        script = "trap '' TERM; (trap '' TERM; echo $BASHPID; sleep 60; sleep 60)"
        result = await shell.run(ShellRun(script=script, timeout=0.2))
        assert result.exit_code == 124
        await gone(int(result.output))


async def test_cancelling_kills_the_group_and_leaves_no_zombie(tmp_path: Path) -> None:
    output: list[str] = []
    started = asyncio.Event()

    def seen(text: str) -> None:
        output.append(text)
        if "".join(output).count("\n") == 2:
            started.set()

    async with local_environment(tmp_path) as shell, asyncio.timeout(20):
        script = "echo $$; sleep 60 & echo $!; wait"
        task = asyncio.ensure_future(shell.run(ShellRun(script=script), seen))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for pid in "".join(output).split():
            await gone(int(pid))
        assert (await shell.run(ShellRun(script="echo still works"))).output == "still works\n"


async def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_command(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell, asyncio.timeout(10):
        result = await shell.run(ShellRun(script="sleep 60 & echo $!"))
        os.kill(int(result.output), 9)
    assert result.exit_code == 0


async def test_a_grandchild_that_writes_for_ever_does_not_hold_the_command(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell, asyncio.timeout(10):
        result = await shell.run(ShellRun(script="yes & echo started; exit 5"))
    assert result.exit_code == 5


async def test_long_output_keeps_its_head_and_tail(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        script = "seq 1 200000"
        result = await shell.run(ShellRun(script=script, max_output=10_000))
    lines = result.output.splitlines()
    assert lines[0] == "1"
    assert lines[-1] == "200000"
    whole = sum(len(str(n)) + 1 for n in range(1, 200_001))
    assert result.truncated_bytes == whole - 10_000
    head = result.output.index("[...")
    assert 3_990 <= head <= 4_001


async def test_a_terminal_is_given_on_request(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        script = "test -t 0 && test -t 1 && echo both; echo direct >/dev/tty; cd /"
        result = await shell.run(ShellRun(script=script, pty=True))
    assert (result.output, result.cwd) == ("both\ndirect\n", "/")


async def test_a_program_that_does_not_exist_is_explained() -> None:
    launch = Launch(argv=("/no/such/program",), env={})
    with pytest.raises(HermesError, match="Cannot start `/no/such/program`"):
        await run(launch, timeout=5, max_output=100)


async def test_text_that_no_program_can_take_is_explained(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        with pytest.raises(HermesError, match="embedded null byte"):
            await shell.run(ShellRun(script="echo a\0b"))


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as shell:
        await shell.run(ShellRun(script="true"))
        before = open_descriptors()
        for pty in (False, True):
            await shell.run(ShellRun(script="sleep 60 & echo hi; kill $!", pty=pty, stdin=b"x"))
        with pytest.raises(HermesError):
            await run(Launch(argv=("/no/such/program",), env={}), timeout=5, max_output=100)
        assert open_descriptors() == before
