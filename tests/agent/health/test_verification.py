"""A GPU is verified after its reset: each thing that is wrong with it is told."""

import pytest
from msgspec.structs import replace

from agent.health.verification import GpuFacts, differences

WELL = GpuFacts(
    memory_mib=81559,
    recovery_action=0,
    ecc_uncorrected=0,
    link_mbps=53125,
    pcie_width=16,
    temperature_c=40,
    slowdown_c=89,
)


def test_as_before_nothing_is_wrong() -> None:
    assert list(differences(WELL, WELL)) == []


def test_what_a_gpu_does_not_tell_is_not_wrong() -> None:
    assert list(differences(GpuFacts(memory_mib=1), GpuFacts(memory_mib=1))) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"recovery_action": 1}, "recovery action (1)"),
        ({"ecc_uncorrected": 2}, "2 uncorrected memory errors"),
        ({"memory_mib": 40000}, "40000 MiB of memory, 81559 before the reset"),
        ({"links_down": (3, 1)}, "NVLink 1, 3 is down"),
        ({"link_mbps": 26562}, "its NVLinks run at 26562 MB/s, at 53125 before the reset"),
        ({"pcie_width": 8}, "PCIe x8, x16 before the reset"),
        ({"temperature_c": 89}, "89 C"),
    ],
)
def test_each_difference_is_told(after: dict[str, object], said: str) -> None:
    (wrong,) = differences(WELL, replace(WELL, **after))
    assert said in wrong


def test_a_link_that_was_down_before_is_not_the_resets_doing() -> None:
    assert list(differences(replace(WELL, links_down=(1,)), replace(WELL, links_down=(1,)))) == []


@pytest.mark.parametrize(("mode", "virtual"), [(None, False), (0, False), (1, False), (2, True), (3, True), (4, True)])
def test_a_virtual_gpu_is_known(mode: int | None, virtual: bool) -> None:
    assert replace(WELL, virtualization=mode).virtual is virtual
