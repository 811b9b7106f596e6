"""The series of a node, from readings to text: dcgm-exporter's names, types and labels, and sums that stay true."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from agent.health.xids import UNKNOWN_XID_NAME, XIDS
from agent.kubelet.containers import ClaimUse, PodContainer
from agent.kubelet.holders import Holder
from agent.telemetry import usage
from agent.telemetry.allocation import Allocation, GpuPart, allocations, tenants
from agent.telemetry.collectors import parse
from agent.telemetry.exposition import Family, Writer, labels, number
from agent.telemetry.fields import FIELDS, FieldKind
from agent.telemetry.healthwatch import FAIL, FINE, WATCHES, Finding
from agent.telemetry.reading.readings import GpuReading, InstanceReading, ProcessReading
from agent.telemetry.series import ALLOCATION, OWN, Recent, Scene, Style, write
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigUuid, NodeInventory, NodeName, ResourceName
from inventory.layout.layout import Layout, plan
from inventory.layout.sharing import LayoutSpec, MigStrategy, ReplicatedResource, Replication, SharingMode
from inventory.links import UNKNOWN_LINK
from tests.support.agent import dcgm_exporter as peer

GPU = ResourceName("nvidia.com/gpu")
Series = dict[tuple[str, ...], float]

SHARED = LayoutSpec(replication=Replication(mode=SharingMode.TIME_SLICING, resources=(ReplicatedResource(GPU, 4),)))
MIXED = LayoutSpec(mig_strategy=MigStrategy.MIXED)
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTIL, USED, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"
VALUES = {UTIL: 80.0, USED: 1000.0, POWER: 400.0, "DCGM_FI_DEV_GPU_TEMP": 50.0}


def board(index: int = 0, migs: tuple[MigInstance, ...] = ()) -> Gpu:
    return Gpu(
        uuid=GpuUuid(f"GPU-{index}"),
        index=index,
        minor=index,
        product="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"0000:{index + 10:02x}:00.0",
        memory_mib=81559,
        mig_capable=bool(migs),
        mig_enabled=bool(migs),
        mig_instances=migs,
    )


def instance(gi_id: int, profile: str, slices: int) -> MigInstance:
    return MigInstance(
        uuid=MigUuid(f"MIG-{gi_id}"),
        index=gi_id,
        gi_id=gi_id,
        ci_id=0,
        profile=profile,
        gi_slices=slices,
        ci_slices=slices,
        memory_mib=9856,
        multiprocessors=14,
    )


def node(*gpus: Gpu) -> NodeInventory:
    links = tuple((UNKNOWN_LINK,) * len(gpus) for _ in gpus)
    return NodeInventory(name=NodeName("node-1"), driver_version="570.1", gpus=gpus, links=links)


def scene(
    of: NodeInventory,
    layout: Layout,
    held: Mapping[str, str],
    readings: Sequence[GpuReading],
    owners: Mapping[int, str] | None = None,
    **more: object,
) -> Scene:
    """``held``: pod by device id; ``owners``: pod by pid. Pods are of namespace ``team``, container ``main``."""
    resource = {device.id: one.name for one in layout.resources for device in one.devices}
    holders = {
        DeviceId(device): Holder("team", pod, "main", resource.get(DeviceId(device), GPU))
        for device, pod in held.items()
    }
    found = allocations(of, layout, holders)
    by_uuid = {one.uuid: one for one in readings}
    by_pid = {pid: PodContainer("team", pod, "main") for pid, pod in (owners or {}).items()}
    usages = usage.usages(of, by_uuid, tenants(found), by_pid)
    usage.validate(usages, by_uuid)
    return Scene(node=of, usages=usages, readings=by_uuid, allocations=found, host="node-1", **more)  # type: ignore[arg-type]


def families(one: Scene) -> dict[str, Metric]:
    text = write(one).text().decode()
    assert len(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == len(
        set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    )
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for family in found.values():
        keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(keys)) == len(keys), f"{family.name}: a series twice"
    return found


def series(one: Scene, name: str, *labels: str) -> Series:
    """Values by these labels' values."""
    return {
        tuple(sample.labels.get(label, "") for label in labels): sample.value
        for family in families(one).values()
        for sample in family.samples
        if sample.name == name
    }


WHOLE = node(board())


def whole_held() -> Scene:
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, {**VALUES, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.75})
    return scene(WHOLE, plan(WHOLE, LayoutSpec()), {"GPU-0": "train"}, [reading])


