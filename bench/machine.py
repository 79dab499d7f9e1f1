"""The machine that a result was measured on, without anything that identifies it."""

import os
import platform
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

__all__ = ["Machine", "describe"]


class Machine(Struct, frozen=True, kw_only=True):
    """What matters for comparing two results."""

    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    sqlite: str
    load: float = 0.0
    """The one-minute load when the run began: above zero, figures are noisy."""


def describe() -> Machine:
    """Describe this machine."""
    return Machine(
        cpu=next(_values("/proc/cpuinfo", "model name"), platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(int(next(_values("/proc/meminfo", "MemTotal"), "0").split()[0]) / 2**20, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        load=round(os.getloadavg()[0], 2),
    )


def _values(path: str, field: str) -> Iterator[str]:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            yield value.strip()
