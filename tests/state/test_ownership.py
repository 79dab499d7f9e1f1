import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.domain.errors import StoreError
from hermes.state.ownership import Owner, clean_up, owner_alive

HOLD = (
    "import sys,pathlib;from hermes.state.ownership import Owner;"
    "o=Owner.claim(pathlib.Path(sys.argv[1]));print(o.id,flush=True);sys.stdin.read()"
)


def start_owner(run: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_this_process_is_alive_until_it_lets_go(tmp_path: Path) -> None:
    with Owner.claim(tmp_path / "run") as owner:
        assert f"-{os.getpid()}-" in owner.id
        assert owner_alive(owner.id, tmp_path / "run")
    assert not owner_alive(owner.id, tmp_path / "run")
    owner.release()


def test_two_owners_of_one_process_are_different(tmp_path: Path) -> None:
    with Owner.claim(tmp_path) as one, Owner.claim(tmp_path) as other:
        assert one.id != other.id
        assert owner_alive(one.id, tmp_path)
        assert owner_alive(other.id, tmp_path)


def test_an_owner_killed_without_warning_is_dead(tmp_path: Path) -> None:
    process, owner_id = start_owner(tmp_path)
    with process:
        assert owner_alive(owner_id, tmp_path)
        process.send_signal(signal.SIGKILL)
    assert not owner_alive(owner_id, tmp_path)
    assert (tmp_path / f"{owner_id}.lock").exists()
    with Owner.claim(tmp_path):
        assert not (tmp_path / f"{owner_id}.lock").exists(), "the next start clears up"


def test_clearing_up_spares_the_living(tmp_path: Path) -> None:
    process, owner_id = start_owner(tmp_path)
    with process:
        assert clean_up(tmp_path) == 0
        assert owner_alive(owner_id, tmp_path)
        process.kill()


@pytest.mark.parametrize("unknown", ["", "host-1-aa", "../../etc/passwd", "a/b"])
def test_an_unknown_owner_is_dead(tmp_path: Path, unknown: str) -> None:
    assert not owner_alive(unknown, tmp_path)


def test_a_child_process_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    code = (
        "import sys,pathlib,subprocess;from hermes.state.ownership import Owner;"
        "o=Owner.claim(pathlib.Path(sys.argv[1]));"
        "c=subprocess.Popen([sys.executable,'-c','import sys;sys.stdin.read()'],stdin=0);"
        "print(o.id,flush=True);sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        owner_id = process.stdout.readline().strip()
        process.kill()
        process.wait()
        assert not owner_alive(owner_id, tmp_path)


def test_a_folder_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(StoreError, match="cannot be used"):
        Owner.claim(tmp_path / "run")