def test_labels_are_the_peers_in_its_order() -> None:
    line = next(line for line in write(whole_held()).text().decode().splitlines() if line.startswith(f"{UTIL}{{"))
    names = re.findall(r'(\w+)="', line)
    assert names == [*peer.DEVICE_LABELS, peer.HOST_LABEL, *peer.DEFAULT_LABEL_FIELDS, *peer.POD_LABELS]
    device = 'gpu="0",UUID="GPU-0",pci_bus_id="00000000:0A:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3"'
    host = 'Hostname="node-1",DCGM_FI_DRIVER_VERSION="570.1"'
    assert line == f'{UTIL}{{{device},{host},container="main",namespace="team",pod="train"}} 80'


def test_an_instances_labels_stand_where_the_peers_do() -> None:
    line = next(line for line in write(cut()).text().decode().splitlines() if 'GPU_I_ID="1"' in line)
    names = re.findall(r'(\w+)="', line)
    expected = [*peer.DEVICE_LABELS, *peer.INSTANCE_LABELS, peer.HOST_LABEL, *peer.DEFAULT_LABEL_FIELDS]
    assert names == [*expected, *peer.POD_LABELS]


def test_the_host_label_is_small_where_that_is_asked_for() -> None:
    one = scene(WHOLE, Layout(), {}, [GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)], host_label="hostname")
    assert series(one, UTIL, "hostname", "Hostname") == {("node-1", ""): 80}


def test_fields_of_type_label_stand_in_the_peers_order_whatever_that_of_the_file() -> None:
    chosen = parse(f"DCGM_FI_DRIVER_VERSION, label, x\nDCGM_FI_DEV_NAME, label, x\n{UTIL}, gauge, x\n", "f")
    text = write(scene(WHOLE, Layout(), {}, [GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)], collectors=chosen)).text()
    assert b'Hostname="node-1",DCGM_FI_DEV_NAME="NVIDIA H100 80GB HBM3",DCGM_FI_DRIVER_VERSION="570.1"}' in text


def test_the_exporters_options_for_labels_change_its_own_series_alone() -> None:
    of = node(structs.replace(board(), product="NVIDIA H100 80GB HBM3"))
    held = {"GPU-0": "train"}
    style = Style(no_hostname=True, old_names=True, dashed_model=True)
    found = families(scene(of, plan(of, LayoutSpec()), held, [GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)], style=style))
    labels_of = found[UTIL].samples[0].labels
    assert (
        labels_of.items()
        >= {
            "uuid": "GPU-0",
            "modelName": "NVIDIA-H100-80GB-HBM3",
            "pod_name": "train",
            "pod_namespace": "team",
            "container_name": "main",
        }.items()
    )
    assert labels_of.keys().isdisjoint({"UUID", "Hostname", "pod", "namespace", "container"})
    assert found["tessera_gpu_allocation"].samples[0].labels.keys() >= {"UUID", "Hostname", "pod"}


def test_every_field_of_type_label_stands_on_every_series() -> None:
    names = sorted(field.name for field in FIELDS if field.kind is FieldKind.LABEL)
    chosen = parse("".join(f"{name}, label, x\n" for name in names) + f"{UTIL}, gauge, x\n", "f")
    gpu = structs.replace(board(), brand="Nvidia", serial="0815")
    texts = {name: "90.1" for name in names if re.search("INFOROM|BIOS|NVML|FABRIC", name)}
    of = structs.replace(node(gpu), cuda_version=(12, 8))
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, VALUES, texts=texts)
    (found,) = families(scene(of, Layout(), {}, [reading], collectors=chosen))[UTIL].samples
    assert {name: found.labels.get(name, "") for name in names} == {
        **texts,
        "DCGM_FI_CUDA_DRIVER_VERSION": "12080",
        "DCGM_FI_DEV_BRAND": "Nvidia",
        "DCGM_FI_DEV_MINOR_NUMBER": "0",
        "DCGM_FI_DEV_NAME": "NVIDIA H100 80GB HBM3",
        "DCGM_FI_DEV_PCI_BUSID": "00000000:0A:00.0",
        "DCGM_FI_DEV_SERIAL": "0815",
        "DCGM_FI_DEV_UUID": "GPU-0",
        "DCGM_FI_DRIVER_VERSION": "570.1",
    }


