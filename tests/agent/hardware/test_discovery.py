"""What the driver finds on simulated nodes, held against the fleet and the product tables themselves."""

import asyncio
import itertools
from pathlib import Path

import pynvml
import pytest

from agent.hardware.driver import Driver
from agent.hardware.gpus import ARCHITECTURES, BRANDS, read_numa_node, read_pci_class, sysfs_bus_id
from agent.hardware.migs import GIB, profile_name
from agent.hardware.query import CallTimedOut, DriverUnavailable, GpuLost
from agent.hardware.resets import ResetDetector
from agent.hardware.worker import XidEvent
from inventory.devices import Gpu, GpuUuid, NodeInventory, RemoteType
from kube.testing import eventually
from simulator.boards.products import PRODUCTS
from simulator.fleet import orders
from simulator.simulation import Simulation
from tests.agent.hardware.conftest import Heard, Simulate

MIG_FLEET = "  migEnabled: [1, 2, 3]\n  mig: {1: [3g.20gb, 1g.5gb, 1g.5gb], 2: [7g.40gb]}\n"


async def found(driver: Driver, known: tuple[Gpu, ...] = ()) -> NodeInventory:
    node = (await driver.discover(known)).node
    node.validate()
    return node


def expected_links(simulation: Simulation, i: int, j: int) -> tuple[int, int]:
    """Direct links and switch lanes of a pair, counted from the fleet's own wiring."""
    one, other = simulation.node.gpus[i], simulation.node.gpus[j]
    lanes = min(sum(end.peer is None for end in spec.links) for spec in (one, other))
    return sum(end.peer == j for end in one.links), lanes


# Every product.


@pytest.mark.parametrize("product", sorted(PRODUCTS))
async def test_every_product_is_read_as_the_fleet_describes_it(
    simulate: Simulate, driver: Driver, product: str
) -> None:
    simulation = simulate(8, product)
    await driver.open()
    discovery = await driver.discover(())
    assert discovery.problems == ()
    node = discovery.node
    node.validate()
    board = PRODUCTS[product]
    for gpu, spec in zip(node.gpus, simulation.node.gpus, strict=True):
        assert (gpu.uuid, gpu.index, gpu.minor, gpu.product) == (spec.uuid, spec.index, spec.minor, product)
        assert (gpu.pci_bus_id, gpu.numa_node) == (spec.pci.sysfs, spec.numa_node)
        assert (gpu.memory_mib, gpu.compute_capability) == (board.memory_mib, board.architecture.compute)
        assert gpu.architecture == ARCHITECTURES[board.architecture.number]
        assert gpu.brand == BRANDS[board.brand]
        assert (gpu.pci_device_id, gpu.pci_class) == (board.pci_device_id, board.pci_class >> 8)
        assert gpu.pci_subsystem_id & 0xFFFF == 0x10DE
        assert gpu.serial == spec.serial or not spec.serial or gpu.serial is None
        assert len([link for link in gpu.nvlinks if link.active]) == len(spec.links)
        assert gpu.readable
        assert (gpu.mig_capable, gpu.mig_enabled) == (bool(board.mig), False)
    for i in range(8):
        for j in range(8):
            if i != j:
                link = node.links[i][j]
                assert (link.nvlinks, link.nvswitch) == expected_links(simulation, i, j)
                assert link.pcie == simulation.node.levels[i][j]


@pytest.mark.parametrize("product", sorted(name for name, board in PRODUCTS.items() if board.mig))
async def test_every_mig_profile_is_read_with_its_places(simulate: Simulate, driver: Driver, product: str) -> None:
    simulate(1, product)
    await driver.open()
    (gpu,) = (await found(driver)).gpus
    board = PRODUCTS[product]
    assert {
        (p.name, p.profile_id, p.slices, p.size, p.starts, p.max_count, p.multiprocessors) for p in gpu.mig_profiles
    } == {(p.name, p.id, p.slices, p.size, p.starts, p.count, p.sms) for p in board.mig}


