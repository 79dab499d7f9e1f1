"""What every backend promises, checked on each that can run here."""

import asyncio
import os
import shlex
from pathlib import Path

import pytest

from fakes.machines import until
from fakes.toolbox import SCRIPT, SCRIPT_SAYS, Toolbox
from hermes.agent.attachments import MessageFiles, read_attachment
from hermes.control.delivery.files import OutgoingFiles
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.domain.messages import FilePart, UserMessage
from hermes.domain.ports.execution import NOTHING, CommandResult, ProcessInfo, ShellRun, digest
from hermes.domain.ports.ledger import Ledger
from hermes.execution.backend import PooledEnvironment

pytestmark = pytest.mark.parametrize(
    "machine",
    [
        "local",
        pytest.param("ssh", marks=pytest.mark.xdist_group("ssh")),
        "singularity",
        "modal",
        "daytona",
    ],
    indirect=True,
)


async def sh(machine: PooledEnvironment, script: str) -> CommandResult:
    return await machine.run(ShellRun(script=script, timeout=30))


async def ended(machine: PooledEnvironment, pid: str) -> None:
    """Wait until a process on the machine runs no more."""
    state = f"ps -o stat= -p {pid} | grep -v '^Z'"

    async def is_over() -> bool:
        return not (await sh(machine, state)).output.strip()

    await until(is_over)


async def test_a_command_gives_its_output_and_exit_code(machine: PooledEnvironment) -> None:
    result = await sh(machine, "echo out; echo err >&2; printf 'no newline'; exit 7")
    assert (result.exit_code, result.output) == (7, "out\nerr\nno newline")


async def test_exit_codes_of_signals_are_those_of_a_shell(machine: PooledEnvironment) -> None:
    assert (await sh(machine, "kill -9 $$")).exit_code == 137
    assert (await sh(machine, "echo still here")).output == "still here\n"


async def test_directory_exports_and_functions_carry_over(machine: PooledEnvironment) -> None:
    await sh(machine, "mkdir 'a b'; cd 'a b'; export G='x\n\"$y\" `z`'; f() { echo \"f $1\"; }")
    result = await sh(machine, 'printf "%s|" "${PWD##*/}" "$G"; f 1; command -v ls >/dev/null')
    assert (result.exit_code, result.output) == (0, 'a b|x\n"$y" `z`|f 1\n')
    assert result.cwd == machine.cwd
    assert machine.cwd.endswith("/a b")
    await sh(machine, "unset G")
    assert (await sh(machine, "echo ${G-gone}")).output == "gone\n"


async def test_a_directory_may_have_any_name(machine: PooledEnvironment) -> None:
    await sh(machine, r"mkdir $'a\nb\n' && cd $'a\nb\n'")
    assert machine.cwd.endswith("/a\nb\n")
    await machine.write("here", b"1")
    assert (await sh(machine, "ls")).output == "here\n"


async def test_one_commands_directory_and_variables_are_its_own(machine: PooledEnvironment) -> None:
    await sh(machine, "export A=old")
    once = await machine.run(ShellRun(script="echo $A $PWD", cwd="/usr", env={"A": "new; $x"}))
    assert once.output == "new; $x /usr\n"
    assert (await sh(machine, "echo $A")).output == "old\n"
    missing = await machine.run(ShellRun(script="echo no", cwd="/no/such/place"))
    assert missing.exit_code == 1
    assert "No such file" in missing.output


async def test_standard_input_is_passed_on_and_ends(machine: PooledEnvironment) -> None:
    data = bytes(range(1, 256)) * 400 + b"\0\xff"
    counted = await machine.run(ShellRun(script="wc -c; echo done", stdin=data))
    assert counted.output.split() == [str(len(data)), "done"]
    assert (await sh(machine, "cat; echo nothing")).output == "nothing\n"


