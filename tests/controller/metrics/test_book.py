"""Counters, histograms and gauges in Prometheus' text, as its own parser reads it; and the page that lists them."""

import math
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from controller.metrics.book import Book, gauges
from controller.metrics.table import COUNTED, FAMILIES, READ, Type

PAGE = Path(__file__).parents[3] / "docs" / "controller-metrics.md"


def test_the_page_lists_every_series_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), help_) for name, kind, labels, help_ in rows}
    assert listed == {one.name: (one.type.value, one.labels, one.help) for one in FAMILIES}


def test_names_are_unique_and_end_as_their_type_wants() -> None:
    names = [one.name for one in FAMILIES]
    assert len(names) == len(set(names))
    for one in FAMILIES:
        assert one.name.startswith(("kueue_", "tessera_"))
        assert (one.type is Type.COUNTER) == one.name.endswith("_total")


def test_what_was_counted_is_read_by_prometheus_parser() -> None:
    book = Book()
    book.count("kueue_admitted_workloads_total", "cq", 'a "quoted"\nclass', by=2)
    book.observe("kueue_admission_wait_time_seconds", "cq", "", value=3.0)
    book.observe("kueue_admission_wait_time_seconds", "cq", "", value=1e9)
    text = "\n".join(book.lines("leader")) + "\n"
    found = {one.name: one for one in text_string_to_metric_families(text)}
    (admitted,) = [one for one in found["kueue_admitted_workloads"].samples if one.name.endswith("_total")]
    assert admitted.value == 2
    assert admitted.labels == {
        "cluster_queue": "cq",
        "priority_class": 'a "quoted"\nclass',
        "replica_role": "leader",
    }
    waits = {
        (one.name.rpartition("_")[2], one.labels.get("le")): one.value
        for one in found["kueue_admission_wait_time_seconds"].samples
    }
    assert waits["bucket", "2.5"] == 0
    assert waits["bucket", "5"] == 1
    assert waits["bucket", "+Inf"] == 2
    assert waits["count", None] == 2
    assert len(found) == len(COUNTED)


def test_gauges_without_samples_are_left_out_and_infinity_has_its_name() -> None:
    lines = list(gauges(READ, {"kueue_cluster_queue_borrowing_limit": {("", "cq", "f", "cpu"): math.inf}}, "leader"))
    assert len(lines) == 3
    assert lines[2].endswith("} +Inf")


def test_what_is_gone_is_forgotten() -> None:
    book = Book()
    book.count("kueue_admitted_workloads_total", "cq", "")
    book.count("kueue_admitted_workloads_total", "other", "")
    book.forget(cluster_queue="cq")
    assert book.value("kueue_admitted_workloads_total", "cq", "") == 0
    assert book.value("kueue_admitted_workloads_total", "other", "") == 1
