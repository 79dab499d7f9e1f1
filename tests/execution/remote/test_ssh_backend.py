import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fakes.machines import environment, until
from fakes.sshd import Sshd, running_sshd, sshd_missing
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment

pytestmark = pytest.mark.xdist_group("ssh")


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[Sshd]:
    """An sshd that a test may stop and start."""
    if reason := sshd_missing():
        pytest.skip(reason)
    (tmp_path / "own").mkdir()
    with running_sshd(tmp_path / "own") as server:
        yield server


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(ShellRun(script=script, timeout=30))).output


async def open_error(options: dict[str, object]) -> HermesError:
    with pytest.raises(HermesError) as caught:
        async with environment("ssh", options):
            pass
    assert caught.value.hint
    return caught.value


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for control sockets that no other test uses."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


def masters(sockets: Path) -> set[int]:
    """Return the master connections whose control socket is in a place."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if f"{sockets}/hermes-ssh-".encode() in line and b"[mux]" in line:
            found.add(int(path.parent.name))
    return found


def no_masters(sockets: Path) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return not await asyncio.to_thread(masters, sockets)

    return check


async def test_a_host_must_be_configured() -> None:
    assert "terminal.ssh_host" in (await open_error({})).hint


async def test_an_unknown_host_is_named(sshd: Sshd) -> None:
    error = await open_error({**sshd.options, "ssh_host": "no-such-host.invalid"})
    assert isinstance(error, ConfigError)
    assert "`no-such-host.invalid` is not known" in error.message


async def test_a_refused_key_is_explained(sshd: Sshd, tmp_path: Path) -> None:
    key = tmp_path / "other key"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    await asyncio.to_thread(subprocess.run, argv, check=True)
    error = await open_error({**sshd.options, "ssh_key": str(key)})
    assert "refuses the key" in error.message


async def test_a_port_where_nothing_listens_is_explained(own_sshd: Sshd) -> None:
    own_sshd.stop()
    error = await open_error(own_sshd.options)
    assert f"port {own_sshd.port}" in error.message


async def test_a_host_whose_key_changed_is_not_trusted(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    other = (sshd.directory / "key.pub").read_text()
    known.write_text(f"[127.0.0.1]:{sshd.port} {other}")
    error = await open_error({**sshd.options, "known_hosts": str(known)})
    assert "another key than before" in error.message


async def test_a_missing_program_is_explained(sshd: Sshd) -> None:
    error = await open_error({**sshd.options, "program": "/no/such/ssh"})
    assert "/no/such/ssh" in error.message


async def test_commands_share_one_connection(sshd: Sshd, sockets: Path) -> None:
    async with environment("ssh", sshd.options) as machine:
        for _ in range(3):
            await sh(machine, "true")
        await asyncio.gather(*(sh(machine, "true") for _ in range(5)))
        assert len(masters(sockets)) == 1
    await until(no_masters(sockets))
    assert await asyncio.to_thread(os.listdir, sockets) == []


async def test_a_lost_connection_is_told_and_the_next_command_connects_again(
    own_sshd: Sshd,
) -> None:
    async with environment("ssh", own_sshd.options) as machine:
        await sh(machine, "cd /usr; export KEPT=yes")
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            machine.run(ShellRun(script="echo begun; sleep 60"), lambda _: begun.set())
        )
        background = await machine.spawn(ShellRun(script="echo up; sleep 60"))
        await begun.wait()
        await asyncio.to_thread(own_sshd.stop)
        result = await running
        assert result.exit_code == 255
        assert result.output.startswith("begun\n")
        assert "whether the command took effect is unknown" in result.output
        assert (await machine.wait(background.id, 10)).exit_code == 255
        with pytest.raises(HermesError, match="Nothing listens for ssh"):
            await sh(machine, "true")
        await asyncio.to_thread(own_sshd.start)
        assert await sh(machine, "echo $PWD $KEPT") == "/usr yes\n"


async def test_a_killed_master_costs_at_most_one_command(sshd: Sshd, sockets: Path) -> None:
    async with environment("ssh", sshd.options) as machine:
        (master,) = masters(sockets)
        os.kill(master, signal.SIGKILL)
        result = await machine.run(ShellRun(script="echo ran"))
        if result.exit_code:
            assert "was not started" in result.output
        assert await sh(machine, "echo ran") == "ran\n"


async def test_more_processes_than_the_connection_has_channels_run(sshd: Sshd) -> None:
    async with environment("ssh", {**sshd.options, "max_sessions": 2}) as machine:
        started = [await machine.spawn(ShellRun(script="echo up; exec sleep 60")) for _ in range(5)]
        assert await sh(machine, "echo beside") == "beside\n"
        for process in started:
            assert not (await machine.kill(process.id)).running


async def test_nothing_secret_is_part_of_a_command_line(sshd: Sshd) -> None:
    secret = f"sk-{os.urandom(8).hex()}"
    begun = asyncio.Event()
    async with environment("ssh", sshd.options, env={"GIVEN": f"{secret}-1"}) as machine:
        assert await sh(machine, "echo $GIVEN $TERM") == f"{secret}-1 dumb\n"
        command = ShellRun(script=f"echo {secret}-2; sleep 60", env={"ONCE": f"{secret}-3"})
        running = asyncio.ensure_future(machine.run(command, lambda _: begun.set()))
        await begun.wait()

        async def sleeps() -> bool:
            return "sleep\x0060" in await asyncio.to_thread(command_lines)

        await until(sleeps)
        shown = await asyncio.to_thread(command_lines)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert secret not in shown


def command_lines() -> str:
    """Return the command lines of every process on this machine."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


async def test_the_session_has_the_variables_of_a_login_shell(sshd: Sshd) -> None:
    profile = sshd.directory / "home/.bash_profile"
    profile.write_text("echo noise; export FROM_PROFILE=yes\n")
    try:
        async with environment("ssh", sshd.options) as machine:
            assert await sh(machine, "echo $FROM_PROFILE") == "yes\n"
        async with environment("ssh", {**sshd.options, "login": False}) as machine:
            assert await sh(machine, "echo ${FROM_PROFILE-none}") == "none\n"
    finally:
        profile.unlink()


async def test_a_terminal_is_given_on_request(sshd: Sshd) -> None:
    async with environment("ssh", sshd.options) as machine:
        script = "test -t 0 && test -t 1 && echo both; echo direct >/dev/tty; cd /; exit 3"
        result = await machine.run(ShellRun(script=script, pty=True))
        assert (result.output, result.cwd, result.exit_code) == ("both\ndirect\n", "/", 3)
        started = await machine.spawn(ShellRun(script="read x; echo got $x; cat", pty=True))
        await machine.write_stdin(started.id, "word\n")

        async def answered() -> bool:
            return "got word" in (await machine.process_output(started.id))[0]

        await until(answered)
        await machine.close_stdin(started.id)
        assert (await machine.wait(started.id, 10)).exit_code == 0


async def test_an_interrupted_connection_attempt_leaves_nothing(sshd: Sshd, sockets: Path) -> None:
    task = asyncio.ensure_future(environment("ssh", sshd.options).__aenter__())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(no_masters(sockets))
    assert await asyncio.to_thread(os.listdir, sockets) == []


async def test_the_host_is_not_said_to_be_isolated(sshd: Sshd) -> None:
    async with environment("ssh", sshd.options) as machine:
        assert machine.exposed == ("/",)
