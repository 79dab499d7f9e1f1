"""Noticing that the gateway is being started again and again.

Each start is noted in a small file. Too many within a short time mean that
something it does at the start, such as resuming a turn that restarts it, brings
it down: the caller then starts without resuming anything.
"""

import time
from pathlib import Path

import msgspec

from hermes.config.atomic import write_atomic

__all__ = ["starts_too_often"]


def starts_too_often(
    path: Path, *, max_count: int, window_seconds: float, now: float | None = None
) -> bool:
    """Note a start; tell whether it is one more than `max_count` within the window."""
    at = time.time() if now is None else now
    try:
        earlier = msgspec.json.decode(path.read_bytes(), type=list[float])
    except (OSError, msgspec.DecodeError):
        # A guard that cannot remember must not keep the gateway from starting.
        earlier = []
    starts = [start for start in earlier if 0 <= at - start < window_seconds] + [at]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.encode(starts).decode())
    return len(starts) > max_count
