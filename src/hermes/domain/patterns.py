"""Safe patterns: regular expressions of ours over text that anybody may have written.

Python's matcher backtracks, and it can be neither interrupted nor moved off the event
loop. So the cost of an expression is estimated from its repetitions when it is read: one
that repeats what can itself match in several ways is refused, and each repetition
shortens the stretch of text that is searched, so that every search ends soon.
"""

import re
import warnings
from math import factorial

from hermes.domain.errors import ConfigError

_STEPS = 5_000_000.0
"""Matcher steps that one search may take: less than a tenth of a second."""
_LONGEST_SOURCE = 500
_LONGEST_WINDOW = 4096
_SHORTEST_WINDOW = 10
_TOKEN = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | \((?:\?[^)a-zA-Z]*[:=!]|\?P<\w+>|\?[a-zA-Z]+\))?
      | \) | \| | \{\d*,?\d*\} | [*+?] | .""",
    re.VERBOSE | re.DOTALL,
)
_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")


class SafePattern:
    """One expression, compiled and bounded; `ConfigError` if it is wrong or could take forever."""

    def __init__(self, source: str, *, ignore_case: bool = False) -> None:
        if len(source) > _LONGEST_SOURCE:
            raise _unusable(f"{source[:20]}…", f"it has more than {_LONGEST_SOURCE} characters")
        try:
            with warnings.catch_warnings(action="ignore"):
                self._expression = re.compile(source, re.IGNORECASE if ignore_case else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise _unusable(source, f"it is not a regular expression ({error})") from None
        self.source = source
        self.window = _window(source)

    def found_in(self, text: str) -> bool:
        """Tell whether the beginning of `text` contains a match."""
        return self._expression.search(text[: self.window]) is not None

    def __repr__(self) -> str:
        return f"SafePattern({self.source!r})"


def _window(source: str) -> int:
    """Return how much text can be searched, at worst, in the affordable time."""
    repeats, choices = _cost(source)
    # An unanchored search starts at every position: one more loop inside the others.
    loops = repeats + 1
    length = min(_LONGEST_WINDOW, int((_STEPS / choices * factorial(loops)) ** (1 / loops)))
    if length < _SHORTEST_WINDOW or repeats > 8:
        raise _unusable(source, "it repeats too much and could stop the gateway")
    return length


def _cost(source: str) -> tuple[int, float]:
    """Count unbounded repetitions, and multiply up the bounded choices."""
    repeats = 0
    choices = 1.0
    open_groups: list[bool] = []
    """Whether something in each open group repeats or has alternatives."""
    last_was_loaded_group = False
    for mark in _TOKEN.findall(source):
        width = _repetition(mark)
        if width is not None:
            if width != 2 and last_was_loaded_group:
                raise _unusable(source, "it repeats a group that itself repeats or chooses")
            repeats, choices = (repeats + 1, choices) if width > 8 else (repeats, choices * width)
            open_groups = [True] * len(open_groups)
            # A second mark after a repetition (`+?`, `*+`) only changes how it matches.
            last_was_loaded_group = False
            continue
        last_was_loaded_group = False
        if mark == "|":
            choices += 1
            open_groups = [True] * len(open_groups)
        elif mark.startswith("(") and not mark.endswith(")"):
            open_groups.append(False)
        elif mark == ")" and open_groups:
            last_was_loaded_group = open_groups.pop()
    return repeats, choices


def _repetition(mark: str) -> int | None:
    """Return in how many ways a repetition can be taken; None if it is none."""
    if mark in {"*", "+"}:
        return 1_000_000
    if mark == "?":
        return 2
    braces = _BRACES.fullmatch(mark)
    if braces is None or not any(braces.groups()):
        return None
    low, comma, high = braces.groups()
    if not comma:
        return 1 if int(low) < 100 else 1_000_000
    return 1_000_000 if not high else max(1, int(high) - int(low or 0) + 1)


def _unusable(source: str, why: str) -> ConfigError:
    return ConfigError(
        f"The pattern {source!r} cannot be used: {why}.",
        hint=r"Write it without nested repetition, e.g. ^hermes\b",
    )
