"""Our instruments write what prometheus_client would: the same families and types, the same series and values."""

import os
from pathlib import Path
from typing import Any

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.serving.instruments import PROCESS, Counter, Gauge, Histogram, Panel, process_text

BUCKETS = (0.001, 0.5, 2.0)
NAMES = st.sampled_from(["a", 'b"\\', "c\nd"])
MARKS = st.integers(min_value=0, max_value=40).map(lambda n: n / 16)
ORDERS = st.lists(st.tuples(st.sampled_from(["count", "set", "observe"]), NAMES, MARKS), max_size=12)


def read(text: bytes) -> dict[str, Any]:
    return {
        family.name: (
            family.type,
            family.documentation,
            {(s.name, *sorted(s.labels.items())): s.value for s in samples},
        )
        for family in text_string_to_metric_families(text.decode())
        if (samples := [s for s in family.samples if not s.name.endswith("_created")])
    }


@given(ORDERS)
def test_the_text_says_what_the_librarys_says(orders: list[tuple[str, str, float]]) -> None:
    counter, gauge = Counter("c_total", "C.", ["x"]), Gauge("g", "G.", ["x"])
    histogram, plain = Histogram("h", "H.", ["x"], BUCKETS), Gauge("p", "P.")
    registry = CollectorRegistry()
    theirs = prometheus_client.Counter("c_total", "C.", ["x"], registry=registry)
    their_gauge = prometheus_client.Gauge("g", "G.", ["x"], registry=registry)
    timed = prometheus_client.Histogram("h", "H.", ["x"], buckets=BUCKETS, registry=registry)
    prometheus_client.Gauge("p", "P.", registry=registry)
    for what, label, value in orders:
        if what == "count":
            counter.add(label, by=value)
            theirs.labels(label).inc(value)
        elif what == "set":
            gauge.set(label, to=value)
            their_gauge.labels(label).set(value)
        else:
            histogram.observe(label, value=value)
            timed.labels(label).observe(value)
    assert read(Panel((counter, gauge, histogram, plain)).text()) == read(generate_latest(registry))


def test_a_series_is_found_by_all_its_labels() -> None:
    gauge = Gauge("g", "G.", ["x", "y"])
    gauge.set("1", "2", to=3)
    panel = Panel([gauge])
    assert panel.value("g", {"y": "2", "x": "1"}) == 3
    assert panel.value("g", {"x": "1"}) is None
    gauge.remove("1", "2")
    assert panel.value("g", {"y": "2", "x": "1"}) is None
    assert panel.text() == b""


def test_the_process_tells_of_itself_what_the_librarys_collector_tells() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    ours, library = read(process_text()), read(generate_latest(registry))
    assert {name: kind for name, (kind, *_) in ours.items()} == {name: kind for name, (kind, *_) in library.items()}
    (start_s,) = ours["process_start_time_seconds"][2].values()
    assert [start_s] == [round(value, 6) for value in library["process_start_time_seconds"][2].values()]
    (resident,) = ours["process_resident_memory_bytes"][2].values()
    assert 2**20 < resident < 2**40
    assert resident % os.sysconf("SC_PAGE_SIZE") == 0
    assert len(ours) == len(PROCESS)


def test_a_system_without_proc_tells_nothing(tmp_path: Path) -> None:
    assert process_text(tmp_path) == b""