def test_a_device_of_ones_own_has_ones_name_on_everything() -> None:
    for name, value in VALUES.items():
        assert series(whole_held(), name, "pod") == {("train",): value}
    assert series(whole_held(), "tessera_gpu_busy_ratio", "source") == {("gpm",): 0.75}
    assert series(whole_held(), "tessera_pod_gpu_busy_ratio", "pod", "owner") == {("train", "pod"): 0.75}
    assert series(whole_held(), "tessera_gpu_allocation", "pod", "mode", "resource") == {("train", "whole", GPU): 1.0}


def shared() -> Scene:
    processes = (
        ProcessReading(1, memory_mib=300, sm=60),
        ProcessReading(2, memory_mib=500, sm=30),
        ProcessReading(9, memory_mib=100, sm=30),
    )
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, VALUES, processes=processes, processes_sampled=True)
    held = {"GPU-0::0": "train", "GPU-0::1": "serve", "GPU-0::2": "serve"}
    return scene(WHOLE, plan(WHOLE, SHARED), held, [reading], {1: "train", 2: "serve"})


def test_pods_that_share_a_gpu_have_a_series_each_with_their_own_part() -> None:
    assert series(shared(), UTIL, "pod") == {("train",): 40, ("serve",): 20, ("",): 20}
    assert series(shared(), USED, "pod") == {("train",): 300, ("serve",): 500, ("",): 200}
    assert series(shared(), "tessera_pod_gpu_power_estimate_watts", "pod", "owner") == {
        ("train", "pod"): 200,
        ("serve", "pod"): 100,
        ("", "unattributed"): 100,
    }


def test_what_cannot_be_divided_is_the_devices() -> None:
    assert series(shared(), "DCGM_FI_DEV_GPU_TEMP", "pod") == {("",): 50}
    assert series(shared(), POWER, "pod") == {("",): 400}


def test_shares_say_who_holds_how_much_in_which_mode() -> None:
    assert series(shared(), "tessera_gpu_allocation", "pod", "mode") == {
        ("train", "time-slicing"): 0.25,
        ("serve", "time-slicing"): 0.5,
    }


MIGS = (instance(1, "3g.40gb", 3), instance(5, "1g.10gb", 1))
CUT = node(board(migs=MIGS), board(1))


def cut(first: float | None = 0.5, second: float | None = 0.5) -> Scene:
    def values(busy: float | None, used: float) -> dict[str, float]:
        return {USED: used} | ({} if busy is None else {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy})

    reading = GpuReading(
        GpuUuid("GPU-0"),
        1.0,
        {POWER: 400.0, USED: 999.0, "DCGM_FI_DEV_GPU_TEMP": 60.0},
        instances=(InstanceReading(1, values(first, 700)), InstanceReading(5, values(second, 80))),
    )
    return scene(CUT, plan(CUT, MIXED), {"MIG-1": "train"}, [reading, GpuReading(GpuUuid("GPU-1"), 1.0, VALUES)])


def test_mig_instances_carry_profile_id_and_pod() -> None:
    assert series(cut(), USED, "gpu", "GPU_I_PROFILE", "GPU_I_ID", "pod") == {
        ("0", "3g.40gb", "1", "train"): 700,
        ("0", "1g.10gb", "5", ""): 80,
        ("1", "", "", ""): 1000,
    }
    line = next(line for line in write(cut()).text().decode().splitlines() if line.startswith(f"{USED}{{"))
    order = [*peer.DEVICE_LABELS, *peer.INSTANCE_LABELS, peer.HOST_LABEL, *peer.DEFAULT_LABEL_FIELDS, *peer.POD_LABELS]
    assert re.findall(r'(\w+)="', line) == order


def test_the_boards_own_figures_come_once() -> None:
    assert series(cut(), "DCGM_FI_DEV_GPU_TEMP", "gpu", "GPU_I_ID") == {("0", ""): 60, ("1", ""): 50}


def test_an_instances_share_is_of_the_whole_gpu() -> None:
    assert series(cut(), "tessera_gpu_allocation", "pod", "mode", "GPU_I_ID") == {
        ("train", "mig", "1"): round(3 / 7, 6)
    }


