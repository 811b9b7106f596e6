"""Which daemons a node needs, with which limits."""

from pathlib import Path

from msgspec import structs

from agent.mps.clients import client_of
from agent.mps.specs import CLIENTS, CLIENTS_SINCE_CUDA_13_1, client_limit, daemon_specs
from inventory.devices import GpuUuid, NodeInventory
from inventory.layout.entries import Fractional, GpuMode, Mps, MpsClient, TimeSliced
from inventory.layout.layout import Layout, plan
from inventory.layout.sharing import LayoutSpec, MigStrategy, ReplicatedResource, Replication, SharingMode
from tests.agent.cluster.test_gpunode import gpu, instance, node


def shared(
    replicas: int, mode: SharingMode = SharingMode.MPS, name: str = "nvidia.com/gpu", *, one_at_most: bool = True
) -> LayoutSpec:
    entry = ReplicatedResource(name=name, replicas=replicas)  # type: ignore[arg-type] # a plain name
    replication = Replication(mode=mode, fail_requests_greater_than_one=one_at_most, resources=(entry,))
    return LayoutSpec(mig_strategy=MigStrategy.MIXED, replication=replication)


def specs_of(found: NodeInventory, spec: LayoutSpec) -> list[tuple[str, int, int | None, int | None, bool, str]]:
    return [
        (one.name, one.clients, one.threads_percent, one.memory_mib, one.exclusive, one.refused)
        for one in daemon_specs(found, plan(found, spec), {})
    ]


def test_equal_shares_are_a_part_of_memory_and_of_threads_each() -> None:
    memory_mib = gpu(0).memory_mib
    assert specs_of(node(gpu(0), gpu(1)), shared(3)) == [
        ("GPU 0", 3, 33, memory_mib // 3, True, ""),
        ("GPU 1", 3, 33, memory_mib // 3, True, ""),
    ]


def test_clients_that_may_have_several_replicas_have_one_daemon_for_all_gpus() -> None:
    small = structs.replace(gpu(1), memory_mib=30_000)
    found = node(gpu(0), small)
    layout = plan(found, shared(3, one_at_most=False))
    (daemon,) = daemon_specs(found, layout, {})
    assert (daemon.device, daemon.gpus, daemon.threads_percent) == (gpu(0).uuid, (gpu(0).uuid, small.uuid), 33)
    assert daemon.limits_mib == (gpu(0).memory_mib // 3, 10_000)
    chosen = (layout.resources[0].devices[0], layout.resources[0].devices[-1])
    client = client_of(Path("/mps"), chosen)
    assert client is not None
    assert client.mounts[0].host_path == f"/mps/{gpu(0).uuid}/pipe"


def test_time_slices_need_no_daemon() -> None:
    assert specs_of(node(gpu(0)), shared(3, SharingMode.TIME_SLICING)) == []


def test_each_mig_instance_has_a_daemon_of_its_own_and_no_compute_mode() -> None:
    cut = node(gpu(0, instance("1g.10gb", 7, 0, 1), instance("1g.10gb", 8, 1, 1)))
    found = daemon_specs(cut, plan(cut, shared(2, name="nvidia.com/mig-1g.10gb")), {})
    assert [one.device for one in found] == [one.uuid for one in cut.gpus[0].mig_instances]
    assert not any(one.exclusive for one in found)
    assert found[0].memory_mib == cut.gpus[0].mig_instances[0].memory_mib // 2


def test_uneven_shares_and_fractions_bring_their_own_limits() -> None:
    uneven = Mps((MpsClient(4096, 50), MpsClient(2048, 25)), equal=False)
    found = daemon_specs(node(gpu(0), gpu(1)), Layout(), {gpu(0).uuid: uneven, gpu(1).uuid: Fractional(granularity=10)})
    assert [(one.clients, one.threads_percent, one.memory_mib) for one in found] == [(2, None, None), (10, None, None)]


def test_a_gpu_serves_as_many_clients_as_its_driver_can() -> None:
    assert client_limit((6, 1), (12, 8)) == 16
    assert client_limit((7, 0), (13, 0)) == CLIENTS == 48
    assert client_limit((9, 0), (13, 1)) == CLIENTS_SINCE_CUDA_13_1 == 60
    old = structs.replace(node(gpu(0)), cuda_version=(12, 8))
    new = structs.replace(old, cuda_version=(13, 1))
    assert "found 60 MPS clients, expected 48 at most" in specs_of(old, shared(60))[0][-1]
    assert specs_of(new, shared(60))[0][-1] == ""
    assert "expected 60 at most" in specs_of(new, shared(61))[0][-1]


def test_behind_one_name_only_what_mps_shares_has_a_daemon() -> None:
    found = node(gpu(0), gpu(1))
    first, second = (one.uuid for one in found.gpus)
    modes: dict[GpuUuid, GpuMode] = {first: Mps((MpsClient(),) * 2, equal=True), second: TimeSliced(3)}
    layout = plan(found, LayoutSpec(), modes)
    assert [resource.name for resource in layout.resources] == ["nvidia.com/gpu.shared"]
    assert [(one.device, one.clients) for one in daemon_specs(found, layout, modes)] == [(first, 2)]


def test_uneven_clients_are_counted_as_equal_ones_are_but_fractions_are_not() -> None:
    many = Mps((MpsClient(100, 2),) * 59 + (MpsClient(200, 2),), equal=False)
    old = structs.replace(node(gpu(0), gpu(1)), cuda_version=(12, 8))
    new = structs.replace(old, cuda_version=(13, 1))
    modes: dict[GpuUuid, GpuMode] = {gpu(0).uuid: many, gpu(1).uuid: Fractional(granularity=1)}
    refused = [one.refused for one in daemon_specs(old, Layout(), modes)]
    assert "found 60 MPS clients, expected 48 at most" in refused[0]
    assert refused[1] == ""
    assert [one.refused for one in daemon_specs(new, Layout(), modes)] == ["", ""]


def test_gpus_of_one_daemon_are_one_spec_that_keeps_its_name_when_the_first_is_lost() -> None:
    together = (gpu(0).uuid, gpu(1).uuid, gpu(2).uuid)
    modes: dict[GpuUuid, GpuMode] = {uuid: Fractional(10, together=together) for uuid in together}
    modes[gpu(3).uuid] = Fractional(10)
    joint, own = daemon_specs(node(gpu(0), gpu(1), gpu(2), gpu(3)), Layout(), modes)
    assert (joint.device, joint.devices, joint.gpus, joint.name) == (gpu(0).uuid, together, together, "GPU 0, 1, 2")
    assert (own.device, own.devices, own.gpus) == (gpu(3).uuid, (gpu(3).uuid,), (gpu(3).uuid,))
    (left,) = daemon_specs(node(gpu(1), gpu(2)), Layout(), modes)
    assert (left.device, left.devices, left.name) == (gpu(0).uuid, together[1:], "GPU 1, 2")
    cut = structs.replace(gpu(1), mig_enabled=True)
    (refused, *_) = daemon_specs(node(gpu(0), cut, gpu(2)), Layout(), modes)
    assert refused.refused == "MIG mode is on"
