"""What objects say alike is one text, and each object is what plain decoding makes of it."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from controller.cluster.watching.kinds import RawWorkloads, reader
from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode, read_custom
from controller.objects.interning import interned
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from hack.bench.fleet import objects
from hack.bench.fleet.shape import fleet

SMALL = fleet(0.0002)
TYPES: dict[str, type[KubernetesObject]] = {"Workload": Workload, "Pod": Pod, "Node": Node, "GpuNode": GpuNode}


def plain(type_: type[Any], one: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(one), type=type_, dec_hook=read_custom)


def read(one: dict[str, Any], kind: str = "Workload") -> Any:
    return reader(TYPES[kind])(msgspec.json.encode(one))


def test_a_fleets_objects_are_what_plain_decoding_makes_of_them() -> None:
    seen = set()
    for one in [*objects.everything(SMALL)][:120]:
        if (type_ := TYPES.get(one["kind"])) is not None:
            assert interned(plain(type_, one)) == plain(type_, one)
            seen.add(one["kind"])
    assert seen == set(TYPES)


def test_texts_of_two_workloads_are_one_text() -> None:
    first, second = (read(objects.running(run)) for run in list(SMALL.runs())[:2])
    for one, other in (
        (first.api_version, second.api_version),
        (first.metadata.namespace, second.metadata.namespace),
        (first.metadata.finalizers, second.metadata.finalizers),
        (first.metadata.owner_references[0].kind, second.metadata.owner_references[0].kind),
        (first.status.conditions[0].message, second.status.conditions[0].message),
        (first.status.admission.cluster_queue, second.status.admission.cluster_queue),
    ):
        assert one == other
        assert one is other


def test_what_an_object_says_twice_is_one_text() -> None:
    workload = read(objects.pending(next(SMALL.waits())))
    (owner,) = workload.metadata.owner_references
    assert owner.name is workload.metadata.name
    assert owner.uid is workload.metadata.labels["kueue.x-k8s.io/job-uid"]
    pod = read(next(objects.pods(next(SMALL.runs()))), "Pod")
    assert pod.spec.node_selector["kubernetes.io/hostname"] is pod.spec.node_name


def test_an_owner_of_another_name_keeps_it() -> None:
    given = objects.pending(next(SMALL.waits()))
    given["metadata"]["ownerReferences"][0] |= {"name": "another", "uid": "u-1"}
    (owner,) = read(given).metadata.owner_references
    assert (owner.name, owner.uid) == ("another", "u-1")


@pytest.mark.parametrize("number", [1, 2])
def test_the_defaults_of_the_structs_stay_as_they_are(number: int) -> None:
    """They are shared by all objects that say nothing."""
    empty = read({"metadata": {"name": str(number)}}, "Pod")
    assert empty == Pod(metadata=empty.metadata)
    assert Pod() == Pod(api_version="", kind="")
    assert Workload().metadata.labels == {}


def test_a_waiting_workload_takes_less_than_a_kibibyte_in_the_watch() -> None:
    """With the packed JSON of its spec. It was 1.7 KiB before texts were shared."""
    whole = fleet(0.02)
    waiting = [msgspec.json.encode(objects.pending(each)) for each in whole.waits()]
    raws = RawWorkloads()
    for raw in waiting[:400]:  # one of each project and queue has been read
        raws.read(raw)
    # Threads that tests before this one left behind may take memory meanwhile: the least of four counts.
    parts = [waiting[start : start + 400] for start in range(400, 2000, 400)]
    assert min(_bytes_of_each(raws, part) for part in parts) < 1024


def _bytes_of_each(raws: RawWorkloads, waiting: list[bytes]) -> float:
    gc.collect()
    tracemalloc.start()
    kept = [raws.read(raw) for raw in waiting]
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(kept)


def test_dicts_and_times_that_objects_have_alike_are_one() -> None:
    first, second = (read(objects.running(run)) for run in list(SMALL.runs())[:2])
    (one,), (other,) = (each.status.admission.pod_set_assignments for each in (first, second))
    assert one.flavors is other.flavors
    assert one.resource_usage is other.resource_usage
    assert first.status.conditions[0].last_transition_time is second.status.conditions[0].last_transition_time
    pods = [read(pod, "Pod") for pod in objects.pods(next(SMALL.runs()))]
    assert len(pods) > 1
    assert all(pod.metadata.labels is pods[0].metadata.labels for pod in pods)


def test_a_quantity_stays_as_it_was_written() -> None:
    told = []
    for text in ("1Ki", "1024"):
        given = objects.running(next(SMALL.runs()))
        given["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"memory": text}
        (assigned,) = read(given).status.admission.pod_set_assignments
        told.append(str(assigned.resource_usage["memory"]))
    assert told == ["1Ki", "1024"]
