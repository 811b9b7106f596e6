"""What a node says of the devices that it offers by claim."""

from msgspec import structs

from agent.dra.publishing.devices import (
    Attribute,
    DraDevice,
    Offer,
    Taint,
    Version,
    driver_version,
    link_groups,
    offered,
)
from agent.dra.publishing.partitions import memory
from agent.hardware.gpus import ARCHITECTURES, BRANDS
from inventory.devices import Clique, NodeInventory
from inventory.links import Link
from tests.support.inventory.builders import gpu, node, uuid


def linked(*pairs: tuple[int, int], gpus: int = 4) -> NodeInventory:
    def link(i: int, j: int) -> Link:
        return Link(nvlinks=2) if (i, j) in pairs or (j, i) in pairs else Link()

    plain = node([gpu(index) for index in range(gpus)])
    return structs.replace(plain, links=tuple(tuple(link(i, j) for j in range(gpus)) for i in range(gpus)))


def only(found: Offer) -> DraDevice:
    (device,) = found.devices
    return device


def test_only_gpus_given_out_by_claim_are_offered_by_the_name_of_their_minor() -> None:
    found = offered(node([gpu(0), structs.replace(gpu(1), minor=7), gpu(2)]), [uuid(2), uuid(1)])
    assert [(device.name, device.gpu) for device in found.devices] == [("gpu-7", uuid(1)), ("gpu-2", uuid(2))]


def test_attributes_have_nvidias_names_and_the_types_of_the_api() -> None:
    here = structs.replace(
        gpu(0),
        brand="nvidia",
        architecture="ampere",
        compute_capability=(8, 0),
        numa_node=1,
        pcie_root="pci0000:17",
        clique=Clique("c0ffee", 3),
    )
    known = structs.replace(node([here]), driver_version="550.107.02", cuda_version=(12, 4))
    device = only(offered(known, [uuid(0)]))
    assert device.content() == {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": uuid(0)},
            "productName": {"string": "NVIDIA A100-SXM4-40GB"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Ampere"},
            "cudaComputeCapability": {"version": "8.0.0"},
            "driverVersion": {"version": "550.107.2"},
            "cudaDriverVersion": {"version": "12.4.0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:00:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
            "resource.kubernetes.io/numaNode": {"int": 1},
            "tessera.dev/clique": {"string": "c0ffee.3"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }


def test_brands_and_architectures_are_spelled_as_nvidias_driver_does() -> None:
    def said(**fields: str) -> tuple[Attribute | None, ...]:
        attributes = only(offered(node([structs.replace(gpu(0), **fields)]), [uuid(0)])).attributes
        return attributes.get("brand"), attributes.get("architecture")

    assert [said(brand=brand)[0] for brand in BRANDS.values()] == [
        "Quadro", "Tesla", "GeForce", "Titan", "QuadroRTX", "NvidiaRTX", "Nvidia", "GeForceRTX", "TitanRTX",
    ]  # fmt: skip
    assert [said(architecture=word)[1] for word in ARCHITECTURES.values()] == [
        "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell",
    ]  # fmt: skip
    assert said() == (None, None)


def test_what_is_not_known_or_too_long_for_the_api_is_left_out() -> None:
    here = structs.replace(gpu(0, product="x" * 65), numa_node=None)
    device = only(offered(node([here]), [uuid(0)]))
    assert device.attributes.keys() == {"type", "uuid", "resource.kubernetes.io/pciBusID"}
    longest = structs.replace(here, product="x" * 64)
    assert only(offered(node([longest]), [uuid(0)])).attributes["productName"] == "x" * 64


def test_taints_are_part_of_a_device_that_has_some() -> None:
    taint = Taint("gpu.nvidia.com/xid", "79", "NoSchedule")
    plain = offered(node([gpu(0), gpu(1)]), [uuid(0), uuid(1)])
    device, other = plain.tainted({"gpu-0": (taint,), "gpu-1": ()}).devices
    assert "taints" not in other.content()
    assert plain.tainted({"gpu-0": ()}) is plain
    assert device.content()["taints"] == [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]


def test_gpus_that_reach_each_other_over_nvlinks_are_one_group() -> None:
    assert link_groups(linked((0, 2), (2, 3))) == {uuid(0): 0, uuid(2): 0, uuid(3): 0}
    assert link_groups(linked((0, 1), (2, 3))) == {uuid(0): 0, uuid(1): 0, uuid(2): 2, uuid(3): 2}
    assert link_groups(linked((2, 3), (1, 2), (0, 3))) == dict.fromkeys(map(uuid, range(4)), 0)
    assert link_groups(linked()) == {}


def test_a_group_is_named_by_an_index_not_by_a_place_in_the_list() -> None:
    two = linked((0, 1), gpus=2)
    later = structs.replace(two, gpus=tuple(structs.replace(one, index=one.index + 4) for one in two.gpus))
    assert link_groups(later) == {uuid(0): 4, uuid(1): 4}


def test_driver_versions_lose_their_zeros_and_what_is_none_says_nothing() -> None:
    assert driver_version("550.54.04") == Version("550.54.4")
    assert driver_version("535.104") == Version("535.104.0")
    assert [driver_version(text) for text in ("", "550.x.1", "1.2.3.4", "12345678901.1.1")] == [None] * 4


def test_memory_is_written_as_the_api_server_writes_it() -> None:
    assert [memory(mib) for mib in (81559, 40960, 1024, 1, 0, 2 << 20, 3 << 30)] == [
        "81559Mi",
        "40Gi",
        "1Gi",
        "1Mi",
        "0Mi",
        "2Ti",
        "3072Ti",
    ]