async def test_output_is_streamed_while_the_command_runs(machine: PooledEnvironment) -> None:
    seen: list[str] = []
    first = asyncio.Event()

    def hear(text: str) -> None:
        seen.append(text)
        if "one\n" in "".join(seen):
            first.set()

    await sh(machine, "mkfifo gate")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            machine.run(ShellRun(script="echo one; read x <gate; echo $x"), hear)
        )
        await first.wait()
        assert not running.done()
        await sh(machine, "echo two >gate")
    assert running.result().output == "one\ntwo\n"


async def test_a_timeout_is_124_and_ends_the_whole_group(machine: PooledEnvironment) -> None:
    script = "sleep 60 & echo $!; wait"
    result = await machine.run(ShellRun(script=script, timeout=1.5))
    assert (result.exit_code, result.timed_out) == (124, True)
    await ended(machine, result.output.strip())


async def test_a_group_that_ignores_the_first_signal_is_killed(machine: PooledEnvironment) -> None:
    script = "trap '' TERM; (trap '' TERM; echo $BASHPID; sleep 60; sleep 60)"
    result = await machine.run(ShellRun(script=script, timeout=1.5))
    assert result.exit_code == 124
    await ended(machine, result.output.strip())


async def test_cancelling_kills_the_whole_group(machine: PooledEnvironment) -> None:
    output: list[str] = []
    started = asyncio.Event()

    def hear(text: str) -> None:
        output.append(text)
        if "".join(output).count("\n") == 2:
            started.set()

    script = "echo $$; sleep 60 & echo $!; wait"
    task = asyncio.ensure_future(machine.run(ShellRun(script=script), hear))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in "".join(output).split():
        await ended(machine, pid)


async def test_cancelling_at_any_moment_leaves_nothing_running(machine: PooledEnvironment) -> None:
    unique = f"{int.from_bytes(os.urandom(4))}"  # other tests' processes may be in sight
    await sh(machine, "true")
    for moment in range(6):
        task = asyncio.ensure_future(
            machine.run(ShellRun(script=f"sleep 6{moment}.{unique}; true"))
        )
        for _ in range(moment):
            await asyncio.sleep(0.003)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    left = await sh(machine, f"ps ax -o args= | grep '^sleep 6[0-9].{unique}'")
    assert left.output == ""


async def test_a_grandchild_does_not_hold_the_command(machine: PooledEnvironment) -> None:
    result = await sh(machine, "sleep 60 & echo $!")
    assert result.exit_code == 0
    await sh(machine, f"kill {result.output}")
    assert (await sh(machine, "yes & exit 5")).exit_code == 5


async def test_long_output_keeps_head_and_tail(machine: PooledEnvironment) -> None:
    result = await machine.run(ShellRun(script="seq 1 20000", max_output=5_000))
    lines = result.output.splitlines()
    assert (lines[0], lines[-1]) == ("1", "20000")
    assert result.truncated_bytes == sum(len(str(n)) + 1 for n in range(1, 20_001)) - 5_000


async def test_long_scripts_are_run(machine: PooledEnvironment) -> None:
    result = await sh(machine, f"text='{'x' * 200_000}'\necho ${{#text}}")
    assert result.output == "200000\n"


async def test_long_scripts_leave_their_state(machine: PooledEnvironment) -> None:
    await sh(machine, f"mkdir sub; cd sub; export A=1; : '{'x' * 200_000}'")
    assert (await sh(machine, "echo ${PWD##*/} $A")).output == "sub 1\n"


async def test_a_null_byte_in_a_script_is_explained(machine: PooledEnvironment) -> None:
    with pytest.raises(HermesError, match="embedded null byte"):
        await sh(machine, "echo a\0b")


