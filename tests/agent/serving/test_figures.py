"""The agent's own numbers: what the library would write of the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.serving.exposition import registry_of
from agent.serving.figures import Figure, Figures, Kind

BOUNDS = (0.001, 0.01, 1.0)
TABLE = (
    Figure(Kind.COUNTER, "calls_total", "Calls.", ("method", "result")),
    Figure(Kind.GAUGE, "devices", "Devices.", ("resource",)),
    Figure(Kind.GAUGE, "up", "Up."),
    Figure(Kind.HISTOGRAM, "duration_seconds", "Time.", ("method",), BOUNDS),
)
NAMES = st.sampled_from(["a", "b c", 'd"e'])


def text(figures: Figures) -> bytes:
    """Without the process's own."""
    lines = registry_of(figures, ()).exposition().splitlines(keepends=True)
    return b"".join(line for line in lines if b"process_" not in line)


@given(
    st.lists(st.tuples(NAMES, NAMES, st.integers(0, 3))),
    st.lists(st.tuples(NAMES, st.floats(-5, 5))),
    st.lists(st.tuples(NAMES, st.floats(0, 2) | st.sampled_from(BOUNDS))),
)
def test_the_text_is_that_of_the_library_s_own_families(
    calls: list[tuple[str, str, int]], devices: list[tuple[str, float]], durations: list[tuple[str, float]]
) -> None:
    figures, theirs = Figures(TABLE), CollectorRegistry()
    counter = Counter("calls_total", "Calls.", ["method", "result"], registry=theirs)
    gauge = Gauge("devices", "Devices.", ["resource"], registry=theirs)
    Gauge("up", "Up.", registry=theirs)
    histogram = Histogram("duration_seconds", "Time.", ["method"], buckets=BOUNDS, registry=theirs)
    for method, result, by in calls:
        figures.count("calls_total", method, result, by=by)
        counter.labels(method, result).inc(by)
    for resource, value in devices:
        figures.set("devices", resource, value=value)
        gauge.labels(resource).set(value)
    for method, value in durations:
        figures.observe("duration_seconds", method, value=value)
        histogram.labels(method).observe(value)
    assert text(figures) == generate_latest(theirs)


def test_series_that_are_not_kept_are_gone_and_begin_at_nothing() -> None:
    figures = Figures(TABLE)
    for name in ("one", "two"):
        figures.count("devices", name, by=3)
    figures.keep("devices", [("two",)])
    assert figures.values("devices") == {("two",): 3}
    figures.count("devices", "one")
    assert figures.values("devices") == {("one",): 1, ("two",): 3}


def test_another_number_of_labels_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="devices has the labels"):
        Figures(TABLE).count("devices", "one", "two")
