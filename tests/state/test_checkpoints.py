"""Checkpoints of a project, in a store that leaves the project's own repository alone."""

import asyncio
import os
import subprocess
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from hermes.domain.errors import NotFound
from hermes.domain.ports.checkpoints import Snapshot
from hermes.domain.settings.agent import CheckpointSettings
from hermes.state.checkpoints import Checkpoints


def made(tmp_path: Path, most: int = 20, size: int = 10) -> tuple[Checkpoints, Path]:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "a.txt").write_text("one")
    (project / "src" / "b.py").write_text("b = 1")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x.js").write_text("x")
    (project / ".env").write_text("KEY=secret")
    chosen = CheckpointSettings(enabled=True, max_snapshots=most, max_file_size_mb=size)
    return Checkpoints(tmp_path / "store", lambda: chosen), project


async def test_a_project_goes_back_and_forth(tmp_path: Path) -> None:
    store, project = made(tmp_path)
    folder = str(project)
    assert await store.snapshots(folder) == []
    await store.take(folder, "before terminal")
    await store.take(folder, "nothing changed")
    assert [(s.number, s.why) for s in await store.snapshots(folder)] == [(1, "before terminal")]
    (project / "a.txt").write_text("two")
    (project / "src" / "b.py").unlink()
    (project / "new" / "deep").mkdir(parents=True)
    (project / "new" / "deep" / "c ü.txt").write_text("c")
    diff = await store.diff(folder, 1)
    assert "-one" in diff
    assert "+two" in diff
    assert (await store.restore(folder, 1, "a.txt")).changed == ["a.txt"]
    assert (project / "a.txt").read_text() == "one"
    assert not (project / "src" / "b.py").exists()
    changed = await store.restore(folder, 1)
    assert sorted(changed.changed) == ["new/deep/c ü.txt", "src/b.py"]
    assert (project / "src" / "b.py").read_text() == "b = 1"
    assert not (project / "new").exists()
    assert (project / "node_modules" / "x.js").exists()
    assert (project / ".env").read_text() == "KEY=secret"
    # Going back can be undone: the state before is a checkpoint, too.
    await store.restore(folder, 2)
    assert (project / "a.txt").read_text() == "two"
    assert (project / "new" / "deep" / "c ü.txt").read_text() == "c"
    with pytest.raises(NotFound):
        await store.restore(folder, 99)


async def test_the_own_repository_is_not_touched_and_nothing_of_it_runs(tmp_path: Path) -> None:
    store, project = made(tmp_path)
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(project)], check=True)
    hook = tmp_path / "ran"
    (project / ".gitattributes").write_text("* filter=evil\n")
    config = f'[filter "evil"]\n clean = touch {hook}\n[core]\n fsmonitor = touch {hook}\n'
    with (project / ".git" / "config").open("a") as file:
        file.write(config)
    before = sorted(p.name for p in (project / ".git").iterdir())
    await store.take(str(project), "x")
    assert sorted(p.name for p in (project / ".git").iterdir()) == before
    assert not hook.exists()


async def test_only_so_many_are_kept_and_large_files_are_left_out(tmp_path: Path) -> None:
    store, project = made(tmp_path, most=2, size=1)
    (project / "large.bin").write_bytes(b"x" * 2**21)
    for number in range(4):
        (project / "a.txt").write_text(str(number))
        await store.take(str(project), f"turn {number}")
    kept = await store.snapshots(str(project))
    assert [each.number for each in kept] == [4, 3]
    assert "large.bin" not in await store.diff(str(project), 4)


async def test_what_outgrows_the_limit_is_not_lost_by_going_back(tmp_path: Path) -> None:
    store, project = made(tmp_path, size=1)
    folder, grows, shrinks = str(project), project / "grows.db", project / "shrinks ü.bin"
    small, large = b"s" * 2**19, b"l" * (2**20 + 1)
    (project / os.fsdecode(b"\xff.bin")).write_bytes(large)
    grows.write_bytes(small)
    shrinks.write_bytes(large)
    await store.take(folder, "before terminal")
    grows.write_bytes(large)
    shrinks.write_bytes(b"tiny")
    (project / ".gitignore").write_text("a.txt\n")
    (project / "a.txt").write_text("two")
    done = await store.restore(folder, 1)
    assert (done.changed, done.left) == (
        [".gitignore", "a.txt", "grows.db"],
        ["shrinks ü.bin", "\udcff.bin"],
    )
    assert (grows.read_bytes(), shrinks.read_bytes()) == (small, b"tiny")
    undone = await store.restore(folder, 2)
    assert undone.changed == [".gitignore", "a.txt", "grows.db"]
    assert (project / "a.txt").read_text() == "two"
    assert (grows.read_bytes(), shrinks.read_bytes()) == (large, b"tiny")


async def test_bytes_and_modes_come_back_whatever_the_attributes_say(tmp_path: Path) -> None:
    store, project = made(tmp_path)
    rules = (
        "*.txt text eol=crlf\n*.lf text eol=lf\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n"
    )
    (project / ".gitattributes").write_text(rules)
    contents = {"m.txt": b"a\r\nb\nc", "x.lf": b"x\r\n", "v.id": b"$Id$", "no.u16": b"odd"}
    for name, content in contents.items():
        (project / name).write_bytes(content)
    modes = {"m.txt": 0o600, "x.lf": 0o755, "v.id": 0o640, "no.u16": 0o644}
    for name, mode in modes.items():
        (project / name).chmod(mode)
    await store.take(str(project), "x")
    for name in modes:
        (project / name).write_bytes(b"changed")
    (project / "m.txt").unlink()
    await store.restore(str(project), 1)
    assert {name: (project / name).read_bytes() for name in contents} == contents
    assert {name: (project / name).stat().st_mode & 0o777 for name in modes} == modes


async def test_others_are_waited_for_and_what_a_crash_leaves_is_no_obstacle(tmp_path: Path) -> None:
    store, project = made(tmp_path)
    await store.take(str(project), "first")
    (index,) = (tmp_path / "store").glob("index-*")
    index.with_name(f"{index.name}.lock").write_bytes(b"")
    others = [Checkpoints(tmp_path / "store", CheckpointSettings) for _ in range(3)]
    (project / "a.txt").write_text("changed")
    await asyncio.gather(*(each.take(str(project), "again") for each in others))
    assert [each.why for each in await store.snapshots(str(project))] == ["again", "first"]


@pytest.mark.parametrize("pruned", [True, False])
async def test_old_ones_go_if_that_is_wished(tmp_path: Path, pruned: bool) -> None:
    chosen = CheckpointSettings(enabled=True, auto_prune=pruned, retention_days=1)
    _, project = made(tmp_path)
    store = Checkpoints(tmp_path / "store", lambda: chosen)
    await store.take(str(project), "old")
    (old,) = await store.snapshots(str(project))
    past = msgspec.structs.replace(old, at=old.at - timedelta(days=3))

    class Aged(Checkpoints):
        async def snapshots(self, folder: str) -> list[Snapshot]:
            found = await super().snapshots(folder)
            return [past if each.number == 1 else each for each in found]

    (project / "a.txt").write_text("two")
    aged = Aged(tmp_path / "store", lambda: chosen)
    await aged.take(str(project), "new")
    kept = [each.why for each in await store.snapshots(str(project))]
    assert kept == (["new"] if pruned else ["new", "old"])
