"""Behind walls only what loses files of the exposed project asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.command_corpus import Sample, kept_home, read_corpus, strict_policy
from hermes.domain.approvals import Gate


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    with kept_home() as home:
        for name in ("work/src/a.py", "work/a.txt", "work/data.db", "work/.git/HEAD"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("kept", encoding="utf-8")
        (home / "work/led").mkdir(exist_ok=True)
        (home / "work/led/build").symlink_to("../src")
        yield home / "work"


def gate(command: str, work: Path) -> Gate:
    policy = strict_policy(user_home=str(work.parent), hermes_home=f"{work.parent}/.hermes")
    return policy.judge_losses(command, (str(work),), cwd=str(work)).verdict.gate


@pytest.mark.parametrize("sample", read_corpus("losses"), ids=lambda sample: sample.command)
def test_what_loses_files_of_the_project_asks_behind_walls(sample: Sample, work: Path) -> None:
    assert gate(sample.command, work).value == sample.expect


def test_no_harmless_command_asks_behind_walls(work: Path) -> None:
    commands = [s.command for s in read_corpus("harmless")]
    assert [c for c in commands if gate(c, work) is not Gate.ALLOW] == []


def test_what_an_earlier_call_has_moved_into_an_output_asks(work: Path) -> None:
    policy = strict_policy(user_home=str(work.parent), hermes_home=f"{work.parent}/.hermes")
    where = ((str(work),), str(work))
    moved = policy.judge_losses("mv src build", where[0], cwd=where[1])
    again = policy.judge_losses("rm -rf build", where[0], cwd=where[1], carried=moved.left)
    assert again.verdict.gate is Gate.ASK
    built = policy.judge_losses("rm -rf build; make", where[0], cwd=where[1])
    again = policy.judge_losses("rm -rf build", where[0], cwd=where[1], carried=built.left)
    assert again.verdict.gate is Gate.ALLOW