@pytest.mark.parametrize(
    "name", ["plain", "with space", "-dash", "new\nline", "tail\n", "quote'\"$x`", "ünï", ".dot"]
)
async def test_files_of_any_name_and_content_survive(machine: PooledEnvironment, name: str) -> None:
    data = bytes(range(256)) * 40
    path = f"deep/er/{name}"
    await machine.write(path, data)
    assert await machine.read(path) == data
    assert await machine.read(path, offset=250, limit=20) == data[250:270]
    assert await machine.read(path, offset=len(data) - 3) == data[-3:]
    found = await machine.stat(path)
    assert found is not None
    assert (found.is_file, found.is_dir, found.size) == (True, False, len(data))
    assert [entry.name for entry in await machine.list_dir("deep/er")] == [name]
    await machine.remove(path)
    assert await machine.stat(path) is None


async def test_a_big_file_survives(machine: PooledEnvironment) -> None:
    data = os.urandom(3_000_000)
    await machine.write("big", data)
    there = await sh(machine, "sha256sum big | cut -c1-64")
    assert await machine.read("big") == data
    assert len(there.output.strip()) == 64


async def test_replacing_a_file_keeps_its_mode_and_goes_through_links(
    machine: PooledEnvironment,
) -> None:
    await sh(machine, "echo old >target; chmod 640 target; ln -s target link")
    with pytest.raises(Conflict, match="changed meanwhile"):
        await machine.write("link", b"lost", digest(b"older"))
    await machine.write("link", b"new", digest(b"old\n"))
    with pytest.raises(Conflict):
        await machine.write("link", b"lost", NOTHING)
    assert (await sh(machine, "cat target; stat -c %a target; readlink link")).output == (
        "new640\ntarget\n"
    )
    assert [entry.name for entry in await machine.list_dir(".")] == ["link", "target"]


async def test_a_directory_is_listed_with_kinds_and_sizes(machine: PooledEnvironment) -> None:
    await sh(machine, "mkdir empty d; printf 123 >d/f; mkdir d/sub; ln -s sub d/link; touch d/-n")
    entries = {entry.name: (entry.is_dir, entry.size) for entry in await machine.list_dir("d")}
    assert entries["f"] == (False, 3)
    assert entries["-n"] == (False, 0)
    assert entries["sub"][0]
    assert entries["link"][0]
    assert await machine.list_dir("empty") == []


async def test_what_is_no_regular_file_is_refused(machine: PooledEnvironment) -> None:
    await sh(machine, "mkdir dir; mkfifo pipe")
    for path in ("dir", "pipe", "/dev/zero"):
        with pytest.raises(UsageError):
            await machine.read(path)
    for path in ("dir", "pipe"):
        with pytest.raises(UsageError):
            await machine.write(path, b"x")
        with pytest.raises(UsageError):
            await machine.remove(path)
    for path in ("missing", "missing/below"):
        assert await machine.stat(path) is None
        with pytest.raises(NotFound):
            await machine.read(path)
        with pytest.raises(NotFound):
            await machine.remove(path)
        with pytest.raises(NotFound):
            await machine.list_dir(path)
    found = await machine.stat("dir")
    assert found is not None
    assert found.is_dir


async def test_home_and_relative_paths_are_resolved_where_the_session_is(
    machine: PooledEnvironment,
) -> None:
    home = (await sh(machine, "echo ~; mkdir -p sub; cd sub")).output.strip()
    assert machine.resolve("~/x") == f"{home}/x"
    assert machine.resolve("../y") == f"{machine.cwd.removesuffix('/sub')}/y"


async def test_a_process_runs_beside_commands_and_is_talked_to(machine: PooledEnvironment) -> None:
    await sh(machine, "export A=carried")
    started = await machine.spawn(
        ShellRun(script="echo $A; read line; echo got $line; cat; exit 4")
    )
    assert (await machine.wait(started.id, 0)).running
    await machine.write_stdin(started.id, "text\n")
    await machine.write_stdin(started.id, "more")
    await machine.close_stdin(started.id)
    done = await machine.wait(started.id, 20)
    assert (done.running, done.exit_code) == (False, 4)
    output, end = await machine.process_output(started.id)
    assert output == "carried\ngot text\nmore"
    assert await machine.process_output(started.id, end - 4) == ("more", end)
    assert machine.idle_since is not None


