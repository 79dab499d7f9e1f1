"""Lines of a background process that its session wants to hear of.

What a process prints and what is looked for are both the model's choice, so neither is
matched on the event loop: a thread looks at a piece at a time, for a bounded time, and
what it cannot keep up with is left out and said.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from hermes.domain.errors import Conflict, UsageError
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.clock import Clock

MAX_PATTERNS = 8
"""For one process."""
MAX_WATCHED = 32
"""For all that run in a session, together."""
MAX_WAITING = 4_000_000
"""Characters that may wait to be looked at."""
QUIET_SECONDS = 15.0
MAX_STRIKES = 3
_MAX_LINE = 4000
_PIECE = 65_536
_SECONDS = 0.5
"""What looking at one piece may take, with all patterns; ordinary ones take a few milliseconds."""


async def read_patterns(sources: Sequence[str], watched: int) -> list[SafePattern]:
    """Compile patterns in a session that watches for so many already."""
    if not sources:
        return []
    if len(sources) > MAX_PATTERNS:
        raise UsageError(
            f"A process is watched for at most {MAX_PATTERNS} patterns.",
            hint="Join some of them with |.",
        )
    if watched + len(sources) > MAX_WATCHED:
        raise Conflict(
            f"{watched} patterns are watched for already, {MAX_WATCHED} at most.",
            hint="End a watched process first, or watch for less.",
        )
    return await asyncio.to_thread(lambda: [SafePattern(source) for source in sources])


class _Seen(Struct):
    rest: str
    """The line that has not ended yet."""
    lines: list[str] = field(default_factory=list)
    slow: list[SafePattern] = field(default_factory=list)
    all: bool = True


class OutputWatch:
    """Calls `tell` with lines that match one of `patterns`."""

    def __init__(
        self, patterns: Sequence[SafePattern], clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._patterns = list(patterns)
        self._clock = clock
        self._tell = tell
        self._waiting: deque[str] = deque()
        self._size = 0
        self._rest = ""
        self._left_out = False
        self._quiet_until = 0.0
        self._strikes = 0
        self._task: asyncio.Task[None] | None = None
        self._then: list[Callable[[], None]] = []

    @property
    def patterns(self) -> int:
        return len(self._patterns)

    def feed(self, text: str) -> None:
        """Have `text` looked at, behind what waits already."""
        if not self._patterns or not text:
            return
        self._waiting.append(text)
        self._size += len(text)
        while self._size > MAX_WAITING:
            self._size -= len(self._waiting.popleft())
            self._leave_out()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def then(self, call: Callable[[], None]) -> None:
        """Call back when all that came so far has been looked at."""
        if self._task is None:
            call()
        else:
            self._then.append(call)

    def close(self) -> None:
        self._patterns.clear()
        self._then.clear()
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        try:
            while self._waiting and self._patterns:
                text = self._rest + self._piece()
                seen = await asyncio.to_thread(_look, tuple(self._patterns), text)
                self._rest = seen.rest
                self._take(seen)
        finally:
            self._task = None
            self._waiting.clear()
            self._size = 0
            calls, self._then = self._then, []
            for call in calls:
                call()

    def _piece(self) -> str:
        pieces = [self._waiting.popleft()]
        while self._waiting and sum(map(len, pieces)) < _PIECE:
            pieces.append(self._waiting.popleft())
        text = "".join(pieces)
        self._size -= len(text)
        return text

    def _take(self, seen: _Seen) -> None:
        for slow in seen.slow:
            if slow in self._patterns:
                self._patterns.remove(slow)
                self._tell(f"is no longer watched for {slow.source!r}: the pattern takes too long.")
        for line in seen.lines:
            if self._patterns:
                self._matched(line)
        if not seen.all and self._patterns:
            self._leave_out()

    def _leave_out(self) -> None:
        if not self._left_out:
            self._left_out = True
            self._tell("prints more than can be watched; some lines were not looked at.")

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


def _look(patterns: Sequence[SafePattern], text: str) -> _Seen:
    """Return the first lines that match, as many as one can have use for."""
    *lines, rest = text.split("\n")
    seen, found = _Seen(rest=rest[-_MAX_LINE:]), dict[str, bool]()
    end = time.thread_time() + _SECONDS
    for each in lines:
        line = each[:_MAX_LINE]
        if line not in found:
            if time.thread_time() > end:
                seen.all = False
                break
            found[line] = _matches(patterns, line, seen.slow)
        if found[line]:
            seen.lines.append(line)
            if len(seen.lines) > MAX_STRIKES:
                break
    return seen


def _matches(patterns: Sequence[SafePattern], line: str, slow: list[SafePattern]) -> bool:
    for pattern in patterns:
        if pattern in slow:
            continue
        if pattern.found_in(line):
            return True
        if pattern.too_slow:
            slow.append(pattern)
    return False