def test_power_under_mig_goes_by_slices_times_activity_else_by_slices() -> None:
    name = "tessera_pod_gpu_power_estimate_watts"
    at_gpu_0 = {
        key[1:]: value for key, value in series(cut(0.1, 0.9), name, "gpu", "GPU_I_ID", "pod").items() if key[0] == "0"
    }
    assert at_gpu_0 == {("1", "train"): 100, ("5", ""): 300, ("", ""): 0}
    blind = series(cut(None, None), name, "gpu", "GPU_I_ID", "pod")
    assert round(blind["0", "1", "train"], 6) == round(400 * 3 / 7, 6)
    assert round(blind["0", "", ""], 6) == round(400 * 3 / 7, 6)


def test_a_shared_instance_shows_its_own_processes_and_not_the_ones_beside_it() -> None:
    small = ReplicatedResource(ResourceName("nvidia.com/mig-1g.10gb"), 2)
    spec = LayoutSpec(
        mig_strategy=MigStrategy.MIXED, replication=Replication(mode=SharingMode.TIME_SLICING, resources=(small,))
    )
    reading = GpuReading(
        GpuUuid("GPU-0"),
        1.0,
        {},
        instances=(InstanceReading(1, {USED: 700.0}), InstanceReading(5, {USED: 80.0})),
        processes=(ProcessReading(1, gi_id=1, memory_mib=690), ProcessReading(2, gi_id=5, memory_mib=30)),
    )
    held = {"MIG-1": "train", "MIG-5::0": "a", "MIG-5::1": "b"}
    one = scene(CUT, plan(CUT, spec), held, [reading], {1: "train", 2: "a"})
    found = {key: value for key, value in series(one, USED, "GPU_I_ID", "pod").items() if key[0] == "5"}
    assert found == {("5", "a"): 30, ("5", "b"): 0, ("5", ""): 50}


def test_every_figure_of_a_shared_gpu_is_divided_by_what_its_processes_did_of_that_very_kind() -> None:
    names = ("DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL")
    processes = (
        ProcessReading(1, memory_mib=10, sm=1, copy=3, encoder=1, decoder=0),
        ProcessReading(2, memory_mib=10, sm=1, copy=1, encoder=3, decoder=5),
    )
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, dict.fromkeys(names, 40.0), processes=processes, processes_sampled=True)
    one = scene(WHOLE, plan(WHOLE, SHARED), {"GPU-0::0": "a", "GPU-0::1": "b"}, [reading], {1: "a", 2: "b"})
    for name, expected in zip(names, ((30, 10), (10, 30), (0, 40)), strict=True):
        assert series(one, name, "pod") == {("a",): expected[0], ("b",): expected[1], ("",): 0}, name
    assert series(one, "tessera_pod_gpu_encoder_utilization_ratio", "pod") == {("a",): 0.1, ("b",): 0.3, ("",): 0}
    assert series(one, "tessera_pod_gpu_decoder_utilization_ratio", "pod") == {("a",): 0, ("b",): 0.4, ("",): 0}


def test_what_holds_the_clocks_down_and_which_links_are_up_is_said_by_name() -> None:
    reading = GpuReading(
        GpuUuid("GPU-0"), 1.0, {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": float(0x44)}, links=18, links_up=16
    )
    one = scene(WHOLE, Layout(), {}, [reading])
    reasons = series(one, "tessera_gpu_throttled", "reason")
    assert {reason for (reason,), value in reasons.items() if value} == {"power_cap", "hw_thermal"}
    assert len(reasons) == 9
    assert series(one, "tessera_gpu_nvlinks", "state") == {("up",): 16, ("down",): 2}


def test_under_mig_there_is_no_utilisation_by_pod_since_nvml_gives_none() -> None:
    for figure in ("sm", "encoder", "decoder"):
        found = series(cut(), f"tessera_pod_gpu_{figure}_utilization_ratio", "gpu")
        assert ("0",) not in found
    assert ("0", "train") in series(cut(), "tessera_pod_gpu_busy_ratio", "gpu", "pod")


def test_who_holds_a_whole_gpu_in_mig_mode_has_all_its_instances() -> None:
    parts = (InstanceReading(1, {USED: 700.0}), InstanceReading(5, {USED: 80.0}))
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, {POWER: 400.0}, instances=parts)
    one = scene(CUT, plan(CUT, LayoutSpec()), {"GPU-0": "train"}, [reading])
    assert series(one, USED, "GPU_I_ID", "pod") == {("1", "train"): 700, ("5", "train"): 80}


