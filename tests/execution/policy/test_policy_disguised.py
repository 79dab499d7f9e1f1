"""Commands in disguise: what cannot be read beforehand is never simply run.

The corpus is grouped by the trick. `block` is never run, `person` asks in every mode,
`ask` asks in mode manual.
"""

import pytest

from fakes.command_corpus import read_corpus, strict_policy
from hermes.domain.approvals import Gate

DISGUISED = read_corpus("disguised")
CWDS = (None, "/home/user/work", "/home/user", "/")


@pytest.mark.parametrize("cwd", CWDS)
def test_no_disguise_is_allowed_wherever_it_is_tried(cwd: str | None) -> None:
    policy = strict_policy()
    passed = [s for s in DISGUISED if policy.judge(s.command, cwd=cwd).gate is Gate.ALLOW]
    assert passed == []


def test_what_is_never_run_is_blocked_in_every_mode() -> None:
    for mode in ("manual", "off"):
        policy = strict_policy(mode=mode, allowlist=("?*",))
        floor = [s.command for s in DISGUISED if s.expect == "block"]
        assert [c for c in floor if policy.judge(c).gate is not Gate.BLOCK] == []


def test_what_cannot_be_read_asks_a_person_even_if_nothing_is_to_be_asked() -> None:
    policy = strict_policy(mode="off", allowlist=("?*",))
    hidden = [s.command for s in DISGUISED if s.expect == "person"]
    assert [c for c in hidden if policy.judge(c).gate is Gate.ALLOW] == []


def test_every_question_says_why() -> None:
    policy = strict_policy()
    assert all(policy.judge(s.command).reason for s in DISGUISED)


def test_the_corpus_is_large() -> None:
    assert len(DISGUISED) >= 600
    assert len({s.family for s in DISGUISED}) >= 14
