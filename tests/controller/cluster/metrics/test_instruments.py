"""Counters, histograms and gauges in Prometheus' text, as its own parser reads it; and the page that lists them."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from controller.cluster.config.load import default
from controller.cluster.metrics.exposition import Exposition, exposing
from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.table import COUNTED, FAMILIES, READ, WAITS_S, Type
from controller.insight.forecast.parts import finished
from tests.support.controller.told import value

PAGE = Path(__file__).parents[4] / "docs" / "controller-metrics.md"


def read(instruments: Instruments) -> dict[str, Metric]:
    shown = finished(exposing(instruments, default(), None, None, {}, role="leader", version="1"))
    text = shown.text().decode()
    return {one.name: one for one in text_string_to_metric_families(text)}


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
    instruments = Instruments()
    instruments.count("kueue_admitted_workloads_total", "cq", 'a "quoted"\nclass', by=2)
    instruments.observe("kueue_admission_wait_time_seconds", "cq", "", value=3.0)
    instruments.observe("kueue_admission_wait_time_seconds", "cq", "", value=1e9)
    found = read(instruments)
    (admitted,) = found["kueue_admitted_workloads"].samples
    assert (admitted.name, admitted.value) == ("kueue_admitted_workloads_total", 2)
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
    assert waits["bucket", "5.0"] == 1
    assert waits["bucket", "+Inf"] == 2
    assert waits["count", None] == 2
    assert waits["sum", None] == 1e9 + 3


def test_the_page_has_every_family_with_its_help_and_no_series_of_when_it_was_made() -> None:
    found = read(Instruments())
    for family in COUNTED:
        shown = found[family.name.removesuffix("_total")]
        assert (shown.type, shown.documentation) == (family.type.value, family.help)
    assert found.keys() == {one.name.removesuffix("_total") for one in COUNTED} | {
        "kueue_build_info",
        "tessera_leading",
    }


def test_what_was_observed_for_many_counts_as_often() -> None:
    instruments = Instruments()
    instruments.observe("tessera_decision_seconds", value=0.002, times=3)
    assert value(instruments, "tessera_decision_seconds") == 3
    assert instruments.registry.get_sample_value("tessera_decision_seconds_sum") == pytest.approx(0.006)


def test_gauges_without_samples_are_left_out_and_infinity_has_its_name() -> None:
    read: dict[str, dict[tuple[str, ...], float]] = {one.name: {} for one in READ}
    read["kueue_cluster_queue_borrowing_limit"]["", "cq", "f", "cpu"] = math.inf
    lines = Exposition(CollectorRegistry(), read, "leader").text().decode().splitlines()
    assert len(lines) == 3
    assert lines[2].endswith("} +Inf")


def test_what_is_gone_is_forgotten_and_begins_at_0_when_it_comes_again() -> None:
    instruments = Instruments()
    for name in ("cq", "other"):
        instruments.count("kueue_admitted_workloads_total", name, "")
        instruments.observe("kueue_admission_wait_time_seconds", name, "", value=1.0)
    instruments.forget(cluster_queue="cq")
    for name in ("kueue_admitted_workloads_total", "kueue_admission_wait_time_seconds"):
        assert value(instruments, name, "cq", "") == 0
        assert value(instruments, name, "other", "") == 1
    instruments.count("kueue_admitted_workloads_total", "cq", "")
    assert value(instruments, "kueue_admitted_workloads_total", "cq", "") == 1


def test_labels_that_the_table_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="kueue_admitted_workloads_total has 2 labels, not 1"):
        Instruments().count("kueue_admitted_workloads_total", "cq")


@given(st.lists(st.floats(0, 1e6) | st.sampled_from(WAITS_S)))
def test_a_histogram_has_in_each_bucket_what_the_library_has_there(values: list[float]) -> None:
    name, ours, theirs = "kueue_execution_time_seconds", Instruments(), CollectorRegistry()
    histogram = Histogram(name, "", buckets=WAITS_S, registry=theirs)
    for one in values:
        ours.observe(name, "cq", "", value=one)
        histogram.observe(one)
    labels = {"cluster_queue": "cq", "priority_class": ""}
    for bound in (*WAITS_S, math.inf) if values else ():
        le = {"le": floatToGoString(bound)}  # type: ignore[no-untyped-call]
        shown = ours.registry.get_sample_value(f"{name}_bucket", labels | le)
        assert shown == theirs.get_sample_value(f"{name}_bucket", le)
    shown = ours.registry.get_sample_value(f"{name}_sum", labels)
    assert (shown or 0.0) == pytest.approx(theirs.get_sample_value(f"{name}_sum"))
