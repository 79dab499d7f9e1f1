import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.toolbox import PATH, gone, local_environment
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backends.local import LocalEnvironment
from hermes.execution.host import background
from hermes.execution.host.watch import MAX_WAITING, OutputWatch
from hermes.testing import FakeClock


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    async with local_environment(tmp_path) as environment:
        yield environment


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def started_with_pid(env: LocalEnvironment, script: str) -> tuple[str, int]:
    """Start a process that prints a process id, and wait for that."""
    os.mkfifo(f"{env.cwd}/ready")
    script = script.replace("echo $!;", "echo $! | tee ready;").replace(
        "echo $$;", "echo $$ | tee ready;"
    )
    started = await env.spawn(ShellRun(script=script))
    pid = int(await asyncio.to_thread(Path(env.cwd, "ready").read_text))
    return started.id, pid


async def test_a_process_runs_beside_commands_and_its_output_is_paged(
    env: LocalEnvironment,
) -> None:
    await env.run(ShellRun(script="export A=carried"))
    started = await env.spawn(ShellRun(script="echo $A; read line; echo got $line; exit 4"))
    assert started.running
    assert (await env.wait(started.id, 0)).running
    await env.write_stdin(started.id, "text\n")
    ended = await env.wait(started.id, 10)
    assert (ended.running, ended.exit_code) == (False, 4)
    output, end = await env.process_output(started.id)
    assert output == "carried\ngot text\n"
    assert await env.process_output(started.id, end - 5) == ("text\n", end)
    assert [p.id for p in await env.processes()] == [started.id]


async def test_a_process_does_not_move_the_session(env: LocalEnvironment, tmp_path: Path) -> None:
    started = await env.spawn(ShellRun(script="cd /; export B=1"))
    await env.wait(started.id, 10)
    assert (await env.run(ShellRun(script="echo $PWD ${B-none}"))).output == f"{tmp_path} none\n"


async def test_closing_its_input_lets_a_reader_end(env: LocalEnvironment) -> None:
    for pty in (False, True):
        started = await env.spawn(ShellRun(script="cat", pty=pty))
        await env.write_stdin(started.id, "x\n")
        await env.close_stdin(started.id)
        assert (await env.wait(started.id, 10)).exit_code == 0
        with pytest.raises(HermesError, match="closed"):
            await env.write_stdin(started.id, "y")


async def test_more_input_than_the_pipe_holds_waits_for_the_reader(env: LocalEnvironment) -> None:
    started = await env.spawn(ShellRun(script="head -c 300000 | wc -c"))
    await env.write_stdin(started.id, "x" * 300_000)
    await env.wait(started.id, 10)
    assert (await env.process_output(started.id))[0].strip() == "300000"


async def test_killing_ends_the_children_too(env: LocalEnvironment) -> None:
    script = "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"
    started, pid = await started_with_pid(env, script)
    assert not (await env.kill(started)).running
    await gone(pid)


async def test_closing_the_environment_ends_everything(env: LocalEnvironment) -> None:
    _, pid = await started_with_pid(env, "echo $$; exec sleep 60")
    await env.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await env.processes() == []


async def test_an_unknown_process_is_named(env: LocalEnvironment) -> None:
    with pytest.raises(NotFound, match="proc_x"):
        await env.kill("proc_x")


