"""Preferred devices of one resource: whole GPUs, replicas, MIG instances, mixtures, and requests gone wrong."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import LogicalDevice
from inventory.layout.sharing import ReplicaPolicy
from inventory.links import ScoreMatrix
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import (
    Chooser,
    Preference,
    PreferenceError,
    UnknownDeviceError,
    UnsatisfiableError,
    any_answer,
    prefer,
)
from tests.support.inventory.builders import ids, instances, matrix, replicas, score_matrices, uuid, whole

POLICIES = st.sampled_from(list(ReplicaPolicy))


def links(n: int = 8, scores: ScoreMatrix | None = None) -> LinkTable:
    return LinkTable([uuid(i) for i in range(n)], scores or matrix(n, lambda i, j: 50 if i // 2 == j // 2 else 10))


def spread(answer: Preference | Sequence[DeviceId], devices: Sequence[LogicalDevice]) -> Counter[GpuUuid]:
    """How many of the answer's devices stand on each GPU."""
    gpu_of = {device.id: device.gpu for device in devices}
    return Counter(gpu_of[device] for device in (answer.devices if isinstance(answer, Preference) else answer))


@st.composite
def resources(draw: st.DrawFn) -> tuple[list[LogicalDevice], LinkTable]:
    """A resource over up to 8 GPUs, each whole, replicated or cut into MIG instances, and the links."""
    scores = draw(score_matrices())
    kinds = draw(st.sampled_from([["whole"], ["replicas"], ["mig"], ["whole", "replicas", "mig"]]))
    devices: list[LogicalDevice] = []
    for index in range(len(scores)):
        kind = draw(st.sampled_from(kinds))
        if kind == "whole":
            devices.append(whole(index))
        elif kind == "replicas":
            devices += replicas(index, draw(st.integers(2, 5)))
        else:
            devices += instances(index, draw(st.integers(1, 7)))
    return devices, links(len(scores), scores)


@st.composite
def requests(draw: st.DrawFn, devices: Sequence[LogicalDevice]) -> tuple[list[DeviceId], list[DeviceId], int]:
    available = draw(st.lists(st.sampled_from(ids(devices)), min_size=1, unique=True))
    size = draw(st.integers(1, len(available)))
    required = draw(st.lists(st.sampled_from(available), max_size=size, unique=True))
    return available, required, size


@settings(max_examples=40, deadline=None)
@given(st.data(), resources(), POLICIES)
def test_no_device_twice_all_required_and_exactly_the_size(
    data: st.DataObject, resource: tuple[list[LogicalDevice], LinkTable], policy: ReplicaPolicy
) -> None:
    devices, table = resource
    available, required, size = data.draw(requests(devices))
    answer = prefer(devices, table, available=available, required=required, size=size, policy=policy)
    assert len(answer.devices) == len(set(answer.devices)) == size
    assert set(required) <= set(answer.devices) <= set(available)
    assert answer.exact


@settings(max_examples=30, deadline=None)
@given(st.data(), resources(), POLICIES)
def test_the_order_in_which_kubelet_names_devices_changes_nothing(
    data: st.DataObject, resource: tuple[list[LogicalDevice], LinkTable], policy: ReplicaPolicy
) -> None:
    devices, table = resource
    available, required, size = data.draw(requests(devices))
    shuffled = data.draw(st.permutations(available))
    turned = data.draw(st.permutations(required))
    chooser = Chooser(devices, table)
    answers = [
        chooser.start(available=free, required=pinned, size=size, policy=policy).best
        for free, pinned in ((available, required), (shuffled, turned))
    ]
    assert answers[0] == answers[1]


@settings(max_examples=30, deadline=None)
@given(st.data(), st.lists(st.integers(2, 6), min_size=1, max_size=6))
def test_distributed_replicas_are_as_level_as_they_can_be(data: st.DataObject, counts: list[int]) -> None:
    devices = [device for index, count in enumerate(counts) for device in replicas(index, count)]
    available, required, size = data.draw(requests(devices))
    answer = prefer(devices, links(len(counts)), available=available, required=required, size=size)
    held = spread(list(set(ids(devices)) - set(available)), devices) + spread(answer, devices)
    picked = spread([device for device in answer.devices if device not in required], devices)
    free = spread(available, devices) - spread(answer, devices)
    for busy, idle in ((uuid(i), uuid(j)) for i in range(len(counts)) for j in range(len(counts))):
        # A replica moved from a busier GPU to a free one would leave the two no more level than they are.
        assert not (picked[busy] and free[idle]) or held[busy] <= held[idle] + 1


