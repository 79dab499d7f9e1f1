"""Safe patterns: regular expressions that a model, a person or a stranger wrote.

A matcher that backtracks can be kept busy for years by `(a+)+$` and a line of a's, and
with it the event loop and every door. So each search has a deadline, after which it
counts as no match. A pattern that misses it on short texts made of its own characters, or
would take long to compile, is refused when it is read.
"""

import logging
import re
from math import prod

from hermes.domain.errors import ConfigError

SECONDS = 0.05
"""What one search may take."""
_LONGEST_SOURCE = 500
_LONGEST_TEXT = 100_000
_MOST_COPIES = 10_000
"""Bounded repetitions are compiled by copying what they repeat."""
_PROBE = 500
_COUNT = re.compile(r"\{(\d*),?(\d*)\}")

log = logging.getLogger(__name__)


class SafePattern:
    """One expression, compiled and bounded in time; `ConfigError` if it is wrong."""

    def __init__(self, source: str, *, ignore_case: bool = False) -> None:
        import regex  # noqa: PLC0415 - 30 ms, and few have patterns

        if len(source) > _LONGEST_SOURCE:
            raise _unusable(f"{source[:20]}…", f"it has more than {_LONGEST_SOURCE} characters")
        counts = [max(int(n or 1) for n in found) for found in _COUNT.findall(source)]
        if prod(counts) > _MOST_COPIES:
            raise _unusable(source, "it repeats too much")
        try:
            self._expression = regex.compile(source, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            raise _unusable(source, f"it is not a regular expression ({error})") from None
        self.source = source
        self.too_slow = False
        """Whether a search had to be given up."""
        for character in sorted(set(source)):
            try:
                self._expression.search(character * _PROBE + "\0", timeout=SECONDS)
            except TimeoutError:
                raise _unusable(source, "it repeats what repeats and takes too long") from None

    def found_in(self, text: str) -> bool:
        """Tell whether `text` contains a match; False if that cannot be told in time."""
        try:
            return self._expression.search(text[:_LONGEST_TEXT], timeout=SECONDS) is not None
        except TimeoutError:
            if not self.too_slow:
                log.warning("the pattern %r takes too long; it may miss matches", self.source)
            self.too_slow = True
            return False

    def __repr__(self) -> str:
        return f"SafePattern({self.source!r})"


def _unusable(source: str, why: str) -> ConfigError:
    return ConfigError(
        f"The pattern {source!r} cannot be used: {why}.",
        hint=r"Write a short regular expression, e.g. ^hermes\b",
    )
