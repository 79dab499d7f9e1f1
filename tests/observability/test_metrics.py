import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.observability.metrics import Registry, render


def test_counters_gauges_and_histograms_are_rendered_for_prometheus() -> None:
    registry = Registry()
    turns = registry.counter("hermes_turns_total", "Turns that ended.")
    turns.add(outcome="done")
    turns.add(2, outcome="done")
    turns.add(outcome='odd "one"\n')
    registry.gauge("hermes_lanes", "Live lanes.").set(1.5)
    wait = registry.histogram("hermes_wait_seconds", "Waiting.", bounds=(0.1, 1))
    wait.observe(0.05)
    wait.observe(1)
    wait.observe(7)
    assert render(registry) == (
        "# HELP hermes_lanes Live lanes.\n"
        "# TYPE hermes_lanes gauge\n"
        "hermes_lanes 1.5\n"
        "# HELP hermes_turns_total Turns that ended.\n"
        "# TYPE hermes_turns_total counter\n"
        'hermes_turns_total{outcome="done"} 3\n'
        'hermes_turns_total{outcome="odd \\"one\\"\\n"} 1\n'
        "# HELP hermes_wait_seconds Waiting.\n"
        "# TYPE hermes_wait_seconds histogram\n"
        'hermes_wait_seconds_bucket{le="0.1"} 1\n'
        'hermes_wait_seconds_bucket{le="1"} 2\n'
        'hermes_wait_seconds_bucket{le="+Inf"} 3\n'
        "hermes_wait_seconds_sum 8.05\n"
        "hermes_wait_seconds_count 3\n"
    )


def test_the_same_name_is_the_same_metric_and_never_another_kind() -> None:
    registry = Registry()
    registry.counter("a_total", "A.").add()
    assert registry.counter("a_total", "A.").value() == 1
    with pytest.raises(TypeError, match="already a counter"):
        registry.gauge("a_total", "A.")


def test_a_counter_cannot_shrink_and_a_gauge_can() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="cannot shrink"):
        registry.counter("a_total", "A.").add(-1)
    gauge = registry.gauge("b", "B.")
    gauge.set(3)
    gauge.set(2)
    assert gauge.value() == 2


def test_counting_from_several_threads_loses_nothing() -> None:
    counter = Registry().counter("a_total", "A.")

    def count() -> None:
        for _ in range(2000):
            counter.add(kind="x")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counter.value(kind="x") == 8000


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_every_observation_is_in_exactly_one_bucket(values: list[float]) -> None:
    histogram = Registry().histogram("h", "H.")
    for value in values:
        histogram.observe(value)
    assert histogram.count() == len(values)
    buckets = [count for name, _, count in histogram.samples() if name == "h_bucket"]
    assert buckets == sorted(buckets)
    assert not values or buckets[-1] == len(values)
