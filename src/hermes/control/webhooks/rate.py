"""So many deliveries a minute and route; the next has to wait."""

import math
from collections import deque

__all__ = ["RateLimit"]

WINDOW_SECONDS = 60.0


class RateLimit:
    """Remembers when each route was last used."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        """0: no limit."""
        self._times: dict[str, deque[float]] = {}

    def wait(self, route: str, now: float) -> int | None:
        """Count a delivery; return after how many seconds to come again if there is no room."""
        if not self._limit:
            return None
        times = self._times.setdefault(route, deque())
        while times and now - times[0] >= WINDOW_SECONDS:
            times.popleft()
        if len(times) >= self._limit:
            return max(1, math.ceil(times[0] + WINDOW_SECONDS - now))
        times.append(now)
        return None
