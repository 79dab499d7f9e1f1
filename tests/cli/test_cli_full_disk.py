"""A full disk: looking works, deleting makes room, and everything goes on afterwards."""

import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fakes.command import Hermes, Outcome
from fakes.model import FakeModelServer, Script, Step


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of its own, of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=4m", "hermes-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(made, check=False, capture_output=True).returncode:
        pytest.skip("only an administrator may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


async def test_a_full_disk_can_be_looked_at_and_tidied_up(disk: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(disk, server.base_url)
        for number in range(3):
            assert (await hermes.run("-q", f"question {number}")).code == 0
        fill(disk)
        for looking in (("status",), ("sessions", "list"), ("sessions", "stats")):
            outcome = await hermes.run(*looking)
            assert outcome.code == 0, outcome.err
        assert len((await hermes.run("sessions", "list")).out.splitlines()) == 3
        asked = await hermes.run("-q", "no room")
        assert asked.code == 74, asked.err
        assert "disk is full" in asked.err
        assert "sessions prune" in asked.err
        pruned = await hermes.run("sessions", "prune", "--newer-than", "1d", "--yes")
        assert pruned.code == 0, pruned.err
        assert "Deleted 3 sessions" in pruned.out
        assert "no such sessions" in (await hermes.run("sessions", "list")).out
        (disk / "ballast").unlink()
        assert (await hermes.run("-q", "room again")).code == 0
        assert (hermes.home / "state.db-reserve").stat().st_size > 0, "for the next time"


async def test_looking_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="ok"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        assert (await hermes.run("-q", "fits")).code == 0

    def run(*arguments: str) -> Outcome:
        done = subprocess.run(
            hermes.argv(*arguments),
            cwd=hermes.work,
            # Python would keep the half of a compiled module that fits.
            env={**hermes.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
            capture_output=True,
            timeout=40,
            check=False,
            text=True,
        )
        return Outcome(code=done.returncode, out=done.stdout, err=done.stderr)

    for looking in (("status",), ("sessions", "list")):
        outcome = run(*looking)
        assert outcome.code == 0, outcome.err
    assert len(run("sessions", "list").out.splitlines()) == 1
    pruned = run("sessions", "prune", "--newer-than", "1d", "--yes")
    assert pruned.code == 74
    assert "->" in pruned.err


async def test_repair_builds_the_search_index_anew(tmp_path: Path) -> None:
    async with FakeModelServer(Script(default=Step(text="a lighthouse"))) as server:
        hermes = Hermes(tmp_path, server.base_url)
        assert (await hermes.run("-q", "what is that?")).code == 0
        assert "light" in (await hermes.run("sessions", "search", "lighthouse")).out
        with closing(sqlite3.connect(hermes.home / "state.db", isolation_level=None)) as db:
            db.execute("UPDATE state_meta SET value = '99' WHERE key = 'indexed_through'")
        broken = await hermes.run("sessions", "search", "lighthouse")
        assert "[" not in broken.out
        done = await hermes.run("sessions", "repair")
        assert done.code == 0, done.err
        assert "The search index is new: 2 messages." in done.out
        assert "[lighthouse]" in (await hermes.run("sessions", "search", "lighthouse")).out
