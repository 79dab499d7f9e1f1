"""Where a supervised command ends in its output, and how it is killed."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.execution.remote.supervisor import MarkReader, kill_script, supervised

MARK = "0123456789abcdef"
FRAME = f"\x1e{MARK} 7 /a b\x1fc\x1e{MARK}\n".encode()


def read(data: bytes, cuts: list[int]) -> tuple[MarkReader, bytes]:
    heard: list[bytes] = []
    reader = MarkReader(MARK, heard.append)
    for cut in [*cuts, len(data)]:
        reader.feed(data[:cut])
        data = data[cut:]
    return reader, b"".join(heard)


@given(
    before=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"\x1e", FRAME[:9], FRAME[:17], b"x", b"\n"])).map(b"".join),
    after=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 9), max_size=30),
)
def test_the_mark_is_found_wherever_the_output_is_cut(
    before: bytes, after: bytes, cuts: list[int]
) -> None:
    reader, heard = read(before + FRAME + after, cuts)
    assert reader.status == 7
    assert reader.cwd == "/a b\nc\n"
    assert heard == before


@given(data=st.binary(max_size=80), cuts=st.lists(st.integers(0, 9), max_size=20))
def test_output_without_a_mark_is_passed_on_whole(data: bytes, cuts: list[int]) -> None:
    heard: list[bytes] = []
    reader = MarkReader(MARK, heard.append)
    for cut in [*cuts, len(data)]:
        reader.feed(data[:cut])
        data = data[cut:]
    held = b"".join(heard)
    reader.finish()
    assert reader.status is None
    assert b"".join(heard).startswith(held)


def test_an_imitated_mark_neither_ends_the_output_nor_fills_memory() -> None:
    fake = f"\x1e{MARK} not a status".encode()
    rest = b"y\n" * 100_000
    reader, heard = read(fake + rest, [])
    assert reader.status is None
    assert len(heard) == len(fake + rest)
    reader.feed(FRAME)
    assert reader.status == 7


def bash(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=20, check=False)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state dir")


def test_a_command_that_was_killed_before_it_began_never_begins(state: str) -> None:
    Path(state).mkdir()
    killed = bash("bash", "-c", kill_script(state, "4", 1.0))
    assert killed.returncode == 0
    mark, argv = supervised(state, "4")
    done = bash(*argv, stdin=f"touch '{state}/ran'\0".encode())
    assert f"{mark} 137 ".encode() in done.stdout
    assert not Path(state, "ran").exists()


def test_the_state_directory_is_made_private_and_left_clean(state: str) -> None:
    mark, argv = supervised(state, "1")
    script = f"echo hi; pwd >'{state}/cwd.1'\0rest of input"
    done = bash(*argv, stdin=script.encode())
    assert done.stdout.startswith(b"hi\n\x1e")
    assert f"{mark} 0 {Path.cwd()}\x1e".encode() in done.stdout
    assert Path(state).stat().st_mode & 0o777 == 0o700
    assert list(Path(state).iterdir()) == []


def test_the_outdated_snapshot_is_removed(state: str) -> None:
    Path(state).mkdir()
    Path(state, "env.3").touch()
    Path(state, "env.30").touch()
    bash(*supervised(state, "19", "3")[1], stdin=b"true\0")
    assert [path.name for path in Path(state).iterdir()] == ["env.30"]
