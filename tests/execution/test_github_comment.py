"""Comments on pull requests, with a program in the place of `gh`."""

from pathlib import Path

import pytest

from hermes.domain.errors import HermesError
from hermes.execution.webhook_effects import GhComments


def gh(folder: Path, script: str) -> dict[str, str]:
    """Put a program called `gh` in front and return the environment that finds it."""
    program = folder / "bin" / "gh"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "GH_TOKEN": "t", "OTHER_TOKEN": "o"}


async def test_arguments_and_text_are_handed_over_as_they_are(tmp_path: Path) -> None:
    env = gh(tmp_path, f'(printf "%s|" "$@" "$GH_TOKEN" "$OTHER_TOKEN"; cat) > {tmp_path}/seen')
    await GhComments(env).comment("ann/tool", "12", "It's `$(fine)`.\n--body x")
    seen = (tmp_path / "seen").read_text(encoding="utf-8")
    expected = "pr|comment|12|--repo|ann/tool|--body-file|-|t||It's `$(fine)`.\n--body x"
    assert seen == expected


async def test_a_failure_says_what_gh_said(tmp_path: Path) -> None:
    env = gh(tmp_path, "echo 'HTTP 404: Not Found' >&2; exit 1")
    with pytest.raises(HermesError, match="HTTP 404: Not Found") as failed:
        await GhComments(env).comment("ann/tool", "12", "x")
    assert "gh auth status" in failed.value.hint


async def test_without_gh_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(HermesError, match="not installed") as failed:
        await GhComments({"PATH": str(tmp_path)}).comment("ann/tool", "12", "x")
    assert "gh auth login" in failed.value.hint


async def test_a_gh_that_hangs_is_ended(tmp_path: Path) -> None:
    env = gh(tmp_path, "exec sleep 300")
    with pytest.raises(HermesError, match="in time"):
        await GhComments(env, timeout=0.5).comment("ann/tool", "12", "x")
