"""Watches the output of a background process for lines somebody waits for.

Notices must not become a flood: there is at most one in 15 seconds, and a
pattern that keeps matching in between is given up after three such strikes.
"""

import re
from collections.abc import Callable

from hermes.domain.errors import UsageError
from hermes.domain.ports.clock import Clock

__all__ = ["OutputWatch"]

QUIET_SECONDS = 15.0
MAX_STRIKES = 3
_MAX_LINE = 4000


class OutputWatch:
    """Calls `tell` with lines that match one of `patterns`."""

    def __init__(
        self, patterns: tuple[str, ...], clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._clock = clock
        self._tell = tell
        self._rest = ""
        self._quiet_until = 0.0
        self._strikes = 0

    def feed(self, text: str) -> None:
        """Look at more output."""
        if not self._patterns:
            return
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[-_MAX_LINE:]
        for line in lines:
            if any(pattern.search(line[:_MAX_LINE]) for pattern in self._patterns):
                self._matched(line[:_MAX_LINE])

    def _matched(self, line: str) -> None:
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_SECONDS
            self._tell(f"printed a line you watch for: {line.strip()}")
            return
        self._strikes += 1
        if self._strikes == MAX_STRIKES:
            self._patterns = []
            self._tell("prints lines you watch for too often; they are no longer watched.")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"The watch pattern `{pattern}` is not a regex: {error}.") from error
