"""Which commands may run once more as a whole: those that do one thing."""

import pytest

from hermes.execution.backends.sandbox.again import is_one_command


@pytest.mark.parametrize(
    "script",
    [
        "git push origin HEAD",
        "cd /srv/x && git push",
        "cat ~/letter | head -3",
        "A=1 npm ci > log 2>&1",
        "git add .",
        "./deploy.sh prod",
    ],
)
def test_one_command_is_one(script: str) -> None:
    assert is_one_command(script)


@pytest.mark.parametrize(
    "script",
    [
        "git commit -m x && git push",
        "a; b",
        "a\nb",
        "echo x >> log",
        "echo $(date)",
        "bash -c 'a; b'",
        "bash <<'E'\na\nb\nE",
        "bash <<< 'a; b'",
        "csh -c 'a; b'",
        "source steps.sh",
        ". ./steps.sh",
        "script -qec 'a; b' /dev/null",
        "ssh host 'a; b'",
        "find . -exec a {} \\; -exec b \\;",
        "python3 -c \"import os; os.system('a'); os.system('b')\"",
        "perl -e 'system(\"a\")'",
        "awk 'BEGIN { system(\"a\") }'",
        "git -c 'alias.p=!a; b' p",
        "env -S 'bash -c \"a; b\"'",
        "xargs git push < list",
    ],
)
def test_several_are_not_one(script: str) -> None:
    assert not is_one_command(script)
