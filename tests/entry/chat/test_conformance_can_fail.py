"""Every check of the conformance suite can fail, and passes where nothing is broken."""

from pathlib import Path
from typing import Any

import pytest

from fakes.toy_platform import MUTATIONS, ToyPlatform
from hermes.testing.checks import CALL, CHECKS, ConformanceRun, claims


async def carry_out(name: str, toy: Any, seconds: float) -> None:
    run = ConformanceRun(toy, toy, toy)
    run.seconds, run.heard = seconds, toy.heard
    run.adapter = toy if CHECKS[name].stage == CALL else None
    await CHECKS[name].act(run)


@pytest.mark.parametrize("name", CHECKS)
async def test_what_does_everything_right_passes(name: str, tmp_path: Path) -> None:
    toy: Any = ToyPlatform(tmp_path)
    assert not CHECKS[name].reason_to_skip(toy, claims(toy.platform, toy))
    await carry_out(name, toy, 5.0)


@pytest.mark.parametrize("broken", MUTATIONS)
async def test_a_check_notices_what_is_broken(broken: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError)):
        await carry_out(MUTATIONS[broken], ToyPlatform(tmp_path, broken), 0.05)


def test_every_check_has_something_to_notice() -> None:
    assert set(MUTATIONS.values()) == set(CHECKS)
