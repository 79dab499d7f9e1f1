"""Counters, gauges and histograms of one process, without a dependency.

A `Registry` is made by the composition root and handed to whoever counts.
`render` writes the Prometheus text format. Recording is a dictionary update
under a lock, so any thread may do it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TypeVar

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Buckets that fit most waits."""


class _Metric:
    kind = ""

    def __init__(self, name: str, help_text: str, lock: Lock) -> None:
        self.name = name
        self.help_text = help_text
        self._lock = lock
        self._values: dict[Labels, float] = {}

    def value(self, **labels: str) -> float:
        return self._values.get(_labels(labels), 0.0)

    def samples(self) -> Iterator[Sample]:
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield self.name, labels, value


_M = TypeVar("_M", bound=_Metric)


class Counter(_Metric):
    kind = "counter"

    def add(self, amount: float = 1.0, **labels: str) -> None:
        if amount < 0:
            raise ValueError(f"{self.name} is a counter and cannot shrink")
        key = _labels(labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount


class Gauge(_Metric):
    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        with self._lock:
            self._values[_labels(labels)] = value


class Histogram(_Metric):
    kind = "histogram"

    def __init__(self, name: str, help_text: str, lock: Lock, bounds: Sequence[float]) -> None:
        super().__init__(name, help_text, lock)
        self._bounds = (*sorted(bounds), math.inf)
        self._counts: dict[Labels, list[int]] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = _labels(labels)
        at = next(i for i, bound in enumerate(self._bounds) if value <= bound)
        with self._lock:
            counts = self._counts.setdefault(key, [0] * len(self._bounds))
            counts[at] += 1
            self._values[key] = self._values.get(key, 0.0) + value

    def count(self, **labels: str) -> int:
        return sum(self._counts.get(_labels(labels), ()))

    def samples(self) -> Iterator[Sample]:
        with self._lock:
            series = sorted((labels, list(counts)) for labels, counts in self._counts.items())
            sums = dict(self._values)
        for labels, counts in series:
            total = 0
            for bound, count in zip(self._bounds, counts, strict=True):
                total += count
                yield f"{self.name}_bucket", (*labels, ("le", _number(bound))), total
            yield f"{self.name}_sum", labels, sums[labels]
            yield f"{self.name}_count", labels, total


class Registry:
    """All metrics of a process by name; asking twice gives the same one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._metrics: dict[str, _Metric] = {}

    def counter(self, name: str, help_text: str) -> Counter:
        return self._keep(Counter(name, help_text, self._lock))

    def gauge(self, name: str, help_text: str) -> Gauge:
        return self._keep(Gauge(name, help_text, self._lock))

    def histogram(self, name: str, help_text: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        return self._keep(Histogram(name, help_text, self._lock, bounds))

    def metrics(self) -> tuple[_Metric, ...]:
        with self._lock:
            return tuple(self._metrics[name] for name in sorted(self._metrics))

    def _keep(self, metric: _M) -> _M:
        with self._lock:
            known = self._metrics.setdefault(metric.name, metric)
        if not isinstance(known, type(metric)):
            raise TypeError(f"{metric.name} is already a {known.kind}")
        return known


def render(
    registry: Registry, shown: Callable[[Mapping[str, str]], bool] = lambda _labels: True
) -> str:
    """Write the metrics whose labels are `shown` in the Prometheus text format."""
    lines: list[str] = []
    for metric in registry.metrics():
        help_text = metric.help_text.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {metric.name} {help_text}", f"# TYPE {metric.name} {metric.kind}"]
        for name, labels, value in metric.samples():
            if not shown(dict(labels)):
                continue
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
            lines.append(
                f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}"
            )
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
