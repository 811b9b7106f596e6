"""Parts that many objects have alike are one object, and each object is what plain decoding makes of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies

from controller.cluster.watching.kinds import reader
from controller.objects.core import Node, Pod
from controller.objects.decode import DecodeError, GpuNode, read_custom
from controller.objects.meta import KubernetesObject
from controller.objects.sharing import ALIKE, Remembered, SharingDecoder
from controller.objects.workload import Workload
from hack.bench.fleet import objects
from hack.bench.fleet.shape import fleet

SMALL = fleet(0.0002)
TYPES: dict[str, type[KubernetesObject]] = {"Workload": Workload, "Pod": Pod, "Node": Node, "GpuNode": GpuNode}
FLEET = [one for one in objects.everything(SMALL) if one["kind"] in TYPES][:80] + [
    objects.pending(waiting) for waiting in list(SMALL.waits())[:5]
]


def plain(type_: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_, dec_hook=read_custom)


def workload(name: str, **spec: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})


def test_a_fleets_shared_objects_are_what_plain_decoding_makes_of_them() -> None:
    shared = {name: SharingDecoder(type_, ALIKE, read_custom) for name, type_ in TYPES.items()}
    seen = set()
    for one in FLEET:
        raw = msgspec.json.encode(one)
        assert shared[one["kind"]].decode(raw) == plain(TYPES[one["kind"]]).decode(raw)
        seen.add(one["kind"])
    assert seen == set(TYPES)


def test_pod_sets_with_the_same_text_are_one_object() -> None:
    read = reader(Workload)
    first, second, other = (
        read(workload(name, podSets=[{"name": "main", "count": count}]))
        for name, count in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.spec.pod_sets is second.spec.pod_sets
    assert other.spec.pod_sets[0].count == 2


@pytest.mark.parametrize("type_", TYPES.values(), ids=TYPES)
def test_an_object_without_any_of_its_parts_has_their_defaults(type_: type[KubernetesObject]) -> None:
    raw = b'{"metadata": {"name": "a"}, "spec": {}, "status": {}}'
    if type_ is GpuNode:
        raw = b'{"metadata": {"name": "a"}}'
    assert SharingDecoder(type_, ALIKE, read_custom).decode(raw) == plain(type_).decode(raw)


@pytest.mark.parametrize(
    "spec",
    [{"podSets": None}, {"podSets": [{"name": "a", "minCount": None}]}],
    ids=["no pod sets", "a null inside"],
)
def test_nulls_in_a_shared_part_mean_absent_as_everywhere(spec: dict[str, Any]) -> None:
    without = {key: value for key, value in spec.items() if value is not None}
    assert (
        reader(Workload)(workload("a", **spec)).spec.pod_sets
        == plain(Workload).decode(workload("a", **without)).spec.pod_sets
    )


def test_an_error_in_a_shared_part_names_its_whole_path() -> None:
    with pytest.raises(DecodeError, match=r"spec\.podSets\[0\]\.count"):
        reader(Workload)(workload("a", podSets=[{"name": "main", "count": "many"}]))


@given(strategies.lists(strategies.binary(max_size=6)), strategies.integers(0, 12))
def test_no_more_text_is_remembered_than_allowed(texts: list[bytes], most: int) -> None:
    known = Remembered(lambda text: [text], most)
    for text in texts:
        assert known.of(text) == [text]
        assert sum(map(len, known._known)) == known._bytes <= most
