"""Mention patterns that cannot be made to take long.

The expressions are the operator's, the text is anybody's, and Python's matcher
can be neither interrupted nor moved off the event loop. So the cost of an
expression is estimated from its repetitions when it is read: one that nests
repetitions is refused, and each repetition shortens the stretch of text that is
looked at, so that the worst case stays a few hundredths of a second.
"""

import re
import warnings

from hermes.domain.errors import ConfigError

__all__ = ["MentionPattern"]

_STEPS = 4_000_000.0
"""Matcher steps that are affordable for one message."""
_WHOLE = 4096
_SHORTEST = 40
_TOKEN = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | \((?:\?[^)a-zA-Z]*[:=!]|\?P<\w+>|\?[a-zA-Z]+\))?
      | \) | \| | \{\d*,?\d*\} | [*+?] | .""",
    re.VERBOSE | re.DOTALL,
)
_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")


class MentionPattern:
    """One expression, compiled and bounded."""

    def __init__(self, source: str) -> None:
        try:
            with warnings.catch_warnings(action="ignore"):
                self._expression = re.compile(source, re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            raise _unusable(source, f"it is not a regular expression ({error})") from None
        self.source = source
        self.window = _window(source)

    def found_in(self, text: str) -> bool:
        """Say whether the beginning of `text` contains a match."""
        return self._expression.search(text[: self.window]) is not None

    def __repr__(self) -> str:
        return f"MentionPattern({self.source!r})"


def _window(source: str) -> int:
    """Return how much text can be searched, at worst, in the affordable time."""
    repeats, choices = _cost(source)
    budget = _STEPS / choices
    # An unanchored search starts at every position: one more power of the length.
    length = min(_WHOLE, int(budget ** (1 / (repeats + 1))) if repeats else int(budget))
    if length < _SHORTEST:
        raise _unusable(source, "it repeats too much and could stop the gateway")
    return length


def _cost(source: str) -> tuple[int, float]:
    """Count unbounded repetitions, and multiply up the bounded choices."""
    repeats = 0
    choices = 1.0
    open_groups: list[bool] = []
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
        f"The Telegram mention pattern {source!r} cannot be used: {why}.",
        hint=r"Write it without nested repetition, e.g. ^hermes\b",
    )