@settings(max_examples=30, deadline=None)
@given(st.data(), st.lists(st.integers(2, 6), min_size=1, max_size=6))
def test_packed_replicas_fill_the_busiest_gpu_first(data: st.DataObject, counts: list[int]) -> None:
    devices = [device for index, count in enumerate(counts) for device in replicas(index, count)]
    available, required, size = data.draw(requests(devices))
    answer = prefer(
        devices, links(len(counts)), available=available, required=required, size=size, policy=ReplicaPolicy.PACKED
    )
    before = spread(list(set(ids(devices)) - set(available)) + list(required), devices)
    picked = spread([device for device in answer.devices if device not in required], devices)
    left = spread(available, devices) - spread(answer, devices)
    for taken, spared in ((uuid(i), uuid(j)) for i in range(len(counts)) for j in range(len(counts))):
        assert not (picked[taken] and left[spared]) or before[taken] >= before[spared]
    assert sum(1 for gpu in picked if left[gpu]) <= 1, "a second GPU was begun before the first was full"


def test_equal_gpus_for_replicas_are_chosen_by_their_links() -> None:
    devices = [device for index in range(4) for device in replicas(index, 4)]
    table = links(4, matrix(4, lambda i, j: 250 if (i, j) == (0, 3) else 10))
    assert spread(prefer(devices, table, available=ids(devices), size=2), devices) == {uuid(0): 1, uuid(3): 1}


def test_equal_gpus_for_replicas_without_links_are_chosen_by_numa_node() -> None:
    devices = [device for index in range(4) for device in replicas(index, 4, numa_node=index % 2)]
    table = links(4, matrix(4, lambda _i, _j: 0))
    assert spread(prefer(devices, table, available=ids(devices), size=2), devices) == {uuid(0): 1, uuid(2): 1}


def test_packing_a_mixed_list_leaves_the_exclusive_gpu_for_last() -> None:
    devices = [whole(0), *replicas(1, 3)]
    answer = prefer(devices, links(2), available=ids(devices), size=3, policy=ReplicaPolicy.PACKED)
    assert spread(answer, devices) == {uuid(1): 3}


def opened(devices: Sequence[LogicalDevice], available: Sequence[DeviceId], chosen: Sequence[DeviceId]) -> int:
    """How many GPUs hold something after ``chosen`` is handed out."""
    return len(spread([*(set(ids(devices)) - set(available)), *chosen], devices))


@settings(max_examples=30, deadline=None)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_packed_mig_instances_touch_as_few_gpus_as_any_choice(data: st.DataObject, counts: list[int]) -> None:
    devices = [device for index, count in enumerate(counts) for device in instances(index, count)]
    available, required, size = data.draw(requests(devices))
    answer = prefer(devices, links(len(counts)), available=available, required=required, size=size)
    fewest = min(
        opened(devices, available, chosen) for chosen in combinations(available, size) if set(required) <= set(chosen)
    )
    assert opened(devices, available, answer.devices) == fewest


def test_a_mig_instance_comes_from_the_fullest_gpu() -> None:
    devices = [device for index in range(3) for device in instances(index, 4)]
    held = {"MIG-01-0", "MIG-02-0", "MIG-02-3"}
    available = [device for device in ids(devices) if device not in held]
    assert prefer(devices, links(3), available=available, size=1).devices == ("MIG-02-1",)
    assert prefer(devices, links(3), available=available, size=3).devices == ("MIG-01-1", "MIG-02-1", "MIG-02-2")


def test_mig_instances_held_through_another_resource_count_as_use_of_the_gpu() -> None:
    devices = [device for index in range(3) for device in instances(index, 2)]
    answer = prefer(devices, links(3), available=ids(devices), size=1, held={uuid(2): 1})
    assert answer.devices == ("MIG-02-0",)


def test_a_new_gpu_is_opened_where_the_request_fits_best() -> None:
    devices = [*instances(0, 7), *instances(1, 3), *instances(2, 2)]
    assert spread(prefer(devices, links(3), available=ids(devices), size=3), devices) == {uuid(1): 3}
    assert spread(prefer(devices, links(3), available=ids(devices), size=9), devices) == {uuid(0): 7, uuid(2): 2}


def test_several_new_mig_parents_are_near_each_other() -> None:
    devices = [device for index in range(4) for device in instances(index, 2)]
    table = links(4, matrix(4, lambda i, j: 50 if (i, j) == (0, 2) else 10))
    assert spread(prefer(devices, table, available=ids(devices), size=4), devices) == {uuid(0): 2, uuid(2): 2}


def test_whole_gpus_come_from_the_best_partition() -> None:
    devices = [whole(index) for index in range(8)]
    answer = prefer(devices, links(), available=ids(devices)[1:], required=[DeviceId("GPU-05")], size=2)
    assert answer == Preference((DeviceId("GPU-04"), DeviceId("GPU-05")), exact=True, reason="partition")


