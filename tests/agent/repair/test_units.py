"""Which GPUs a reset takes together."""

from agent.repair.units import reset_unit, takes_along
from inventory.devices import Gpu, GpuUuid, NvLink, RemoteType


def gpu(index: int, architecture: str, links: tuple[NvLink, ...] = ()) -> Gpu:
    return Gpu(
        uuid=GpuUuid(f"GPU-{index}"),
        index=index,
        minor=index,
        product="x",
        pci_bus_id=f"0000:0{index}:00.0",
        memory_mib=1,
        architecture=architecture,
        nvlinks=links,
    )


def to(index: int) -> NvLink:
    return NvLink(link=index, active=True, remote_type=RemoteType.GPU, remote_pci_bus_id=f"0000:0{index}:00.0")


SWITCH = NvLink(link=0, active=True, remote_type=RemoteType.SWITCH)


def test_a_card_is_alone() -> None:
    gpus = [gpu(0, "ada-lovelace"), gpu(1, "ada-lovelace")]
    assert reset_unit(gpus, gpus[1]).uuids == {"GPU-1"}


def test_linked_boards_before_ampere_go_together_however_far_the_chain_reaches() -> None:
    gpus = [gpu(0, "volta", (to(1),)), gpu(1, "volta", (to(0), to(2))), gpu(2, "volta", (to(1),)), gpu(3, "volta")]
    unit = reset_unit(gpus, gpus[2])
    assert unit.uuids == {"GPU-0", "GPU-1", "GPU-2"}
    assert (unit.gpus[0].uuid, unit.refused) == ("GPU-2", "")
    assert reset_unit(gpus, gpus[3]).uuids == {"GPU-3"}
    assert takes_along(gpus, GpuUuid("GPU-2")) == ("GPU-0", "GPU-1")
    assert takes_along(gpus, GpuUuid("GPU-3")) == takes_along(gpus, GpuUuid("GPU-9")) == ()


def test_ampere_with_bridges_is_alone() -> None:
    gpus = [gpu(0, "ampere", (to(1),)), gpu(1, "ampere", (to(0),))]
    assert reset_unit(gpus, gpus[0]).uuids == {"GPU-0"}


def test_ampere_behind_a_switch_is_refused_and_hopper_is_not() -> None:
    assert "NVSwitch" in reset_unit([], gpu(0, "ampere", (SWITCH,))).refused
    unit = reset_unit([], gpu(0, "hopper", (SWITCH,)))
    assert unit.uuids == {"GPU-0"}
    assert unit.refused == ""