def test_the_busy_ratio_survives_mig_where_gpm_is_there_and_is_absent_where_it_is_not() -> None:
    assert series(cut(), "tessera_gpu_busy_ratio", "gpu", "GPU_I_ID", "source") == {
        ("0", "", "gpm"): round(0.5 * 4 / 7, 6),
        ("0", "1", "gpm"): 0.5,
        ("0", "5", "gpm"): 0.5,
        ("1", "", "utilization"): 0.8,
    }
    assert series(cut(None, None), "tessera_gpu_busy_ratio", "gpu") == {("1",): 0.8}
    parts = (InstanceReading(1, {BUSY: 0.5}), InstanceReading(5, {BUSY: 0.5}))
    known = scene(CUT, plan(CUT, MIXED), {}, [GpuReading(GpuUuid("GPU-0"), 1.0, {BUSY: 0.4}, instances=parts)])
    assert series(known, "tessera_gpu_busy_ratio", "GPU_I_ID")["",] == 0.4, "what the board says of itself comes first"


def test_the_xid_gauge_is_there_for_a_gpu_that_does_not_answer() -> None:
    one = scene(WHOLE, plan(WHOLE, LayoutSpec()), {"GPU-0": "train"}, [], recent={GpuUuid("GPU-0"): Recent(xid=79)})
    assert series(one, "DCGM_FI_DEV_XID_ERRORS", "gpu", "pod") == {("0", "train"): 79}
    assert families(one).keys() == {"DCGM_FI_DEV_XID_ERRORS", "tessera_gpu_allocation", "tessera_gpu_open_xid"}
    line = next(line for line in write(one).text().decode().splitlines() if line.startswith("DCGM_FI_DEV_XID_ERRORS{"))
    assert re.findall(r'(\w+)="', line)[-5:] == sorted((*peer.POD_LABELS, *peer.XID_LABELS)), "in dcgm-exporter's order"
    for xid, said in ((79, XIDS[79].name), (0, "No Error"), (4711, UNKNOWN_XID_NAME)):
        one = scene(WHOLE, Layout(), {}, [], recent={GpuUuid("GPU-0"): Recent(xid=xid)})
        assert series(one, "DCGM_FI_DEV_XID_ERRORS", "err_code", "err_msg") == {(str(xid), said): xid}


def recent(chosen: str, **more: object) -> Scene:
    lines = "".join(f"{name}, gauge, x\n" for name in chosen.split())
    return scene(WHOLE, Layout(), {}, [], collectors=parse(lines, "f"), **more)  # type: ignore[arg-type]


def test_xids_are_counted_by_xid_and_none_is_one_series_that_says_so() -> None:
    name = "DCGM_EXP_XID_ERRORS_COUNT"
    happened = {GpuUuid("GPU-0"): Recent(xids={31: 4, 13: 1})}
    assert series(recent(name, recent=happened), name, *peer.WINDOW_LABELS, "xid") == {
        ("300000", "13"): 1,
        ("300000", "31"): 4,
    }
    assert series(recent(name, xid_window_ms=1000), name, *peer.WINDOW_LABELS, "xid") == {("1000", ""): 0}


def test_readings_with_held_down_clocks_are_counted_by_reason() -> None:
    name = "DCGM_EXP_CLOCK_EVENTS_COUNT"
    happened = {GpuUuid("GPU-0"): Recent(clock_events={"power_cap": 20})}
    assert series(recent(name, recent=happened), name, *peer.WINDOW_LABELS, "clock_event") == {
        ("300000", "power_cap"): 20
    }
    assert series(recent(name), name, *peer.WINDOW_LABELS, "clock_event") == {("300000", ""): 0}


def test_each_health_watch_has_a_series_with_what_it_found() -> None:
    name = "DCGM_EXP_GPU_HEALTH_STATUS"
    watches = {**dict.fromkeys(peer.HEALTH_WATCHES, FINE), "MEM": Finding(FAIL, "DCGM_FR_UNCONTAINED_ERROR")}
    one = recent(name, recent={GpuUuid("GPU-0"): Recent(watches=watches)})
    found = series(one, name, *peer.HEALTH_LABELS)
    assert found == {
        **{(watch, "DCGM_FR_OK"): 0 for watch in peer.HEALTH_WATCHES if watch != "MEM"},
        ("MEM", "DCGM_FR_UNCONTAINED_ERROR"): 20,
    }
    assert tuple(peer.HEALTH_WATCHES) == WATCHES


