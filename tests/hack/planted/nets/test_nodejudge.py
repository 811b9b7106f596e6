"""The judges of a node's nets: silent on what may be, and with a finding for each thing that may not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hack.planted.nets import nodejudge
from hack.planted.nets.nodejudge import Container, Finding, Hand, Told

GPU, SHARED, PART = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"
PARENTS = {"MIG-1": "GPU-0", "MIG-2": "GPU-0"}
LIMITED = {
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=12288M",
    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
}
MOUNTS = ("/tmp/nvidia-mps", "/dev/shm")


def told(t: float, *hands: Hand, **health: Mapping[str, str]) -> Told:
    names = {"gpu": GPU, "shared": SHARED, "part": PART}
    return Told(t, {names[name]: devices for name, devices in health.items()}, hands)


def messages(found: Sequence[Finding]) -> list[str]:
    return [each.message for each in found]


WHOLE = Hand("team/a", GPU, "GPU-0")
SHARE = Hand("team/a", SHARED, "GPU-0::0")
INSTANCE = Hand("team/a", PART, "MIG-1")


@pytest.mark.parametrize(
    ("hand", "offered"),
    [
        (WHOLE, {"gpu": {"GPU-0": "Healthy", "GPU-1": "Healthy"}}),
        (WHOLE, {"shared": {"GPU-1::0": "Healthy"}}),
        (WHOLE, {"shared": {"GPU-0::0": "Unhealthy"}}),
        (SHARE, {"shared": {"GPU-0::0": "Healthy", "GPU-0::1": "Healthy"}}),
        (INSTANCE, {"part": {"MIG-1": "Healthy", "MIG-2": "Healthy"}}),
    ],
)
def test_what_is_held_may_be_offered_in_its_own_shape(hand: Hand, offered: Mapping[str, Mapping[str, str]]) -> None:
    assert nodejudge.two_shapes([told(1.0, hand, **offered)], PARENTS) == []


@pytest.mark.parametrize(
    ("hand", "offered"),
    [
        (WHOLE, {"shared": {"GPU-0::0": "Healthy"}}),
        (WHOLE, {"part": {"MIG-1": "Healthy"}}),
        (SHARE, {"gpu": {"GPU-0": "Healthy"}}),
        (INSTANCE, {"gpu": {"GPU-0": "Healthy"}}),
        (INSTANCE, {"shared": {"MIG-1::0": "Healthy"}}),
    ],
)
def test_a_second_shape_of_what_is_held_is_found_once(hand: Hand, offered: Mapping[str, Mapping[str, str]]) -> None:
    ((_, device),) = told(1.0, **offered).healthy()
    (found,) = nodejudge.two_shapes([told(1.0, hand, **offered), told(2.0, hand, **offered)], PARENTS)
    assert found.net == "kubelet"
    assert found.message.startswith(f"team/a has {hand.device} of {hand.resource}, and ")
    assert found.message.endswith(f" offers {device}")


def test_a_count_is_found_that_is_not_the_layouts() -> None:
    devices = {SHARED: {"GPU-0::0": "Healthy", "GPU-0::1": "Unhealthy"}}
    assert nodejudge.wrong_counts(devices, {SHARED: 2}) == []
    assert messages(nodejudge.wrong_counts(devices, {SHARED: 3, GPU: 1})) == [
        f"{SHARED}: the kubelet was told of 2 devices, the layout has 3",
        f"{GPU}: the kubelet was told of 0 devices, the layout has 1",
    ]


def test_a_half_made_gpu_is_offered_by_nobody() -> None:
    half, wanted = [("MIG-1", "3g.20gb")], ["3g.20gb", "3g.20gb"]
    assert nodejudge.half_made(["MIG-1"], "GPU-0", [*half, ("MIG-2", "3g.20gb")], wanted) == []
    assert nodejudge.half_made(["GPU-1"], "GPU-0", half, wanted) == []
    for offered in ("MIG-1", "GPU-0", "MIG-1::0"):
        (found,) = nodejudge.half_made([offered], "GPU-0", half, wanted)
        assert (found.net, offered.partition("::")[0] in found.message) == ("hardware", True)


def test_a_destroyed_instance_that_a_pod_has_is_found() -> None:
    assert nodejudge.destroyed(["MIG-1"], ["MIG-1", "MIG-2"]) == []
    assert messages(nodejudge.destroyed(["MIG-1"], ["MIG-2"])) == ["MIG-1 is destroyed and a pod has it"]


def lists(*times: float) -> list[Told]:
    """The GPU is Unhealthy in the first of these lists, and Healthy before and after it."""
    before, down, *up = times
    well = {"GPU-0": "Healthy"}
    return [told(before, gpu=well), told(down, gpu={"GPU-0": "Unhealthy"}), *(told(each, gpu=well) for each in up)]


@pytest.mark.parametrize(
    ("up_s", "reset_s", "says"),
    [
        (14.0, 10.0, []),
        (13.9, 10.0, ["GPU-0 is offered 3.9 s after its reset, probation is 4 s"]),
        (9.0, 10.0, ["GPU-0 has a fault, was not reset, and is offered"]),
        (99.0, math.inf, ["GPU-0 has a fault, was not reset, and is offered"]),
    ],
)
def test_a_gpu_is_offered_again_after_its_reset_and_its_probation(up_s: float, reset_s: float, says: list[str]) -> None:
    assert messages(nodejudge.too_early(lists(1.0, 2.0, up_s), "GPU-0", 2.0, reset_s, 4.0)) == says


def test_a_gpu_that_stays_away_is_not_early() -> None:
    assert nodejudge.too_early(lists(1.0, 2.0), "GPU-0", 2.0, math.inf, 4.0) == []


def container(mounts: Sequence[str] = MOUNTS, **envs: str) -> Container:
    return Container("side", 30, 40960, LIMITED | envs, mounts)


def without(name: str) -> Container:
    return container()._replace(envs={key: value for key, value in LIMITED.items() if key != name})


def test_a_container_within_the_limits_of_its_part_is_left_alone() -> None:
    assert nodejudge.unlimited([container()]) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (without("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "side: it asked for 30 percent and has all of the threads"),
        (without("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "side: it asked for 30 percent and has all of 40960 MiB"),
        (without("CUDA_MPS_PIPE_DIRECTORY"), "side: it has no way to the MPS daemon"),
        (container(mounts=()), "side: it has no way to the MPS daemon"),
        (
            container(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100"),
            "side: it asked for 30 percent and has 100 of the threads",
        ),
        (
            container(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=12289M"),
            "side: it asked for 30 percent and has 0=12289M of 40960 MiB",
        ),
        (
            container(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=0M"),
            "side: it asked for 30 percent and has 0=0M of 40960 MiB",
        ),
    ],
)
def test_a_container_with_more_than_its_part_is_found(given: Container, says: str) -> None:
    assert messages(nodejudge.unlimited([container(), given])) == [says]


def test_a_spec_is_found_whose_claim_holds_nothing() -> None:
    files = ["k8s.gpu.nvidia.com-claim_first.json", "k8s.gpu.nvidia.com-claim_second.json"]
    assert nodejudge.left_specs(files, ["first", "second"]) == []
    (found,) = nodejudge.left_specs(files, ["second"])
    assert files[0] in found.message


def line(t: float, source: str, **more: Any) -> dict[str, Any]:
    return {"t": t, "source": source, "node": "node-1", **more}


def given(t: float, pod: str, device: str) -> dict[str, Any]:
    return line(t, "kubelet", call="Allocate", pod=pod, resource=GPU, devices=[device])


def test_the_record_of_a_scene_is_judged_as_one_that_has_come_to_rest() -> None:
    gpu = {"uuid": "GPU-0", "mig": [], "replicas": 1}
    honest = [line(0.0, "hardware", gpus=[gpu]), given(1.0, "team/a", "GPU-0")]
    assert nodejudge.by_history(honest, 2.0) == []
    (found,) = nodejudge.by_history([*honest, given(2.0, "team/b", "GPU-0")], 2.0)
    assert found.net == "history"
    assert found.message.startswith("one-device-two-hands: Pod team/a, Pod team/b, ")


def test_an_instance_that_is_gone_under_a_pod_stands_in_the_record() -> None:
    cut = {"uuid": "GPU-0", "mig": [{"uuid": "MIG-1", "profile": "3g.20gb"}], "replicas": 1}
    record = [line(0.0, "hardware", gpus=[cut]), given(1.0, "team/a", "MIG-1")]
    assert nodejudge.by_history(record, 2.0) == []
    (found,) = nodejudge.by_history([*record, line(2.0, "hardware", gpus=[cut | {"mig": []}])], 2.0)
    assert found.message.startswith("destroyed-while-held: ")
