import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.toolbox import local_environment
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.domain.ports.execution import NOTHING, digest
from hermes.execution.backends.local import LocalEnvironment
from hermes.execution.host.files import HostFiles


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    async with local_environment(tmp_path) as environment:
        yield environment


async def test_what_is_written_is_read_back(env: LocalEnvironment, tmp_path: Path) -> None:
    await env.write("new/deep/file.bin", b"\x00\xff bytes")
    assert (tmp_path / "new/deep/file.bin").read_bytes() == b"\x00\xff bytes"
    assert await env.read("new/deep/file.bin", offset=2, limit=3) == b" by"
    assert [p.name for p in (tmp_path / "new/deep").iterdir()] == ["file.bin"]


async def test_a_replaced_file_keeps_its_mode(env: LocalEnvironment, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    await env.write("run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert script.read_text() == "new"


async def test_what_is_marked_read_only_and_what_has_no_folder_is_not_written(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "fixed").write_text("old")
    (tmp_path / "fixed").chmod(0o444)
    with pytest.raises(UsageError, match="fixed is read-only"):
        await env.write("fixed", b"new")
    with pytest.raises(HermesError, match="what should be a folder is none"):
        await env.write("fixed/deep/file", b"new")
    assert (tmp_path / "fixed").read_text() == "old"


async def test_a_link_stays_a_link_and_its_target_is_replaced(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    await env.write("link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    await env.remove("link")
    assert (tmp_path / "target").exists()


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "device", "loop"])
async def test_only_regular_files_are_read_and_written(
    env: LocalEnvironment, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to("odd")
    with pytest.raises(HermesError):
        await env.read("odd", limit=10)
    if kind != "loop":
        with pytest.raises(HermesError):
            await env.write("odd", b"x")
        described = await env.stat("odd")
        assert described is not None
        assert not described.is_file


async def test_the_secrets_of_this_very_process_are_not_readable(env: LocalEnvironment) -> None:
    for path in ("/proc/self/environ", f"/proc/{os.getpid()}/environ", "/proc/thread-self/environ"):
        with pytest.raises(UsageError, match="inside of a process"):
            await env.read(path)


async def test_errors_are_sentences(env: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFound, match="There is no file at"):
        await env.read("missing")
    with pytest.raises(NotFound):
        await env.read("file/below")
    with pytest.raises(NotFound):
        await env.remove("missing")
    with pytest.raises(UsageError, match="directory"):
        await env.remove(".")
    with pytest.raises(UsageError, match="not a usable path"):
        await env.read("nul\0byte")
    with pytest.raises(HermesError):
        await env.read("x" * 300)


async def test_a_listing_is_sorted_and_survives_broken_links(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("12345")
    (tmp_path / "c").symlink_to("nowhere")
    assert [(e.name, e.is_dir) for e in await env.list_dir(".")] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


async def test_paths_are_resolved_against_home_and_the_working_directory(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    assert env.resolve("~/x") == f"{tmp_path}/x"
    assert env.resolve("a/../b") == f"{tmp_path}/b"
    assert env.resolve("/abs") == "/abs"
    assert await env.stat("nothing") is None


@given(data=st.binary(max_size=2000), offset=st.integers(0, 2100), limit=st.integers(0, 2100))
def test_any_slice_of_any_bytes_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int, limit: int
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "slice")
    HostFiles().write(path, data)
    assert HostFiles().read(path, offset, limit) == data[offset : offset + limit]


async def test_what_has_changed_since_it_was_read_is_not_replaced(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    await env.write("new", b"mine", NOTHING)
    for was in (NOTHING, digest(b"other")):
        with pytest.raises(Conflict, match="changed meanwhile"):
            await env.write("new", b"lost", was)
    await env.write("new", b"next", digest(b"mine"))
    assert [entry.name for entry in await env.list_dir(".")] == ["new"]
    assert (tmp_path / "new").read_bytes() == b"next"


async def test_a_file_that_does_not_fit_into_memory_is_not_read_whole(
    env: LocalEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "huge").write_bytes(b"begins")
    os.truncate(tmp_path / "huge", 1 << 42)
    with pytest.raises(UsageError, match="too large"):
        await env.read("huge")
    with pytest.raises(UsageError, match="too large"):
        await env.write("huge", b"new", digest(b"begins"))
    assert await env.read("huge", limit=6) == b"begins"
