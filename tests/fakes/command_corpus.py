"""The corpus of commands with the verdict each must get."""

from pathlib import Path

import msgspec

from hermes.execution.policy.judge import CommandPolicy, PolicySettings

__all__ = ["HERMES_HOME", "USER_HOME", "Sample", "read_corpus", "strict_policy"]

USER_HOME = "/home/user"
HERMES_HOME = "/home/user/.hermes"
FOLDER = Path(__file__).parent.parent / "execution" / "policy" / "corpus"


class Sample(msgspec.Struct, frozen=True):
    """One command of the corpus."""

    expect: str
    family: str
    command: str


def read_corpus(name: str) -> list[Sample]:
    """Return the samples of one corpus file."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Sample) for line in lines]


def strict_policy(**changes: object) -> CommandPolicy:
    """Return a policy in mode manual for the user of the corpus."""
    settings = PolicySettings(user_home=USER_HOME, hermes_home=HERMES_HOME)
    return CommandPolicy(msgspec.structs.replace(settings, **changes))
