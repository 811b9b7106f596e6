"""Objects as large and as odd as the API server stores them: refused or harmless, in bounded time and memory.

Each goes through the decoder that the watch feeds and, once read, into an engine that has other work to do.
"""

import time
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.watching.kinds import reader
from controller.objects.decode import DecodeError, read_gpu_node
from controller.objects.quantity import MAX_INT64, QuantityError, parse_quantity
from controller.objects.workload import Workload
from inventory.api import claimplan, deviceplan
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

MOST_BYTES = 1_400_000
"""Of an object: etcd takes 1.5 MiB with the request around it."""
LONGEST_S = 1.0
"""CPU seconds to decode one object and to decide about it."""
MOST_MEMORY = 8 * MOST_BYTES

READ = reader(Workload)


def raw_workload(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"gpu": "1"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "odd", "namespace": "ns", "uid": "odd", **(metadata or {})},
        "spec": {"queueName": "queue", "podSets": [{"name": "main", "count": 1, "template": template}], **spec},
    }


def with_request(**amounts: Any) -> dict[str, Any]:
    found = raw_workload()
    found["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = amounts
    return found


def decided(given: dict[str, Any]) -> bool:
    """Whether it was read. What was read is decided about, and the work beside it is still admitted."""
    world = World()
    world.put(flavor(), cluster_queue("queue"), local_queue("queue"), workload("usual", "queue"))
    raw = msgspec.json.encode(given)
    assert len(raw) <= MOST_BYTES + 2_000
    tracemalloc.start()
    started_s = time.process_time()
    try:
        read = READ(raw)
    except DecodeError as refused:
        _check_short(refused)
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_MEMORY
    world.put(read)
    world.settle()
    assert time.process_time() - started_s < LONGEST_S
    assert "usual" in world.running()
    return True


def _check_short(error: Exception) -> None:
    assert len(str(error)) < 1_000, "the error repeats the object"
    assert len(str(error).splitlines()) == 1


LARGE: dict[str, dict[str, Any]] = {
    "an annotation of 1.4 MB": raw_workload({"annotations": {"a": "x" * MOST_BYTES}}),
    "10,000 labels": raw_workload({"labels": {f"key-{n}": "value" for n in range(10_000)}}),
    "10,000 resources": with_request(**{f"example.com/r{n}": "1" for n in range(10_000)}),
    "10,000 tolerations": raw_workload(podSets=[]),
    "18 pod sets of the largest counts": raw_workload(
        podSets=[{**raw_workload()["spec"]["podSets"][0], "name": f"s{n}", "count": 2**31 - 1} for n in range(18)]
    ),
    "20,000 finalizers": raw_workload({"finalizers": [f"example.com/{n}" for n in range(20_000)]}),
}
LARGE["10,000 tolerations"]["spec"] = raw_workload()["spec"]
LARGE["10,000 tolerations"]["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [
    {"key": f"k{n}", "operator": "Exists"} for n in range(10_000)
]


@pytest.mark.parametrize("what", LARGE)
def test_a_workload_of_the_largest_size_is_read_and_holds_nothing_up(what: str) -> None:
    assert decided(LARGE[what])


NAMES = {
    "253 characters": "a" * 253,
    "control characters": "a\x1b[2J\x07\r\nb",
    "bidirectional text": "\u202egpu\u2066\u2069",
    "a zero byte": "a\0b",
    "emoji": "\U0001f600" * 60,
}


@pytest.mark.parametrize("what", NAMES)
def test_a_name_of_any_characters_is_refused_or_harmless(what: str) -> None:
    decided(raw_workload({"name": NAMES[what], "labels": {NAMES[what]: NAMES[what]}}, queueName="queue"))
    assert decided(raw_workload(queueName=NAMES[what])), "a queue that is not there is waited for"


@pytest.mark.parametrize("number", [2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40])
def test_a_number_beyond_its_field_is_refused_and_one_at_its_end_is_read(number: int) -> None:
    assert decided(raw_workload({"generation": number})) == (-(2**63) <= number < 2**63)
    assert not decided(raw_workload(priority=number)), "a priority has 32 bits"
    assert decided(raw_workload(priority=2**31 - 1))


@pytest.mark.parametrize("text", ["9" * 60, "0." + "0" * 50 + "1", "9" * 60 + "Ei", "-" + "9" * 60, "1e60"])
def test_a_quantity_of_60_digits_is_exact_or_at_the_end_of_its_range(text: str) -> None:
    found = parse_quantity(text)
    assert abs(found.value) <= MAX_INT64
    assert parse_quantity(str(found)) == found
    decided(with_request(gpu=text))


@given(st.text(alphabet="0123456789.eE+-KMGTPimkunx\u00b2\u0663 ", max_size=200))
@settings(max_examples=150)
def test_any_text_is_a_quantity_within_bounds_or_refused(text: str) -> None:
    try:
        found = parse_quantity(text)
    except QuantityError as refused:
        _check_short(refused)
        return
    assert abs(found.value) <= MAX_INT64
    assert len(str(found)) < 300


@pytest.mark.parametrize(
    "moment",
    [
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_a_clock_of_any_year_is_refused_or_harmless(moment: str) -> None:
    decided(raw_workload({"creationTimestamp": moment}))
    condition = {"type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": moment}
    odd = raw_workload({"creationTimestamp": "2025-01-01T00:00:00Z"})
    odd["status"] = {"conditions": [condition], "requeueState": {"count": 2**31 - 1, "requeueAt": moment}}
    decided(odd)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=8), st.text(max_size=300))
@settings(max_examples=25)
def test_any_labels_and_any_text_in_an_annotation_are_read(labels: dict[str, str], text: str) -> None:
    read = READ(msgspec.json.encode(raw_workload({"labels": labels, "annotations": {"a": text}})))
    assert read.metadata.labels == labels
    assert len(deviceplan.devices(text)) <= 6400
    claimplan.read(text)


def test_a_plan_of_devices_of_the_largest_size_takes_no_time_and_names_no_more_than_a_pod_can_have() -> None:
    started_s = time.process_time()
    assert deviceplan.devices("GPU-1*6400") == ("GPU-1",) * 6400
    for text in ("GPU-1*6401", "GPU-1*6400,GPU-2", "a," * 700_000, "a*" + "9" * 60_000):
        assert len(deviceplan.devices(text)) <= 6400
    assert claimplan.read("[" * 60_000) == {}
    assert claimplan.read('{"a":' * 10_000) == {}
    assert time.process_time() - started_s < LONGEST_S


@pytest.mark.parametrize(
    "status",
    [
        {"gpus": [{"uuid": "GPU-1"}] * 65},
        {"gpus": [{"uuid": "x" * 254}]},
        {"gpus": [{"uuid": "GPU-1", "index": 2**63}]},
    ],
)
def test_a_gpu_node_beyond_its_bounds_is_refused_in_one_line(status: dict[str, Any]) -> None:
    with pytest.raises(DecodeError) as refused:
        read_gpu_node({"metadata": {"name": "n"}, "status": status})
    assert len(str(refused.value).splitlines()) == 1