@pytest.mark.parametrize("product", sorted(name for name, board in PRODUCTS.items() if board.mig))
async def test_a_profile_is_named_alike_where_nvml_gives_no_name(
    simulate: Simulate, driver: Driver, product: str
) -> None:
    """The computed name, which an instance gets when its profile cannot be asked, is NVML's."""
    simulate(1, product)
    await driver.open()
    (gpu,) = (await found(driver)).gpus
    for profile in gpu.mig_profiles:
        if "+" in profile.name or "-" in profile.name:
            continue  # the attribute cannot be told from sizes
        assert profile_name(profile.slices, profile.memory_mib, gpu.memory_mib << 20) == profile.name


def test_brands_and_architectures_are_nvmls_numbers() -> None:
    brands = {number: name for name, number in vars(pynvml).items() if name.startswith("NVML_BRAND_")}
    for number, name in BRANDS.items():
        assert brands[number] == f"NVML_BRAND_{name.upper().replace('-', '_')}"
    architectures = {number: name for name, number in vars(pynvml).items() if name.startswith("NVML_DEVICE_ARCH_")}
    for number, name in ARCHITECTURES.items():
        assert architectures[number] == f"NVML_DEVICE_ARCH_{name.removesuffix('-lovelace').upper()}"


async def test_versions_are_the_drivers_own(simulate: Simulate, driver: Driver) -> None:
    simulate(1, more="driver: {version: '550.54.15', cuda: '12.4'}\n")
    versions = await driver.open()
    assert (versions.driver, versions.cuda) == ("550.54.15", (12, 4))
    node = await found(driver)
    assert (node.driver_version, node.cuda_version) == ("550.54.15", (12, 4))


async def test_gpus_of_a_fabric_have_their_clique(simulate: Simulate, driver: Driver) -> None:
    cluster = "12345678-1234-5678-1234-567812345678"
    simulate(4, "NVIDIA GB200", f"  fabricClusterUuid: {cluster}\n  cliqueId: 7\n")
    await driver.open()
    assert {gpu.clique.label if gpu.clique else None for gpu in (await found(driver)).gpus} == {f"{cluster}.7"}


async def test_links_to_switches_name_them_and_direct_ones_their_gpu(simulate: Simulate, driver: Driver) -> None:
    simulate(8, "Tesla V100-SXM2-16GB")
    await driver.open()
    node = await found(driver)
    by_bus = {gpu.pci_bus_id: gpu.index for gpu in node.gpus}
    ends = [by_bus[link.remote_pci_bus_id or ""] for link in node.gpus[0].nvlinks]
    assert sorted(ends) == [1, 2, 3, 3, 4, 4]
    assert {link.remote_type for link in node.gpus[0].nvlinks} == {RemoteType.GPU}


async def test_sixteen_gpus_on_switches_are_all_linked(simulate: Simulate, driver: Driver) -> None:
    simulate(16, "Tesla V100-SXM3-32GB")
    await driver.open()
    node = await found(driver)
    assert {link.nvswitch for i, row in enumerate(node.links) for j, link in enumerate(row) if i != j} == {6}


# MIG.


async def test_instances_that_exist_are_read_with_place_and_size(simulate: Simulate, driver: Driver) -> None:
    simulate(4, more=MIG_FLEET)
    await driver.open()
    node = await found(driver)
    assert [gpu.mig_enabled for gpu in node.gpus] == [False, True, True, True]
    assert [[mig.profile for mig in gpu.mig_instances] for gpu in node.gpus] == [
        [],
        ["3g.20gb", "1g.5gb", "1g.5gb"],
        ["7g.40gb"],
        [],
    ]
    first = node.gpus[1].mig_instances[0]
    profile = next(p for p in node.gpus[1].mig_profiles if p.name == "3g.20gb")
    assert (first.gi_slices, first.ci_slices, first.size) == (3, 3, profile.size)
    assert (first.memory_mib, first.multiprocessors) == (profile.memory_mib, profile.multiprocessors)
    for mig in node.gpus[1].mig_instances:
        assert mig.fills_gpu_instance
        assert mig.start is not None
        assert mig.uuid.startswith("MIG-")
    places = [range(m.start or 0, (m.start or 0) + (m.size or 0)) for m in node.gpus[1].mig_instances]
    taken = [slot for place in places for slot in place]
    assert len(taken) == len(set(taken))
    assert len({(mig.gi_id, mig.ci_id) for mig in node.gpus[1].mig_instances}) == 3
    assert [mig.index for mig in node.gpus[1].mig_instances] == [0, 1, 2]