def test_a_gpu_that_discovery_did_not_link_is_still_handed_out() -> None:
    devices = [whole(index) for index in range(4)]
    answer = prefer(devices, links(2), available=ids(devices), required=[DeviceId("GPU-03")], size=2)
    assert len(answer.devices) == 2
    assert "GPU-03" in answer.devices


@pytest.mark.parametrize("scores", [(), ((0, 5), (7, 0)), ((0, -1), (-1, 0)), ((0,), (0,))])
def test_useless_links_cost_the_preference_not_the_answer(scores: ScoreMatrix) -> None:
    table = LinkTable([uuid(0), uuid(1)], scores)
    assert table.score(uuid(0), uuid(1)) == 0
    assert prefer([whole(0), whole(1)], table, available=ids([whole(1), whole(0)]), size=1).devices == ("GPU-00",)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 17, 20])
def test_a_node_with_more_gpus_than_a_table_holds_gets_a_well_linked_answer(size: int) -> None:
    devices = [whole(index) for index in range(20)]
    table = links(20, matrix(20, lambda i, j: 50 if i // 5 == j // 5 else 10))
    answer = prefer(devices, table, available=ids(devices), required=[DeviceId("GPU-07")], size=size)
    assert len(set(answer.devices)) == size
    assert "GPU-07" in answer.devices
    if size == 5:
        assert answer.devices == tuple(ids(devices[5:10]))


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(20)))
def test_a_large_node_answers_the_same_in_any_order(order: list[int]) -> None:
    devices = [whole(index) for index in range(20)]
    table = links(20, matrix(20, lambda i, j: (i * j) % 7))
    answer = prefer(devices, table, available=[devices[i].id for i in order], size=3)
    assert answer == prefer(devices, table, available=ids(devices), size=3)


def test_few_free_gpus_of_a_large_node_are_searched_exactly() -> None:
    devices = [whole(index) for index in range(20)]
    table = links(20, matrix(20, lambda i, j: 250 if (i, j) == (3, 17) else 10))
    answer = prefer(devices, table, available=[DeviceId(uuid(i)) for i in (2, 3, 10, 17)], size=2)
    assert answer == Preference((DeviceId("GPU-03"), DeviceId("GPU-17")), exact=True, reason="partition")


def test_a_search_that_takes_long_has_an_answer_meanwhile() -> None:
    devices = [whole(index) for index in range(14)]
    table = links(14, matrix(14, lambda i, j: (i * 7919 + j * 104729) % 1000))
    pending = Chooser(devices, table).start(available=ids(devices), required=[], size=4)
    assert not pending.step()
    assert not pending.best.exact
    assert len(set(pending.best.devices)) == 4
    while not pending.step():
        pass
    assert pending.best.exact


A, B, C = DeviceId("GPU-00"), DeviceId("GPU-01"), DeviceId("GPU-02")


@pytest.mark.parametrize(
    ("available", "required", "size", "complaint"),
    [
        ([A, B], [], 3, "size is 3, expected 1 to 2, the number of available devices"),
        ([A, B], [], 0, "size is 0, expected 1 to 2"),
        ([A, B], [], -1, "size is -1, expected 1 to 2"),
        ([], [], 0, "size is 0"),
        ([A, B], [C], 1, "required device 'GPU-02' is not available"),
        ([A, B], [A, B], 1, "required lists 2 devices, expected at most the size, 1"),
        ([A, A], [], 1, "available lists 'GPU-00' twice, expected distinct devices"),
        ([A, B], [B, B], 2, "required lists 'GPU-01' twice, expected distinct devices"),
    ],
)
def test_a_request_nothing_can_satisfy_is_refused_in_one_line(
    available: list[DeviceId], required: list[DeviceId], size: int, complaint: str
) -> None:
    devices = [whole(index) for index in range(3)]
    for ask in (
        lambda: prefer(devices, links(3), available=available, required=required, size=size),
        lambda: any_answer(available, required, size),
    ):
        with pytest.raises(UnsatisfiableError, match=complaint):
            ask()


def test_a_device_of_another_time_is_told_apart_and_can_still_be_answered() -> None:
    stranger = DeviceId("GPU-gone")
    with pytest.raises(UnknownDeviceError, match="'GPU-gone' is not of this resource"):
        prefer([whole(0), whole(1)], links(2), available=[A, stranger], size=1)
    assert any_answer([stranger, B, A], [B], 2) == (B, A)


def test_a_megabyte_of_device_id_makes_a_short_message() -> None:
    with pytest.raises(PreferenceError) as caught:
        prefer([whole(0)], links(1), available=[DeviceId("x" * 1_000_000)], size=1)
    assert len(str(caught.value)) < 200
