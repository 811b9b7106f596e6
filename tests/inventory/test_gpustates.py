"""Every GPU is in one state, whatever is true of it, and sums of states are sums of GPUs."""

import itertools

import pytest

from inventory.api.gpunode import Device, Health, Instance, Mig, Offer
from inventory.gpustates import IN_USE, GpuState, counted, gpu_state, offered, state_of


@pytest.mark.parametrize(
    ("health", "held", "takes_pods", "busy", "wanted"),
    [
        ("Healthy", False, True, None, GpuState.FREE),
        ("Suspect", False, True, 0.0, GpuState.FREE),
        ("Healthy", True, True, None, GpuState.HELD),
        ("Healthy", True, False, 0.5, GpuState.HELD),
        ("Healthy", True, True, 0.001, GpuState.IDLE),
        ("Healthy", False, False, None, GpuState.OFF),
        ("Unhealthy", True, True, 0.5, GpuState.FAULT),
        ("Probation", False, False, None, GpuState.WATCHED),
    ],
)
def test_a_gpu_is_in_one_state(health: str, held: bool, takes_pods: bool, busy: float | None, wanted: GpuState) -> None:
    assert gpu_state(health, held=held, takes_pods=takes_pods, busy=busy) is wanted


def test_one_that_failed_is_never_in_use() -> None:
    for held, takes, busy in itertools.product((True, False), (True, False), (None, 0.0, 1.0)):
        for health in ("Unhealthy", "Probation"):
            assert gpu_state(health, held=held, takes_pods=takes, busy=busy) not in IN_USE


def gpu(uuid: str, *, mig: Mig | None = None, health: str = "Healthy", offers: tuple[Offer, ...] = ()) -> Device:
    given = Health(state=health) if health != "Healthy" else None
    common = {"index": 0, "product": "H100", "memory_mib": 81559, "pci_bus_id": "0000:01:00.0"}
    return Device(uuid=uuid, mig=mig, health=given, offers=offers, **common)  # type: ignore[arg-type]


def part(uuid: str, health: str = "") -> Instance:
    given = Health(state=health) if health else None
    offers = (Offer(resource="nvidia.com/mig-1g.10gb"),)
    return Instance(uuid=uuid, profile="1g.10gb", gi=1, ci=0, memory_mib=9728, offers=offers, health=given)


def test_a_gpu_is_held_by_whoever_holds_a_part_of_it() -> None:
    cut = gpu("GPU-1", mig=Mig(enabled=True, instances=(part("MIG-1"), part("MIG-2"))))
    assert state_of(cut, {"MIG-2"}, takes_pods=True) is GpuState.HELD
    assert state_of(cut, {"GPU-2"}, takes_pods=True) is GpuState.FREE
    assert sum(counted([GpuState.HELD, GpuState.FREE, GpuState.FREE]).values()) == 3


def test_what_a_node_can_give_leaves_out_what_is_out_of_service() -> None:
    whole, shared = Offer(resource="nvidia.com/gpu"), Offer(resource="nvidia.com/gpu.shared", replicas=4)
    cut = Mig(enabled=True, instances=(part("MIG-1"), part("MIG-2", "Unhealthy")))
    devices = (
        gpu("GPU-0", offers=(whole,)),
        gpu("GPU-1", offers=(whole,), health="Unhealthy"),
        gpu("GPU-2", offers=(shared,), health="Suspect"),
        gpu("GPU-3", mig=cut),
        gpu("GPU-4", mig=cut, health="Probation"),
    )
    assert offered(devices) == {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 4, "nvidia.com/mig-1g.10gb": 1}