async def test_a_part_of_a_gpu_instance_is_told_from_a_whole_one(simulate: Simulate, driver: Driver) -> None:
    simulate(1, more="  migEnabled: [0]\n")
    await driver.open()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = pynvml.nvmlDeviceCreateGpuInstance(handle, 9)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE)
    (mig,) = (await found(driver)).gpus[0].mig_instances
    assert mig.profile == "1c.3g.20gb"
    assert (mig.gi_slices, mig.ci_slices) == (3, 1)
    assert not mig.fills_gpu_instance


# GPUs that are lost, slow, removed, and drivers that go.


async def test_a_lost_gpu_keeps_its_place_and_the_others_are_read(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(4)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.Lost(gpu=1))
    discovery = await driver.discover(before.gpus)
    assert [gpu.uuid for gpu in discovery.node.gpus] == [gpu.uuid for gpu in before.gpus]
    assert [gpu.readable for gpu in discovery.node.gpus] == [True, False, True, True]
    (problem,) = discovery.problems
    assert problem.startswith("GPU 1 cannot be read:")
    assert discovery.node.links[2][3] == before.links[2][3]


async def test_a_gpu_lost_before_the_start_is_known_from_the_checkpoint(
    simulate: Simulate, driver: Driver, heard: Heard, sys_root: Path
) -> None:
    simulation = simulate(4)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.Lost(gpu=1))
    restarted = Driver(before.name, sys_root, heard)
    await restarted.open()
    nothing_known = await restarted.discover(())
    assert [gpu.index for gpu in nothing_known.node.gpus] == [0, 2, 3]
    assert restarted.unread
    nothing_known.node.validate()
    known = await restarted.discover(before.gpus)
    assert [gpu.readable for gpu in known.node.gpus] == [True, False, True, True]
    assert known.node.gpus[1].uuid == before.gpus[1].uuid
    assert not restarted.unread
    await restarted.close()
    for slot in restarted._pool:
        slot.worker.close()
    restarted._main.close()


@pytest.mark.usefixtures("impatient")
async def test_a_gpu_that_hangs_at_discovery_is_unreadable_and_the_others_are_not(
    simulate: Simulate, driver: Driver
) -> None:
    simulation = simulate(4)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.Slow(call="nvmlDeviceGetPciInfo_v3", seconds=3600, gpu=2))
    simulation.order(orders.Slow(call="nvmlDeviceGetPciInfo", seconds=3600, gpu=2))
    discovery = await driver.discover(before.gpus)
    assert [gpu.readable for gpu in discovery.node.gpus] == [True, True, False, True]
    assert "did not answer" in discovery.problems[0]


async def test_a_removed_gpu_leaves_the_list_and_the_others_keep_their_names(
    simulate: Simulate, driver: Driver
) -> None:
    simulation = simulate(4)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.Remove(gpu=1))
    after = await found(driver, before.gpus)
    assert [gpu.uuid for gpu in after.gpus] == [before.gpus[i].uuid for i in (0, 2, 3)]
    with pytest.raises(GpuLost):
        await driver.probe(before.gpus[1].uuid, 5)
    simulation.order(orders.Add(gpu=1))
    assert len((await found(driver, after.gpus)).gpus) == 4


async def test_without_a_driver_every_question_says_so(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(2)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.Driver(up=False))
    with pytest.raises(DriverUnavailable):
        await driver.count()
    with pytest.raises(DriverUnavailable):
        await driver.discover(before.gpus)
    with pytest.raises(DriverUnavailable):
        await driver.probe(before.gpus[0].uuid, 5)
    await driver.close()
    with pytest.raises(DriverUnavailable):
        await driver.open()
    simulation.order(orders.Driver(up=True, version="580.65.06"))
    assert (await driver.open()).driver == "580.65.06"
    assert (await found(driver)).gpus == before.gpus


async def test_a_node_without_gpus_is_an_empty_inventory(simulate: Simulate, driver: Driver) -> None:
    simulate(0)
    await driver.open()
    node = await found(driver)
    assert (node.gpus, node.links) == ((), ())


# Probes.


