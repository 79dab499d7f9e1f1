from pathlib import Path

import pytest

from fakes.machines import environment
from fakes.sshd import Sshd
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment
from hermes.execution.remote.sync import EVERY, FileSync
from hermes.testing import FakeClock


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(ShellRun(script=script, timeout=30))).output


@pytest.mark.xdist_group("ssh")
async def test_skills_are_kept_in_step_over_a_session(sshd: Sshd, tmp_path: Path) -> None:
    clock = FakeClock()
    skills = tmp_path / "skills"
    (skills / "deep").mkdir(parents=True)
    (skills / "deep/with space\nand line").write_bytes(b"\0skill")
    (skills / "leaves").write_text("soon")
    (skills / "link").symlink_to("/etc/passwd")
    options = {**sshd.options, "home": str(tmp_path)}
    async with environment("ssh", options, clock=clock) as machine:
        await sh(machine, "cd ~/.hermes/skills")
        assert await machine.read("deep/with space\nand line") == b"\0skill"
        assert await machine.stat("link") is None
        assert (await sh(machine, "stat -c %a leaves")) == "600\n"

        (skills / "leaves").unlink()
        (skills / "new").write_text("1")
        assert (await sh(machine, "ls")) == "deep\nleaves\n"
        clock.advance(EVERY + 1)
        assert (await sh(machine, "ls")) == "deep\nnew\n"

        await sh(machine, "echo evil >new; echo evil >more")
    assert (skills / "new").read_text() == "1"
    assert not (skills / "more").exists()


@pytest.mark.xdist_group("ssh")
async def test_a_failing_upload_is_told_and_stops_no_command(sshd: Sshd, tmp_path: Path) -> None:
    clock = FakeClock()
    (tmp_path / "skills/way").mkdir(parents=True)
    options = {**sshd.options, "home": str(tmp_path)}
    async with environment("ssh", options, clock=clock) as machine:
        await sh(machine, "mkdir -p ~/.hermes/skills; echo in the >~/.hermes/skills/way")
        (tmp_path / "skills/way/f").write_text("x")
        clock.advance(EVERY + 1)
        assert "could not be synchronised" in await sh(machine, "echo ran")
        assert await sh(machine, "echo ran") == "ran\n"
        await sh(machine, "rm ~/.hermes/skills/way")


async def test_a_refused_upload_is_explained(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    async def full(script: str, stdin: bytes = b"", *, timeout: float = 60.0) -> tuple[int, bytes]:
        return 2, b"tar: write error: No space left on device"

    with pytest.raises(HermesError, match="No space left"):
        await FileSync(tmp_path, FakeClock()).push(full, "/home")