async def test_finished_processes_are_forgotten_after_half_an_hour_and_make_room(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    env = LocalEnvironment(cwd=str(tmp_path), env={"PATH": PATH}, clock=clock)
    first = await env.spawn(ShellRun(script="true"))
    await env.wait(first.id, 10)
    clock.advance(background.KEEP_FINISHED + 1)
    assert await env.processes() == []
    for _ in range(background.MAX_PROCESSES + 2):
        last = await env.spawn(ShellRun(script="true"))
        await env.wait(last.id, 10)
    assert len(await env.processes()) == background.MAX_PROCESSES
    await env.close()


async def test_a_running_process_never_makes_room(env: LocalEnvironment) -> None:
    for _ in range(background.MAX_PROCESSES):
        await env.spawn(ShellRun(script="exec sleep 60"))
    with pytest.raises(Conflict, match="running already"):
        await env.spawn(ShellRun(script="sleep 60"))


async def test_a_notice_comes_when_a_process_ends_or_prints_what_is_watched(
    tmp_path: Path,
) -> None:
    notices: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    env = LocalEnvironment(
        cwd=str(tmp_path),
        env={"PATH": PATH},
        clock=FakeClock(),
        notify=lambda process_id, text, _: notices.put_nowait((process_id, text)),
    )
    command = ShellRun(
        script="echo starting; echo listening on 80; exit 3",
        notify_on_complete=True,
        watch_patterns=("listening on [0-9]+",),
    )
    started = await env.spawn(command)
    watched, ended = await notices.get(), await notices.get()
    assert watched == (
        started.id,
        f"Background process {started.id} printed a line you watch for: listening on 80",
    )
    assert "ended with exit code 3" in ended[1]
    assert ended[1].endswith("starting\nlistening on 80")
    quiet = await env.spawn(ShellRun(script="sleep 60", notify_on_complete=True))
    await env.close()
    assert notices.empty(), quiet


async def looked_through(watch: OutputWatch) -> int:
    """Wait until everything has been looked at; return how often the loop came round meanwhile."""
    rounds, over = 0, asyncio.Event()
    watch.then(over.set)
    while not over.is_set():
        rounds += 1
        await asyncio.sleep(0)
    return rounds


async def test_watching_is_given_up_when_it_becomes_a_flood() -> None:
    clock = FakeClock()
    told: list[str] = []
    watch = OutputWatch([SafePattern("x")], clock, told.append)
    watch.feed("x1\nx2")
    await looked_through(watch)
    assert told == ["printed a line you watch for: x1"]
    clock.advance(20)
    watch.feed("\n")
    await looked_through(watch)
    assert told[1:] == ["printed a line you watch for: x2"]
    watch.feed("x\nx\nx\nx\n")
    await looked_through(watch)
    assert len(told) == 3
    assert "no longer watched" in told[2]


async def test_what_is_watched_for_is_of_bounded_number_and_can_be_used(
    env: LocalEnvironment,
) -> None:
    def watched(*patterns: str) -> ShellRun:
        return ShellRun(script="exec sleep 60", watch_patterns=patterns)

    for unusable in ("(", "(a+)+$"):
        with pytest.raises(HermesError, match="cannot be used"):
            await env.spawn(watched("fine", unusable))
    with pytest.raises(UsageError, match="at most 8"):
        await env.spawn(watched(*"abcdefghi"))
    started = [await env.spawn(watched(*"abcdefgh")) for _ in range(4)]
    with pytest.raises(Conflict, match="32 patterns are watched for already"):
        await env.spawn(watched("i"))
    await env.kill(started[0].id)
    await env.spawn(watched("i"))


async def test_matching_leaves_the_loop_to_others() -> None:
    told: list[str] = []
    slow = [SafePattern(r"a[^b]*\d" + "x" * n) for n in range(8)]
    watch = OutputWatch(slow, FakeClock(), told.append)
    watch.feed(f"{'a' * 3500}\n" * 100 + "\n".join(f"{'a' * 3500}{n}" for n in range(9)))
    assert told == []
    assert await looked_through(watch) > 50


async def test_a_flood_without_matches_is_looked_at_once_for_each_line() -> None:
    told: list[str] = []
    patterns = [_Counting(each) for each in "bcdefghi"]
    watch = OutputWatch(patterns, FakeClock(), told.append)
    watch.feed("\n" * 500_000)
    await looked_through(watch)
    assert sum(each.searches for each in patterns) == len(patterns)
    watch.feed("found\n")
    await looked_through(watch)
    assert told == ["printed a line you watch for: found"]


async def test_what_waits_to_be_looked_at_is_bounded_and_what_is_left_out_is_said() -> None:
    told: list[str] = []
    watch = OutputWatch([SafePattern("first|last")], FakeClock(), told.append)
    watch.feed("first\n")
    for _ in range(MAX_WAITING // 100_000 + 1):
        watch.feed("x" * 99_999 + "\n")
    watch.feed("last\n")
    await looked_through(watch)
    assert told == [
        "prints more than can be watched; some lines were not looked at.",
        "printed a line you watch for: last",
    ]


class _Counting(SafePattern):
    searches = 0

    def found_in(self, text: str, seconds: float = 1.0) -> bool:
        self.searches += 1
        return super().found_in(text, seconds)