async def test_a_probe_of_a_healthy_gpu_has_nothing_to_complain_of(simulate: Simulate, driver: Driver) -> None:
    simulate(2, more="  migEnabled: [1]\n  mig: {1: [3g.20gb, 3g.20gb]}\n")
    await driver.open()
    whole, cut = (await found(driver)).gpus
    sighting = await driver.probe(whole.uuid, 5)
    assert not sighting.reset
    assert sighting.probe.recovery_action == 0
    assert sighting.probe.ecc_uncorrected == 0
    assert (sighting.probe.remap_pending, sighting.probe.remap_failure) == (False, False)
    assert sighting.probe.nvlinks_down == ()
    assert sighting.probe.mig_uuids is None
    of_cut = (await driver.probe(cut.uuid, 5)).probe
    assert of_cut.mig_uuids == tuple(mig.uuid for mig in cut.mig_instances) == of_cut.mig_answered
    assert of_cut.mig_errors == {}


@pytest.mark.parametrize("product", sorted(PRODUCTS))
async def test_every_product_can_be_probed(simulate: Simulate, driver: Driver, product: str) -> None:
    simulate(1, product)
    await driver.open()
    (gpu,) = (await found(driver)).gpus
    probe = (await driver.probe(gpu.uuid, 5)).probe
    assert not probe.recovery_action
    assert not probe.ecc_uncorrected
    assert probe.nvlinks_down == ()