def test_a_field_under_its_old_name_has_the_same_series_beside_its_own() -> None:
    chosen = parse("dcgm_gpu_utilization, gauge, old\ndcgm_xid_errors, gauge, old\n", "f")
    one = structs.replace(shared(), collectors=chosen, recent={GpuUuid("GPU-0"): Recent(xid=31)})
    text = write(one).text().decode()
    assert "# HELP dcgm_gpu_utilization old\n" in text
    for old, new in (("dcgm_gpu_utilization", UTIL), ("dcgm_xid_errors", "DCGM_FI_DEV_XID_ERRORS")):
        assert series(one, old, "pod", "gpu") == series(one, new, "pod", "gpu") != {}


def test_the_collectors_file_chooses_fields_types_helps_and_labels() -> None:
    chosen = parse("DCGM_FI_DEV_GPU_UTIL, counter, Busy.\nDCGM_FI_DEV_NAME, label, Name\n", "f")
    found = families(scene(WHOLE, Layout(), {}, [GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)], collectors=chosen))
    assert {name for name in found if name.startswith("DCGM")} == {UTIL}
    text = (
        write(scene(WHOLE, Layout(), {}, [GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)], collectors=chosen))
        .text()
        .decode()
    )
    assert f"# HELP {UTIL} Busy.\n# TYPE {UTIL} counter\n" in text
    assert 'DCGM_FI_DEV_NAME="NVIDIA H100 80GB HBM3"' in text
    assert "DCGM_FI_DRIVER_VERSION" not in text


def test_one_who_also_holds_a_share_does_not_have_the_device_alone() -> None:
    who, place = PodContainer("team", "train", "main"), GpuPart(GpuUuid("GPU-0"))
    whole, share = (Allocation(place, who, GPU, mode, 0.5) for mode in ("whole", "time-slicing"))
    assert tenants([whole])[place].exclusive
    for both in ([whole, share], [share, whole]):
        assert not tenants(both)[place].exclusive


def test_a_device_whose_layout_changed_under_its_holder_counts_in_full() -> None:
    (found,) = allocations(WHOLE, plan(WHOLE, SHARED), {DeviceId("GPU-0"): Holder("team", "old", "main", GPU)})
    assert found == Allocation(GpuPart(GpuUuid("GPU-0")), PodContainer("team", "old", "main"), GPU, "whole", 1.0)


def test_a_device_by_claim_has_the_claims_labels_as_the_peer_calls_them() -> None:
    who, place = PodContainer("team", "train", "main"), GpuPart(GpuUuid("GPU-0"))
    use = ClaimUse("team", "mine", "gpu.nvidia.com", "node-1", "gpu-0")
    held = allocations(
        WHOLE, Layout(), {DeviceId("GPU-0"): Holder("team", "train", "main", GPU)}, {DeviceId("GPU-0"): use}
    )
    assert held == (Allocation(place, who, GPU, "whole", 1.0, use),)
    reading = GpuReading(place.gpu, 1.0, VALUES)
    usages = usage.usages(WHOLE, {place.gpu: reading}, tenants(held), {})
    found = Scene(node=WHOLE, usages=usages, readings={place.gpu: reading}, allocations=held, host="node-1")
    labels = ("pod", "dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name")
    values = ("train", "mine", "team", "gpu.nvidia.com", "node-1", "gpu-0")
    assert list(series(found, UTIL, *labels)) == [values]
    assert list(series(found, ALLOCATION, *labels)) == [values]
    assert "dra_mig" not in write(found).text().decode()


def test_pods_that_share_one_claim_have_equal_parts_of_its_gpu_and_none_has_it_alone() -> None:
    gpu, use = DeviceId("GPU-0"), ClaimUse("team", "mine")
    left, right = (Holder("team", side, "main", GPU) for side in ("left", "right"))
    held = allocations(WHOLE, Layout(), {gpu: right}, {gpu: use}, {gpu: (left, right)})
    assert [(each.holder.pod, each.share, each.claim.name) for each in held] == [
        ("left", 0.5, "mine"),
        ("right", 0.5, "mine"),
    ]
    (shared,) = tenants(held).values()
    assert not shared.exclusive


