"""The GpuNode object: what it says, that it stays small, and that it fits its CRD."""

import datetime as dt
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.gpunode import GpuNode, HealthView, build, free_starts, observed, owned_by
from agent.cluster.repairentries import repair_entries
from agent.health.repairstate import Repair, RepairState
from agent.nodestate import ShownRepair
from inventory.api.gpunode import LinkEntry, Offer
from inventory.devices import (
    DeviceId,
    Gpu,
    GpuUuid,
    MigInstance,
    MigProfile,
    MigUuid,
    NodeInventory,
    NodeName,
    ResourceName,
)
from inventory.layout.entries import Fractional, GpuMode, Mps, MpsClient, TimeSliced
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, MigStrategy, ReplicatedResource, Replication
from inventory.links import Link, PcieLevel

CRD = Path(__file__).parents[3] / "charts/tessera/crds/gpunodes.tessera.dev.yaml"
SCHEMA = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

PROFILES = tuple(
    MigProfile(
        name=name, profile_id=number, slices=slices, size=size, starts=starts, max_count=count, memory_mib=1,
        multiprocessors=1,
    )
    for name, number, slices, size, starts, count in (
        ("1g.10gb", 19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
        ("1g.10gb+me", 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
        ("1g.20gb", 15, 1, 2, (0, 2, 4, 6), 4),
        ("2g.20gb", 14, 2, 2, (0, 2, 4), 3),
        ("3g.40gb", 9, 3, 4, (0, 4), 2),
        ("4g.40gb", 5, 4, 4, (0,), 1),
        ("7g.80gb", 0, 7, 8, (0,), 1),
    )
)  # fmt: skip
BY_NAME = {profile.name: profile for profile in PROFILES}


class Holder(NamedTuple):
    namespace: str
    pod: str
    container: str


def instance(profile: str, start: int | None, gi: int = 1, of: int = 0, **changes: Any) -> MigInstance:
    shape = BY_NAME[profile]
    base: dict[str, Any] = {
        "uuid": MigUuid(f"MIG-{of}-{gi}"), "index": gi, "gi_id": gi, "ci_id": 0, "profile": profile,
        "gi_slices": shape.slices, "ci_slices": shape.slices, "memory_mib": 1, "multiprocessors": 1,
        "start": start, "size": None if start is None else shape.size,
    }  # fmt: skip
    return MigInstance(**(base | changes))


def gpu(index: int, *instances: MigInstance, **changes: Any) -> Gpu:
    base: dict[str, Any] = {
        "uuid": GpuUuid(f"GPU-{index}"), "index": index, "minor": index, "product": "NVIDIA A100-SXM4-80GB",
        "pci_bus_id": f"0000:{index:02x}:00.0", "memory_mib": 81920, "numa_node": index // 4,
        "compute_capability": (8, 0), "mig_capable": True, "mig_enabled": bool(instances), "mig_profiles": PROFILES,
        "mig_instances": instances,
    }  # fmt: skip
    return Gpu(**(base | changes))


def node(*gpus: Gpu, link: Link = Link(pcie=PcieLevel.PXB, nvswitch=12)) -> NodeInventory:  # noqa: B008 - a Link is frozen
    matrix = tuple(tuple(link for _ in gpus) for _ in gpus)
    return NodeInventory(
        name=NodeName("n1"), driver_version="570.124.06", cuda_version=(12, 8), gpus=gpus, links=matrix
    )


def made(found: NodeInventory, spec: LayoutSpec | None = None, **more: Any) -> GpuNode:
    return build(node=found, layout=plan(found, spec or LayoutSpec()), **more)


def plain(gpunode: GpuNode) -> Any:
    return msgspec.json.decode(msgspec.json.encode(gpunode))


def test_the_node_in_a_line_counts_what_is_handed_out() -> None:
    health = {"GPU-0": HealthView("Unhealthy", ("XID 79",), 1_700_000_000.9), "GPU-1": HealthView("Suspect")}
    status = made(node(gpu(0), gpu(1), gpu(2)), health=health).status
    assert (status.summary.gpus, status.summary.healthy) == (3, 2)
    told = status.devices[0].health
    assert told is not None
    assert (told.state, told.reasons) == ("Unhealthy", ("XID 79",))
    assert told.since == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)


@pytest.mark.parametrize("state", RepairState)
def test_the_node_in_a_line_counts_no_gpu_in_repair(state: RepairState) -> None:
    health = {"GPU-1": HealthView("Probation" if state is RepairState.PROBATION else "Healthy")}
    repair = Repair(gpu=GpuUuid("GPU-1"), state=state, since_s=1.0, fault_s=1.0, reason="Ordered")
    status = made(
        node(gpu(0), gpu(1), gpu(2)), health=health, repairs=repair_entries([ShownRepair(repair, None)])
    ).status
    assert (status.summary.gpus, status.summary.healthy) == (3, 2)
    assert [(device.health_state, device.repair_state) for device in status.devices] == [
        ("Healthy", ""),
        (health["GPU-1"].state, state.value),
        ("Healthy", ""),
    ], "its repair stands beside its health"
    assert status.devices[1].healthy is (state is not RepairState.PROBATION), "who has it keeps it"


def test_what_is_withheld_is_told_with_why_and_what_a_state_waits_for() -> None:
    health = {"GPU-0": HealthView("Probation", until="it has done well for 10 s and 3 probes")}
    status = made(node(gpu(0), gpu(1)), health=health, withheld={"GPU-1": "its layout is about to change"}).status
    assert status.devices[0].health is not None
    assert status.devices[0].health.until == "it has done well for 10 s and 3 probes"
    assert [(each.device, each.why) for each in status.withheld] == [("GPU-1", "its layout is about to change")]


def test_models_are_counted_where_there_are_several() -> None:
    assert made(node(gpu(0))).status.summary.product == "NVIDIA A100-SXM4-80GB"
    mixed = made(node(gpu(0), gpu(1, product="Tesla T4"), gpu(2))).status.summary.product
    assert mixed == "2 x NVIDIA A100-SXM4-80GB, 1 x Tesla T4"


def test_links_are_told_once_for_each_pair_and_unknown_ones_not_at_all() -> None:
    assert made(node(gpu(0), gpu(1))).status.links == (LinkEntry(a=0, b=1, pcie="PXB", nvswitch=12),)
    assert made(node(gpu(0), gpu(1), link=Link())).status.links == ()


def test_a_device_says_under_which_resource_it_is_offered_and_how_often() -> None:
    entry = ReplicatedResource(name=ResourceName("nvidia.com/gpu"), replicas=4)
    spec = LayoutSpec(replication=Replication(rename_by_default=True, resources=(entry,)))
    status = made(node(gpu(0)), spec).status
    assert status.devices[0].offers == (Offer(resource="nvidia.com/gpu.shared", replicas=4, enforcement="nobody"),)
    assert (status.resources[0].name, status.resources[0].devices) == ("nvidia.com/gpu.shared", 4)
    assert status.resources[0].sharing == "time-slicing"


def test_each_gpu_says_its_mode_and_each_resource_who_enforces_it() -> None:
    found = node(gpu(0), gpu(1), gpu(2), gpu(3))
    large = MpsClient(40960, 50, ResourceName("nvidia.com/gpu-large"))
    modes: dict[GpuUuid, GpuMode] = {
        found.gpus[1].uuid: TimeSliced(2),
        found.gpus[2].uuid: Mps((large,), equal=False),
        found.gpus[3].uuid: Fractional(granularity=10),
    }
    status = build(node=found, layout=plan(found, LayoutSpec(), modes)).status
    assert [device.mode for device in status.devices] == ["whole", "timeSlicing", "mps", "fractional"]
    assert {one.name: (one.sharing, one.enforcement) for one in status.resources} == {
        "nvidia.com/gpu": ("none", "hardware"),
        "nvidia.com/gpu.shared": ("time-slicing", "nobody"),
        "nvidia.com/gpu-large": ("mps", "daemon, by client"),
        "tessera.dev/gpu-percent": ("fractional", "daemon, by client"),
    }
    (offer,) = status.devices[2].offers
    assert (offer.memory_mib, offer.threads) == (40960, 50)
    (percent,) = status.devices[3].offers
    assert (percent.replicas, percent.granularity) == (100, 10)


def test_a_resource_is_as_well_enforced_as_the_weakest_of_its_devices() -> None:
    found = node(gpu(0), gpu(1))
    modes: dict[GpuUuid, GpuMode] = {
        found.gpus[0].uuid: Mps((MpsClient(),) * 2, equal=True),
        found.gpus[1].uuid: TimeSliced(2),
    }
    status = build(node=found, layout=plan(found, LayoutSpec(), modes)).status
    assert [one.enforcement for one in status.resources] == ["nobody"]
    assert [device.offers[0].enforcement for device in status.devices] == ["daemon", "nobody"]


def test_holders_are_sorted_whatever_their_order() -> None:
    holders = {DeviceId("GPU-1"): Holder("b", "p", "c"), DeviceId("GPU-0"): Holder("a", "p", "c")}
    one = made(node(gpu(0), gpu(1)), holders=holders)
    two = made(node(gpu(0), gpu(1)), holders=dict(reversed(holders.items())))
    assert one == two
    assert [entry.device for entry in one.status.holders] == ["GPU-0", "GPU-1"]


def test_what_could_not_be_done_is_said() -> None:
    cut = node(gpu(0, instance("3g.40gb", 0), mig_enabled=True), gpu(1))
    assert "GPUs 1 have MIG mode off" in made(cut, LayoutSpec(mig_strategy=MigStrategy.SINGLE)).status.problems[0]


@pytest.mark.parametrize(
    ("existing", "profile", "free"),
    [
        ((), "3g.40gb", (0, 4)),
        ((("3g.40gb", 0),), "3g.40gb", (4,)),
        ((("3g.40gb", 0),), "4g.40gb", ()),
        ((("3g.40gb", 0),), "1g.10gb", (4, 5, 6)),
        ((("3g.40gb", 0), ("3g.40gb", 4)), "1g.10gb", ()),
        ((("1g.10gb+me", 0),), "1g.10gb+me", ()),
        ((("1g.10gb+me", 0),), "1g.10gb", (1, 2, 3, 4, 5, 6)),
        ((("4g.40gb", 0), ("2g.20gb", 4)), "2g.20gb", ()),  # memory is there, compute is not
        ((("4g.40gb", 0), ("2g.20gb", 4)), "1g.20gb", (6,)),
        ((("1g.10gb", None),), "1g.10gb", None),
    ],
)
def test_free_places_beside_what_exists(
    existing: tuple[tuple[str, int | None], ...], profile: str, free: tuple[int, ...] | None
) -> None:
    instances = tuple(instance(name, start, gi) for gi, (name, start) in enumerate(existing, 1))
    assert free_starts(gpu(0, *instances), BY_NAME[profile]) == free


def test_two_parts_of_one_gpu_instance_take_its_place_once() -> None:
    parts = tuple(
        msgspec.structs.replace(
            instance("3g.40gb", 0, 1), profile="1c.3g.40gb", ci_id=ci, ci_slices=1, uuid=MigUuid(f"MIG-{ci}")
        )
        for ci in (0, 1)
    )
    assert free_starts(gpu(0, *parts), BY_NAME["3g.40gb"]) == (4,)


@given(st.lists(st.tuples(st.sampled_from(sorted(BY_NAME)), st.integers(0, 7)), max_size=10))
def test_filling_free_places_never_overlaps_and_never_exceeds_the_gpu(wishes: list[tuple[str, int]]) -> None:
    held: list[MigInstance] = []
    for gi, (name, wish) in enumerate(wishes, 1):
        free = free_starts(gpu(0, *held), BY_NAME[name])
        assert free is not None
        if free:
            held.append(instance(name, free[wish % len(free)], gi))
    taken = [slot for mig in held for slot in range(mig.start or 0, (mig.start or 0) + (mig.size or 0))]
    assert len(taken) == len(set(taken)) <= 8
    assert sum(mig.gi_slices for mig in held) <= 7


def test_an_instance_tells_its_health_only_where_it_differs_from_its_gpu() -> None:
    cut = gpu(0, instance("3g.40gb", 0, 1), instance("3g.40gb", 4, 2))
    views = {"GPU-0": HealthView("Healthy"), "MIG-0-1": HealthView("Healthy"), "MIG-0-2": HealthView("Unhealthy")}
    mig = made(node(cut), LayoutSpec(mig_strategy=MigStrategy.MIXED), health=views).status.devices[0].mig
    assert mig is not None
    assert [each.health and each.health.state for each in mig.instances] == [None, "Unhealthy"]
    assert mig.instances[0].offers == (Offer(resource="nvidia.com/mig-3g.40gb", enforcement="hardware"),)


def test_owner_and_time_are_added_without_touching_the_rest() -> None:
    bare = made(node(gpu(0)))
    full = plain(observed(owned_by(bare, "uid-7"), 1_700_000_000.0))
    assert full["metadata"]["ownerReferences"][0]["uid"] == "uid-7"
    assert full["status"].pop("observedAt") == "2023-11-14T22:13:20Z"
    assert full["status"] == plain(bare)["status"]


def largest() -> GpuNode:
    gpus = [
        gpu(n, *(instance("1g.10gb", slot, slot + 1, n) for slot in range(7)), serial=f"165012345678{n}")
        for n in range(16)
    ]
    found = node(*gpus)
    health = {str(each.uuid): HealthView("Unhealthy", ("XID 94 " + "x" * 600,) * 5, 1_700_000_000.0) for each in gpus}
    layout = plan(found, LayoutSpec(mig_strategy=MigStrategy.MIXED))
    ids = [device.id for resource in layout.resources for device in resource.devices]
    holders = {each: Holder("namespace", f"pod-{each}", "main") for each in ids}
    withheld = dict.fromkeys(health, "x" * 600)
    return owned_by(build(node=found, layout=layout, health=health, holders=holders, withheld=withheld), "uid")


def test_the_largest_node_fits_its_schema_and_stays_far_below_what_etcd_takes() -> None:
    body = largest()
    jsonschema.validate(plain(body), SCHEMA)
    assert len(msgspec.json.encode(body)) < 150_000


@pytest.mark.parametrize(
    "found",
    [
        node(),
        node(gpu(0, minor=-1, product="", memory_mib=0, pci_bus_id="", readable=False, numa_node=None)),
        node(gpu(0, mig_capable=False, mig_profiles=()), gpu(1)),
        node(gpu(0, instance("1g.10gb", None))),
    ],
    ids=["no GPU", "a lost GPU", "without MIG", "placements unknown"],
)
def test_every_node_fits_the_schema(found: NodeInventory) -> None:
    body = plain(owned_by(made(found), "uid"))
    jsonschema.validate(body, SCHEMA)
    assert_known(body["status"], SCHEMA["properties"]["status"])


def assert_known(value: Any, schema: dict[str, Any]) -> None:
    """No field is left out of the schema: the API server would drop it without a word."""
    if isinstance(value, dict):
        for key, item in value.items():
            assert key in schema["properties"], key
            assert_known(item, schema["properties"][key])
    elif isinstance(value, list):
        for item in value:
            assert_known(item, schema["items"])


def test_the_largest_node_loses_nothing_to_pruning() -> None:
    assert_known(plain(largest())["status"], SCHEMA["properties"]["status"])