async def test_killing_a_process_ends_its_children(machine: PooledEnvironment) -> None:
    await sh(machine, "mkfifo ready")
    started = await machine.spawn(ShellRun(script="sleep 60 & echo $! >ready; wait; sleep 60"))
    pid = (await sh(machine, "cat ready")).output.strip()
    assert machine.idle_since is None
    assert not (await machine.kill(started.id)).running
    await ended(machine, pid)


async def test_a_closed_session_goes_on_where_it_was(machine: PooledEnvironment) -> None:
    await sh(machine, "cd /usr; export A=1")
    process = await machine.spawn(ShellRun(script="sleep 60"))
    await machine.close()
    assert await machine.processes() == [], process
    assert (await sh(machine, "echo $PWD ${A-none}")).output == "/usr none\n"


async def test_a_received_file_is_where_commands_find_it(
    machine: PooledEnvironment, tmp_path: Path
) -> None:
    here = tmp_path / "1_0_note.txt"
    here.write_bytes(b"of Ann")
    asked = UserMessage(content=(FilePart(path=str(here), name="my note.txt"),))

    async def opened() -> PooledEnvironment:
        return machine

    files = MessageFiles(read_attachment, opened)
    await files.place([asked])
    (shown,) = await files.shown([asked], vision=False)
    assert isinstance(shown, UserMessage)
    part = shown.content[0]
    assert isinstance(part, FilePart)
    found = await sh(machine, f"cat {shlex.quote(part.path)}")
    assert found.output == "of Ann"
    if part.path != str(here):
        folder = shlex.quote(str(Path(part.path).parent))
        assert (await sh(machine, f"stat -c %a {folder}")).output == "700\n"


class OneMachine:
    """The machine of every session."""

    def __init__(self, machine: PooledEnvironment) -> None:
        self._machine = machine

    async def get(self, agent_id: str, session_id: str, cwd: str | None) -> PooledEnvironment:
        return self._machine

    async def running(self) -> list[ProcessInfo]:
        return []

    async def release(self, session_id: str) -> list[ProcessInfo]:
        return []

    async def close(self) -> None: ...


async def test_files_of_the_session_go_out_and_nothing_hidden_or_elsewhere(
    machine: PooledEnvironment, tmp_path: Path, ledger: Ledger
) -> None:
    if not machine.own:
        pytest.skip("files of this machine go out by folder")
    start = (await sh(machine, "pwd")).output.strip()
    await sh(machine, "echo of Ann > a.txt; echo x > .env.txt; ln -s /etc/passwd link.txt; mkdir b")
    await sh(machine, "cd b; echo deep > c.txt")
    outgoing = OutgoingFiles(OneMachine(machine), ledger, tmp_path / "out", lambda _: (), tmp_path)
    for path, content in ((f"{start}/a.txt", "of Ann\n"), ("c.txt", "deep\n")):
        sent = await outgoing.staged("main", "s1", path)
        assert sent is not None, path
        assert await asyncio.to_thread(Path(sent).read_text) == content
    for path in (f"{start}/.env.txt", f"{start}/link.txt", "/etc/passwd", f"{start}/none.txt"):
        assert await outgoing.staged("main", "s1", path) is None, path
    if machine.exposed == ("/",):
        await sh(machine, f"mkdir -p {start}/.keys; echo x > {start}/.keys/k.txt")
        assert await outgoing.staged("main", "s1", f"{start}/.keys/k.txt") is None


async def test_a_script_calls_tools_from_there(machine: PooledEnvironment) -> None:
    text = await Toolbox(machine).text("execute_code", code=SCRIPT)
    assert text.splitlines()[:2] == SCRIPT_SAYS
