"""Regular expressions over text that strangers wrote.

Python's engine backtracks: some patterns take time that grows without bound
with the text. Patterns in which a repeated group can itself match in several
ways are refused, and the more repeats a pattern has, the less of a text it is
shown, so that every search ends soon.
"""

import re

from msgspec import Struct

from hermes.domain.errors import ConfigError

__all__ = ["SafeRegex", "safe_regex"]

MAX_PATTERN = 500
MAX_STEPS = 20_000_000
"""What the engine does at most in a search, more or less: a tenth of a second."""
MAX_TEXT = 2000
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P?[<=!:#a-zA-Z>-]*|[()|]|[*+?][+?]?|\{\d*,?\d*\}[+?]?|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"[*+?][+?]?|\{\d*,?\d*\}[+?]?")


class SafeRegex(Struct, frozen=True, kw_only=True):
    """A pattern, and how much of a text it is shown."""

    pattern: re.Pattern[str]
    limit: int

    def found_in(self, text: str) -> bool:
        """Tell whether the beginning of `text` contains a match."""
        return self.pattern.search(text[: self.limit]) is not None


def safe_regex(pattern: str) -> SafeRegex:
    """Compile a pattern; `ConfigError` if it is wrong or could take for ever."""
    if len(pattern) > MAX_PATTERN:
        raise ConfigError(f"A regular expression has more than {MAX_PATTERN} characters.")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError, FutureWarning) as error:
        raise ConfigError(
            f"`{pattern}` is not a regular expression: {error}.",
            hint="Correct it; a backslash is needed before signs that are meant literally.",
        ) from None
    return SafeRegex(pattern=compiled, limit=_limit(_repeats(pattern)))


def _limit(repeats: int) -> int:
    """Return for how long a text that many nested loops stay below `MAX_STEPS`."""
    loops, steps = repeats + 1, MAX_STEPS
    for loop in range(2, loops + 1):
        steps *= loop
    return max(10, min(MAX_TEXT, int(steps ** (1 / loops))))


def _repeats(pattern: str) -> int:
    """Count the repeats; `ConfigError` if one repeats what can match in several ways."""
    count = 0
    open_groups: list[bool] = [False]
    """Whether something in each open group repeats or has alternatives."""
    closed = False
    """Whether that holds for the group that the piece before has closed."""
    for piece in _PIECE.findall(pattern):
        just_closed, closed = closed, False
        if piece == ")" and len(open_groups) > 1:
            closed = open_groups.pop()
            open_groups[-1] = open_groups[-1] or closed
        elif piece.startswith("("):
            open_groups.append(False)
        elif piece == "|":
            open_groups[-1] = True
        elif _REPEAT.fullmatch(piece) and any(c in piece for c in "*+?,"):
            if just_closed and piece[0] != "?":
                raise _nested(pattern)
            open_groups[-1] = True
            count += piece[0] != "?"
        elif _REPEAT.fullmatch(piece) and just_closed:
            raise _nested(pattern)
    return count


def _nested(pattern: str) -> ConfigError:
    return ConfigError(
        f"The regular expression `{pattern}` repeats a group that repeats something itself or "
        "has alternatives: on some texts it would never end.",
        hint="Write it without the outer repeat.",
    )
