"""The exposition of both processes: the library's text, then what is kept as text."""

import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from kube.metrics import KeptText, Registry


def test_kept_texts_follow_the_librarys_as_they_are_at_each_scrape() -> None:
    registry, kept = Registry(), [b"# TYPE a gauge\na 1\n", b"# TYPE b gauge\nb 2\n"]
    for place in range(2):
        registry.register(KeptText(lambda place=place: kept[place]))  # type: ignore[misc]
    Gauge("own", "Own.", registry=registry).set(3)
    assert registry.exposition() == b"# HELP own Own.\n# TYPE own gauge\nown 3.0\n" + kept[0] + kept[1]
    kept[0] = b""
    assert registry.exposition().endswith(b"own 3.0\n" + kept[1])


def test_nothing_says_when_a_series_was_made() -> None:
    registry = Registry()
    Counter("c_total", "C.", registry=registry).inc()
    Histogram("h", "H.", buckets=(1.0,), registry=registry).observe(2)
    names = {
        sample.name
        for family in text_string_to_metric_families(registry.exposition().decode())
        for sample in family.samples
    }
    assert names == {"c_total", "h_bucket", "h_count", "h_sum"}


def test_two_collectors_of_one_name_are_refused() -> None:
    registry = Registry()
    Gauge("own", "Own.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Gauge("own", "Own.", registry=registry)
