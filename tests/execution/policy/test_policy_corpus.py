"""Every command of the corpus gets the verdict that is written beside it."""

import time

from fakes.command_corpus import Sample, read_corpus, strict_policy
from hermes.domain.approvals import Gate

FLOOR = [s for s in read_corpus("floor") if s.expect == "block"]
HIDDEN_FLOOR = [s for s in read_corpus("floor") if s.expect == "person"]
"""The floor, computed: nobody works out what it is, so it asks a person in every mode."""
DANGER = read_corpus("danger")
HARMLESS = read_corpus("harmless")
BEYOND = read_corpus("beyond")
"""What reaches beyond the project in a plain way: written down without knowing the rules."""


def wrong(samples: list[Sample], *wanted: Gate) -> list[tuple[str, str, str]]:
    policy = strict_policy()
    verdicts = [(sample, policy.judge(sample.command)) for sample in samples]
    return [(s.family, s.command, v.gate.value) for s, v in verdicts if v.gate not in wanted]


def test_the_corpus_is_large_and_has_no_command_twice() -> None:
    everything = [sample.command for sample in (*FLOOR, *HIDDEN_FLOOR, *DANGER, *HARMLESS)]
    assert len(everything) == len(set(everything))
    assert len(FLOOR) + len(DANGER) >= 1000
    assert len(HARMLESS) >= 600


def test_no_dangerous_command_is_allowed() -> None:
    assert wrong(DANGER, Gate.ASK) == []


def test_nothing_that_reaches_beyond_the_project_is_allowed_in_it() -> None:
    policy = strict_policy()
    verdicts = [(s, policy.judge(s.command, cwd="/home/user/work").gate) for s in BEYOND]
    assert [s.command for s, gate in verdicts if gate is Gate.ALLOW] == []
    assert [s.command for s, g in verdicts if s.expect == "block" and g is not Gate.BLOCK] == []
    assert len(BEYOND) > 1000


def test_every_command_of_the_floor_is_blocked() -> None:
    assert wrong(FLOOR, Gate.BLOCK) == []


def test_the_floor_is_never_allowed_where_it_is_computed() -> None:
    patterns = sorted({strict_policy().judge(s.command).pattern for s in DANGER})
    broad = ("*", "?*", "rm -r", "rm -f", "curl | sh", *(p for p in patterns if p[:2] != "= "))
    for mode in ("manual", "smart", "off"):
        policy = strict_policy(mode=mode, allowlist=broad)
        for sample in HIDDEN_FLOOR:
            verdict = policy.judge(sample.command, grants=set(broad))
            assert (verdict.gate, verdict.opaque) == (Gate.ASK, True), sample
    assert len(HIDDEN_FLOOR) < len(FLOOR) * 0.05


def test_at_most_two_percent_of_the_harmless_commands_ask() -> None:
    asked = wrong(HARMLESS, Gate.ALLOW)
    assert len(asked) <= len(HARMLESS) * 0.02, asked


def test_the_floor_holds_in_every_mode_and_against_every_grant_and_allowlist() -> None:
    patterns = sorted({strict_policy().judge(s.command).pattern for s in DANGER})
    own = tuple(s.command for s in FLOOR)
    policy = strict_policy(mode="off", allowlist=("*", *own, *patterns))
    grants = {*patterns, *own, *(f"= {command}" for command in own)}
    passed = [s.command for s in FLOOR if policy.judge(s.command, grants=grants).gate != Gate.BLOCK]
    assert passed == []


def test_every_question_has_a_reason_and_a_pattern_that_answers_it() -> None:
    policy = strict_policy()
    for sample in DANGER:
        verdict = policy.judge(sample.command)
        assert verdict.reason
        assert verdict.pattern
        assert policy.judge(sample.command, grants={verdict.pattern}).gate == Gate.ALLOW, sample


def test_a_known_directory_does_not_turn_harmless_commands_into_questions() -> None:
    policy = strict_policy()
    free = [s for s in HARMLESS if policy.judge(s.command).gate == "allow"]
    inside = [s for s in free if policy.judge(s.command, cwd="/home/user/work").gate != "allow"]
    assert inside == []


def cost(command: str, times: int = 1) -> float:
    """Return the least processor time that one of several judgements took."""
    policy, taken = strict_policy(), []
    for _ in range(times):
        started = time.process_time()
        policy.judge(command, cwd="/home/user/work")
        taken.append(time.process_time() - started)
    return min(taken)


def test_a_judgement_costs_little_more_than_that_of_the_simplest_command() -> None:
    """The simplest takes 0.1 ms on one core: 30 times that is what 99 of 100 may take, 3 ms."""
    unit = cost("ls -la", 200)
    names = ("floor", "danger", "harmless", "disguised", "outside")
    commands = [s.command for name in names for s in read_corpus(name)[::3]]
    slow = [c for c in commands if cost(c) > 15 * unit]
    slow = [c for c in slow if cost(c, 5) > 30 * unit]
    assert len(slow) < len(commands) * 0.01, slow
    assert max((cost(c, 3) for c in slow), default=0.0) < 2_500 * unit