async def test_faults_show_in_the_probe(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(2)
    await driver.open()
    gpu = (await found(driver)).gpus[0]
    simulation.order(orders.Ecc(gpu=0, uncorrected=3))
    simulation.order(orders.RemapFailure(gpu=0))
    simulation.order(orders.NvLinkDown(gpu=0, links=(2, 5)))
    probe = (await driver.probe(gpu.uuid, 5)).probe
    assert probe.ecc_uncorrected == 3
    assert probe.remap_failure
    assert probe.nvlinks_down == (2, 5)


async def test_a_link_down_at_a_discovery_is_still_expected_up(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(2)
    await driver.open()
    before = await found(driver)
    simulation.order(orders.NvLinkDown(gpu=0, links=(2,)))
    after = await found(driver, before.gpus)
    assert after.links[0][1].score < before.links[0][1].score
    assert (await driver.probe(after.gpus[0].uuid, 5)).probe.nvlinks_down == (2,)


async def test_a_lost_gpu_is_lost_to_a_probe_and_its_neighbour_is_not(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(2)
    await driver.open()
    one, other = (await found(driver)).gpus
    simulation.order(orders.Lost(gpu=0))
    with pytest.raises(GpuLost):
        await driver.probe(one.uuid, 5)
    assert not (await driver.probe(other.uuid, 5)).reset


async def test_a_reset_is_seen_once_through_a_renewed_handle(simulate: Simulate, driver: Driver) -> None:
    simulation = simulate(2)
    await driver.open()
    gpu = (await found(driver)).gpus[0]
    resets = ResetDetector()

    async def reset_seen() -> bool:
        sighting = await driver.probe(gpu.uuid, 5)
        return resets.observe(gpu.uuid, sighting.probe, renewed=sighting.reset)

    assert not await reset_seen()
    simulation.order(orders.Lost(gpu=0))
    with pytest.raises(GpuLost):
        await driver.probe(gpu.uuid, 5)
    simulation.order(orders.Reset(gpu=0))
    assert await reset_seen()
    assert not await reset_seen()


async def test_xids_are_heard_before_and_after_a_reset(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation = simulate(2)
    await driver.open()
    gpu = (await found(driver)).gpus[1]
    await driver.watch()
    simulation.order(orders.Xid(gpu=1, xid=79))
    await eventually(lambda: heard.xids == [(gpu.uuid, 79)])
    simulation.order(orders.Reset(gpu=1))
    assert (await driver.probe(gpu.uuid, 5)).reset
    simulation.order(orders.Xid(gpu=1, xid=48))
    await eventually(lambda: heard.xids == [(gpu.uuid, 79), (gpu.uuid, 48)])


async def test_an_xid_between_two_discoveries_is_told_once(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation = simulate(2)
    await driver.open()
    await found(driver)
    await driver.watch()
    simulation.order(orders.Xid(gpu=0, xid=31))
    await found(driver)
    await driver.watch()
    simulation.order(orders.Xid(gpu=0, xid=43))
    await eventually(lambda: len(heard.xids) == 2)
    assert [xid for _, xid in heard.xids] == [31, 43]


STRAY = "  strayEvents: true\n"


async def test_an_xid_is_the_gpus_whose_handle_it_carries_whichever_set_it_came_to(
    simulate: Simulate, driver: Driver, heard: Heard
) -> None:
    simulation = simulate(3, more=STRAY)
    await driver.open()
    gpus = (await found(driver)).gpus
    await driver.watch()
    for index in (1, 0, 2):
        simulation.order(orders.Xid(gpu=index, xid=31 + index))
        await eventually(lambda: len(heard.xids) > 0 and heard.xids[-1][1] == 31 + index)  # noqa: B023 - awaited here
    assert heard.xids == [(gpus[1].uuid, 32), (gpus[0].uuid, 31), (gpus[2].uuid, 33)]
    assert all(event.device is None for _, event in heard.events), "a handle is no matter of the agent's"


async def lost_handles(
    simulate: Simulate, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> tuple[Simulation, NodeInventory]:
    """Two GPUs, the second one cut, whose events carry handles that are nobody's."""
    simulation = simulate(2, more=STRAY + "  mig: {1: [3g.20gb]}\n")
    await driver.open()
    node = await found(driver)
    await driver.watch()
    fresh = itertools.count(1)
    for module in ("driver", "hearing", "worker"):
        monkeypatch.setattr(f"agent.hardware.{module}.address", lambda _: next(fresh))
    return simulation, node


def without_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    def nvmlDeviceGetUUID(_: object) -> str:  # noqa: N802 - NVML's manner
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", nvmlDeviceGetUUID)


async def test_a_handle_that_is_nobodys_is_asked_for_its_uuid(
    simulate: Simulate, driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, node = await lost_handles(simulate, driver, monkeypatch)
    simulation.order(orders.Xid(gpu=1, xid=48))
    await eventually(lambda: heard.xids == [(node.gpus[1].uuid, 48)])


async def test_a_handle_of_a_mig_device_is_its_gpus(
    simulate: Simulate, driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, node = await lost_handles(simulate, driver, monkeypatch)
    (instance,) = node.gpus[1].mig_instances
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: instance.uuid)
    simulation.order(orders.Xid(gpu=1, xid=94, gi=instance.gi_id, ci=0))
    await eventually(lambda: heard.events == [(node.gpus[1].uuid, XidEvent(94, gi=instance.gi_id, ci=0))])


async def test_gpus_whose_handles_are_nobodys_are_listened_to_one_by_one_from_then_on(
    simulate: Simulate, driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, node = await lost_handles(simulate, driver, monkeypatch)
    assert not any(slot.worker.listens for slot in driver._slots)
    simulation.order(orders.Xid(gpu=1, xid=31))
    await eventually(lambda: all(slot.worker.listens for slot in driver._slots))
    await driver.watch()
    assert all(slot.worker.listens for slot in driver._slots)
    simulation.order(orders.Xid(gpu=0, xid=43))
    await eventually(lambda: heard.xids == [(node.gpus[1].uuid, 31), (node.gpus[0].uuid, 43)])


async def test_an_xid_without_a_uuid_counts_for_the_gpu_that_was_listened_to(
    simulate: Simulate, driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, node = await lost_handles(simulate, driver, monkeypatch)
    simulation.order(orders.Xid(gpu=1, xid=31))
    await eventually(lambda: all(slot.worker.listens for slot in driver._slots))
    await eventually(lambda: heard.xids == [(node.gpus[1].uuid, 31)])
    without_uuids(monkeypatch)
    simulation.order(orders.Xid(gpu=1, xid=48))
    await eventually(lambda: heard.xids == [(node.gpus[1].uuid, 31), (node.gpus[0].uuid, 48)])


async def test_an_xid_without_a_uuid_is_said_and_counts_for_none_where_all_were_listened_to(
    simulate: Simulate,
    driver: Driver,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulation, _ = await lost_handles(simulate, driver, monkeypatch)
    without_uuids(monkeypatch)
    simulation.order(orders.Xid(gpu=1, xid=48))
    await eventually(lambda: any("no UUID" in record.getMessage() for record in caplog.records))
    assert heard.xids == []


async def test_an_xid_of_a_gpu_that_is_not_listed_is_said_and_counts_for_none(
    simulate: Simulate,
    driver: Driver,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulation, _ = await lost_handles(simulate, driver, monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: "GPU-elsewhere")
    simulation.order(orders.Xid(gpu=1, xid=48))
    await eventually(lambda: any("not listed" in record.getMessage() for record in caplog.records))
    assert heard.xids == []


async def test_a_slow_gpu_times_out_alone(simulate: Simulate, driver: Driver, impatient: float) -> None:
    simulation = simulate(3)
    await driver.open()
    slow, *others = (await found(driver)).gpus
    simulation.order(orders.Slow(call="*", seconds=3600, gpu=0))
    waiting = asyncio.create_task(driver.probe(slow.uuid, 60))
    for other in others:
        assert not (await driver.probe(other.uuid, 30)).reset
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(CallTimedOut):
        await driver.probe(slow.uuid, impatient)


async def test_closing_is_bounded_while_a_gpu_hangs(simulate: Simulate, driver: Driver, impatient: float) -> None:
    simulation = simulate(2)
    await driver.open()
    gpu = (await found(driver)).gpus[0]
    simulation.order(orders.Slow(call="*", seconds=3600, gpu=0))
    with pytest.raises(CallTimedOut):
        await driver.probe(gpu.uuid, impatient)
    async with asyncio.timeout(60):
        await driver.close()


async def test_a_closed_session_lets_go_of_nvml_and_can_be_opened_again(simulate: Simulate, driver: Driver) -> None:
    simulate(2)
    await driver.open()
    before = await found(driver)
    await driver.watch()
    await driver.close()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    await driver.open()
    assert await found(driver) == before


async def test_mig_instances_made_later_show_in_the_probe(simulate: Simulate, driver: Driver) -> None:
    simulate(1, more="  migEnabled: [0]\n")
    await driver.open()
    (gpu,) = (await found(driver)).gpus
    assert (await driver.probe(gpu.uuid, 5)).probe.mig_uuids == ()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = pynvml.nvmlDeviceCreateGpuInstance(handle, 19)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    (mig,) = (await driver.probe(gpu.uuid, 5)).probe.mig_uuids or ()
    assert mig.startswith("MIG-")


async def test_a_gpu_nobody_knows_is_lost(simulate: Simulate, driver: Driver) -> None:
    simulate(1)
    await driver.open()
    await found(driver)
    with pytest.raises(GpuLost, match="no longer lists GPU-nobody"):
        await driver.probe(GpuUuid("GPU-nobody"), 5)


# Sysfs and names.


@pytest.mark.parametrize(
    ("nvml", "sysfs"), [("00000000:07:00.0", "0000:07:00.0"), ("00010000:AB:1F.0", "10000:ab:1f.0")]
)
def test_bus_ids_are_written_as_sysfs_does(nvml: str, sysfs: str) -> None:
    assert sysfs_bus_id(nvml) == sysfs


def test_numa_node_and_class_are_none_where_sysfs_does_not_tell(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices/0000:07:00.0"
    assert (read_numa_node(tmp_path, folder.name), read_pci_class(tmp_path, folder.name)) == (None, None)
    folder.mkdir(parents=True)
    for content, expected in (("-1\n", None), ("1\n", 1), ("", None), ("x", None)):
        (folder / "numa_node").write_text(content)
        assert read_numa_node(tmp_path, folder.name) == expected
    for content, cls in (("0x030200\n", 0x0302), ("0x030000", 0x0300), ("", None)):
        (folder / "class").write_text(content)
        assert read_pci_class(tmp_path, folder.name) == cls


@pytest.mark.parametrize(
    ("slices", "memory_mib", "total_gib", "name"),
    [(1, 4864, 40, "1g.5gb"), (3, 19968, 40, "3g.20gb"), (7, 40192, 40, "7g.40gb"), (1, 9728, 80, "1g.10gb")],
)
def test_a_computed_profile_name_is_nvmls(slices: int, memory_mib: int, total_gib: int, name: str) -> None:
    assert profile_name(slices, memory_mib, total_gib * GIB) == name
