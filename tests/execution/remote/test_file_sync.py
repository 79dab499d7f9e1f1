import io
import os
import tarfile
from pathlib import Path

import pytest

from fakes.machines import environment
from fakes.sshd import Sshd
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import Command
from hermes.execution.backend import PooledEnvironment
from hermes.execution.remote.sync import EVERY, FileSync, SyncRoot
from hermes.testing.clock import FakeClock


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(Command(script=script, timeout=30))).output


@pytest.mark.xdist_group("ssh")
async def test_files_are_kept_in_step_over_a_session(sshd: Sshd, tmp_path: Path) -> None:
    clock = FakeClock()
    skills, cache = tmp_path / "skills", tmp_path / "cache"
    (skills / "deep").mkdir(parents=True)
    cache.mkdir()
    (skills / "deep/with space\nand line").write_bytes(b"\0skill")
    (skills / "leaves").write_text("soon")
    (cache / "both").write_text("old")
    (cache / "mine").write_text("old")
    (skills / "link").symlink_to("/etc/passwd")
    roots = [
        {"local": str(skills), "remote": f"sync-{tmp_path.name}/skills"},
        {"local": str(cache), "remote": f"~/sync-{tmp_path.name}/cache", "back": True},
    ]
    async with environment("ssh", {**sshd.options, "sync": roots}, clock=clock) as machine:
        await sh(machine, f"cd ~/sync-{tmp_path.name}")
        assert await machine.read("skills/deep/with space\nand line") == b"\0skill"
        assert await machine.stat("skills/link") is None
        assert (await sh(machine, "stat -c %a skills/leaves")) == "600\n"

        (skills / "leaves").unlink()
        (skills / "new").write_text("1")
        assert (await sh(machine, "ls skills")) == "deep\nleaves\n"
        clock.advance(EVERY + 1)
        assert (await sh(machine, "ls skills")) == "deep\nnew\n"

        (cache / "mine").write_text("changed here")
        await sh(machine, "echo evil >skills/new; echo there >cache/both; echo there >cache/mine")
        await sh(machine, "mkdir cache/sub; printf '\\0x' >'cache/sub/fresh one'")
        await sh(machine, "ln -s /etc/passwd cache/leak")
    assert (skills / "new").read_text() == "1"
    assert (cache / "both").read_text() == "there\n"
    assert (cache / "sub/fresh one").read_bytes() == b"\0x"
    assert (cache / "mine").read_text() == "changed here"
    assert not (cache / "leak").exists()


@pytest.mark.xdist_group("ssh")
async def test_a_failing_upload_is_told_and_stops_no_command(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    roots = [{"local": str(tmp_path), "remote": "/proc/nowhere"}]
    async with environment("ssh", {**sshd.options, "sync": roots}, clock=FakeClock()) as machine:
        assert "could not be synchronised" in await sh(machine, "echo ran")
        assert await sh(machine, "echo ran") == "ran\n"


def names_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*"))


class HostileMachine:
    """Answers a listing with names, and an archive with whatever it likes."""

    def __init__(self, names: list[str], archive: bytes) -> None:
        self._names = names
        self._archive = archive

    async def __call__(
        self, script: str, stdin: bytes = b"", *, timeout: float = 60.0
    ) -> tuple[int, bytes]:
        if script.startswith("find"):
            return 0, os.fsencode("".join(f"{name}\0" for name in self._names))
        if "tar -cf" in script:
            return 0, self._archive
        if "while IFS" in script:
            return 0, b"".join(name + b"\x001 2\0" for name in stdin.split(b"\0")[:-1])
        return 0, b""


def archive_of(*members: tuple[str, bytes | None]) -> bytes:
    """Return a tar archive; a member without content is a symbolic link out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if data is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc"
                tar.addfile(member)
            else:
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


async def test_what_comes_back_stays_inside_its_root(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "out").symlink_to(tmp_path)
    names = ["/home/c/../../up", "/home/c/out/x", "/home/other/y", "/home/c/good", "/home/c/lnk"]
    archive = archive_of(
        ("home/c/../../up", b"1"),
        ("home/c/out/x", b"2"),
        ("home/other/y", b"3"),
        ("home/c/good", b"4"),
        ("home/c/unasked", b"5"),
        ("home/c/lnk", None),
    )
    sync = FileSync([SyncRoot(local=str(cache), remote="c", back=True)], FakeClock())
    machine = HostileMachine(names, archive)
    await sync.push(machine, "/home")
    assert await sync.pull(machine, "/home") == 1
    assert names_below(tmp_path) == ["cache", "good", "out"]


async def test_a_refused_upload_is_explained(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    async def full(script: str, stdin: bytes = b"", *, timeout: float = 60.0) -> tuple[int, bytes]:
        return 2, b"tar: write error: No space left on device"

    sync = FileSync([SyncRoot(local=str(tmp_path), remote="d")], FakeClock())
    with pytest.raises(HermesError, match="No space left"):
        await sync.push(full, "/home")
