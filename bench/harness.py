"""What every bench shares: a measured figure, its budget, and sampling beside a baseline.

A bench is a module with `async def run(job: Job) -> list[Figure]`. It runs in a
process of its own, takes its samples in turn with those of a bare baseline,
and reports figures; the budgets are in `bench.budgets`.
"""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

__all__ = [
    "Figure",
    "Job",
    "alternate",
    "clean_rss_kb",
    "median",
    "p95",
    "peak_kb",
    "rss_kb",
    "timed",
]


class Job(Struct, frozen=True, kw_only=True):
    """How a bench is to be run."""

    folder: Path
    """An empty folder of its own."""
    quick: bool = False
    """Few samples: shows that it works, not what it costs."""

    def pick(self, full: int, quick: int) -> int:
        """Return the number of samples, or of whatever a short run has less of."""
        return quick if self.quick else full


class Figure(Struct, frozen=True, kw_only=True):
    """One measured number; `key` finds its name, unit and budget."""

    key: str
    measured: float
    baseline: float | None = None
    """The same done bare, in the same unit."""
    note: str = ""


Sample = Callable[[], Awaitable[float]]


async def alternate(rounds: int, subject: Sample, bare: Sample) -> tuple[list[float], list[float]]:
    """Take `rounds` samples of both in turn, after one of each that does not count."""
    await bare()
    await subject()
    subjects: list[float] = []
    bares: list[float] = []
    for _ in range(rounds):
        bares.append(await bare())
        subjects.append(await subject())
    return subjects, bares


async def timed(work: Awaitable[object]) -> float:
    """Return how many milliseconds `work` takes."""
    start = time.perf_counter()
    await work
    return (time.perf_counter() - start) * 1000


def median(samples: Sequence[float]) -> float:
    """Return the middle sample."""
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    """Return what 95 of 100 samples stay below."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


def rss_kb(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return _status(pid, "VmRSS")


def peak_kb(pid: int | str = "self") -> int:
    """Return the most memory a process has had resident."""
    return _status(pid, "VmHWM")


def clean_rss_kb() -> int:
    """Return our resident memory after a collection."""
    gc.collect()
    return rss_kb()


def _status(pid: int | str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0])
    raise LookupError(field)
