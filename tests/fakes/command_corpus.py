"""The corpus of commands with the verdict each must get."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hermes.execution.policy.judge import CommandPolicy, PolicySettings

__all__ = ["HERMES_HOME", "USER_HOME", "Sample", "kept_home", "read_corpus", "strict_policy"]

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


@contextmanager
def kept_home() -> Iterator[Path]:
    """Make a home that is really there, and not below /tmp: what is temporary is free."""
    here = Path(__file__).parent
    home = Path.home() if Path.home() != Path("/root") else Path("/var/local")
    beside = home if here.is_relative_to("/tmp") else here
    with TemporaryDirectory(prefix="outside-", dir=beside) as folder:
        (Path(folder) / "work").mkdir()
        (Path(folder) / "important.txt").write_text("kept", encoding="utf-8")
        yield Path(folder)
