"""Problems: everything wrong with a configuration, found in one pass.

An error names the file and line, the key, what was expected and what was
found. A warning never stops anything.
"""

from msgspec import Struct

from hermes.domain.errors import ConfigError

__all__ = ["InvalidConfig", "Problem"]


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    where: str
    """`config.yaml:12`, `env TERMINAL_LIFETIME_SECONDS`, ..."""
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key} {self.text}" if self.key else f"{self.where}: {self.text}"


class InvalidConfig(ConfigError):
    """The configuration has errors; all of them are listed."""

    def __init__(self, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        if len(problems) == 1:
            message = f"{problems[0]}."
        else:
            listed = "".join(f"\n  {problem}" for problem in problems)
            message = f"The configuration has {len(problems)} errors:{listed}"
        super().__init__(message, hint=hint or _hint(problems))
        self.problems = problems


def _hint(problems: tuple[Problem, ...]) -> str:
    if all(problem.where.startswith("env ") for problem in problems):
        return "Change or unset the environment variable."
    if all(problem.where.startswith(".env") for problem in problems):
        return "Fix it with: hermes config set NAME VALUE"
    return f"Fix {'it' if len(problems) == 1 else 'them'} with: hermes config edit"