def test_claims_with_shares_of_one_gpu_have_their_part_of_it_and_none_has_it_alone() -> None:
    units = {name: DeviceId(f"GPU-0::{name}") for name in ("a", "b", "c")}
    holders = {unit: Holder("team", f"pod-{name}", "main", GPU) for name, unit in units.items()}
    uses = {unit: ClaimUse("team", name, percent=30) for name, unit in units.items() if name != "c"}
    uses[units["c"]] = ClaimUse("team", "a", percent=10)
    holders[units["c"]] = holders[units["a"]]
    held = allocations(WHOLE, Layout(), holders, uses)
    found = [(each.holder.pod, each.mode, each.claim.name, round(each.share, 6)) for each in held]
    assert found == [("pod-a", "mps", "a", 0.4), ("pod-b", "mps", "b", 0.3)], "two shares of one claim are one series"
    (shared,) = tenants(held).values()
    assert not shared.exclusive


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.floats(0, 400), st.none() | st.floats(0, 2000)),
        unique_by=lambda one: one[0],
        max_size=6,
    ),
    st.dictionaries(st.integers(1, 9), st.sampled_from(["a", "b"]), max_size=5),
    st.dictionaries(st.sampled_from([f"GPU-0::{i}" for i in range(4)]), st.sampled_from(["a", "b", "c"])),
    st.floats(0, 100),
    st.booleans(),
)
def test_sums_over_pods_and_rest_are_the_devices_value(
    work: list[tuple[int, float, float | None]],
    owners: dict[int, str],
    held: dict[str, str],
    util: float,
    sampled: bool,
) -> None:
    processes = tuple(ProcessReading(pid, memory_mib=mib, sm=sm) for pid, sm, mib in work)
    values = {**VALUES, UTIL: util}
    reading = GpuReading(GpuUuid("GPU-0"), 1.0, values, processes=processes, processes_sampled=sampled)
    one = scene(WHOLE, plan(WHOLE, SHARED), held, [reading], owners)
    for name, expected in (
        (UTIL, util),
        (USED, 1000),
        ("tessera_pod_gpu_sm_utilization_ratio", util / 100),
        ("tessera_pod_gpu_memory_used_bytes", 1000 * 2**20),
        ("tessera_pod_gpu_power_estimate_watts", 400),
        ("tessera_pod_gpu_busy_ratio", util / 100),
    ):
        total = sum(series(one, name, "pod").values())
        assert abs(total - expected) <= 1e-5 * max(1.0, expected), name


def test_the_page_names_every_series_of_our_own() -> None:
    page = (Path(__file__).parents[3] / "docs/metrics.md").read_text().split("## What the GPUs do")[1]
    assert re.findall(r"^\| `(tessera_\w+)` \|", page, re.MULTILINE) == documented_order()


def documented_order() -> list[str]:
    """The table's: what is given, what the device does, what the pods do."""
    names = [family.name for family in OWN]
    devices = [name for name in names if not name.startswith("tessera_pod_")]
    first = ["tessera_gpu_allocation", *(name for name in devices if name != "tessera_gpu_allocation")]
    pods = [name for name in names if name.startswith("tessera_pod_")]
    return [*first, "tessera_pod_gpu_busy_ratio", *(name for name in pods if name != "tessera_pod_gpu_busy_ratio")]


@settings(max_examples=30)
@given(st.lists(st.text(alphabet=st.sampled_from('a"\\\n{},= #é漢\r\t')), max_size=4))
def test_any_text_in_a_label_comes_back_as_it_was(texts: list[str]) -> None:
    writer = Writer([Family("m", "gauge", "x")])
    wanted = {f"l{i}": text for i, text in enumerate(texts)}
    writer.add("m", labels(wanted.items()), 1)
    (family,) = text_string_to_metric_families(writer.text().decode())
    (sample,) = family.samples
    assert sample.labels == {name: text for name, text in wanted.items() if text}


def test_texts_are_escaped_and_numbers_short() -> None:
    writer = Writer([Family("m", "gauge", "a\\b\nc")])
    writer.add("m", 'x="\\\\\\"\\n"', 0.1 + 0.2)
    assert writer.text() == b'# HELP m a\\\\b\\nc\n# TYPE m gauge\nm{x="\\\\\\"\\n"} 0.3\n'
    assert [number(value) for value in (1.0, 0.5, 2.0**60, True)] == ["1", "0.5", repr(2.0**60), "1"]


def test_a_family_without_series_has_no_header() -> None:
    assert Writer(OWN).text() == b""
