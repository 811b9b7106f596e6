"""The GpuNode object: everything about one node's GPUs, for people, for the controller, and for other tools.

    Node, Layout, health, holders -> build() -> GpuNode -> owned_by(), observed() -> publisher

One object for each node, cluster-scoped, named as the node, owned by it. The agent writes all of it; ``status`` says
what is, nobody writes what should be (a GpuLayout does that). The CRD is generated from these structs by
``python -m hack.crds``: the bounds in the annotations are those of the schema.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from inventory.devices import Gpu, MigInstance, MigProfile, Node
from inventory.ids import DeviceId
from inventory.layout import layout as layout_model
from inventory.layout.entries import LayoutMode
from inventory.layout.layout import Layout, LogicalDevice
from inventory.layout.offers import ALONE, device_modes, enforced, weakest
from inventory.layout.sharing import SharingMode
from kube.objects import ObjectMeta, OwnerReference
from kube.resources import NODES, Resource

GPU_NODES = Resource("tessera.dev", "v1alpha1", "gpunodes", "GpuNode")

MAX_GPUS = 64
MAX_INSTANCES = 16
MAX_HOLDERS = 4096
MAX_PROBLEMS = 64
MAX_TEXT = 512

Word = Annotated[str, Meta(max_length=253)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=0)]
Starts = Annotated[tuple[Count, ...], Meta(max_length=32)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class HealthView(Struct, frozen=True):
    """What ``build`` is told of one device's health. ``since_s`` is the wall second of the last change of state."""

    state: str
    reasons: tuple[str, ...] = ()
    since_s: float | None = None


class HolderView(Protocol):
    """Who holds a device: a container."""

    @property
    def namespace(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def container(self) -> str: ...


class Health(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device's state in the agent's health machine. Healthy and Suspect devices are handed out."""

    state: Annotated[str, Meta(max_length=32, description="Healthy, Suspect, Unhealthy or Probation.")]
    reasons: Annotated[tuple[Text, ...], Meta(max_length=32, description="The open faults.")] = ()
    since: Annotated[Time | None, Meta(description="When the state last changed.")] = None


Enforced = Annotated[
    str,
    Meta(
        max_length=32,
        description="What keeps the containers on one device apart: hardware; daemon; daemon, by client; or nobody.",
    ),
]


class Offer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Under which resource a device is advertised, how often, and what keeps those who share it apart."""

    resource: Word
    replicas: Annotated[int, Meta(ge=1, description="Devices that it is; of a fractional GPU its percents.")] = 1
    enforcement: Enforced = ""
    granularity: Annotated[int, Meta(ge=1, description="A request is a multiple of this.")] = 1
    spread: Annotated[bool, Meta(description="Of a fractional GPU: the emptiest is given first, not the fullest.")] = (
        False
    )
    memory_mib: Annotated[Count | None, Meta(description="Memory that one device's container may use.")] = (
        msgspec.field(name="memoryMiB", default=None)
    )
    threads: Annotated[Count | None, Meta(description="Percentage of threads that one device's container may use.")] = (
        None
    )


class Instance(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A MIG instance that exists."""

    uuid: Word
    profile: Annotated[str, Meta(max_length=63, description="The profile, as nvidia-smi spells it: 3g.40gb.")]
    gi: Annotated[int, Meta(ge=0, description="Id of the GPU instance.")]
    ci: Annotated[int, Meta(ge=0, description="Id of the compute instance.")]
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(name="memoryMiB")
    start: Annotated[Count | None, Meta(description="First memory slice of the GPU instance.")] = None
    size: Annotated[Count | None, Meta(description="Memory slices of the GPU instance.")] = None
    offers: Annotated[tuple[Offer, ...], Meta(max_length=8)] = ()
    health: Annotated[Health | None, Meta(description="Only where it differs from the GPU's.")] = None


class Placement(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A GPU instance profile of this GPU, and where it may start."""

    profile: Annotated[str, Meta(max_length=63)]
    profile_id: Annotated[int, Meta(ge=0, description="NVML's id, as nvidia-smi mig -lgip shows it.")]
    slices: Annotated[int, Meta(ge=0, description="Compute slices.")]
    size: Annotated[int, Meta(ge=0, description="Memory slices.")]
    starts: Annotated[Starts, Meta(description="Memory slices it may start at.")] = ()
    free: Annotated[
        Starts | None, Meta(description="Those that are free now; absent where the driver does not tell placements.")
    ] = None


class Mig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """MIG on one GPU that is capable of it."""

    enabled: bool
    placements: Annotated[tuple[Placement, ...], Meta(max_length=32)] = ()
    instances: Annotated[tuple[Instance, ...], Meta(max_length=MAX_INSTANCES)] = ()


class Device(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One physical GPU."""

    uuid: Word
    index: Annotated[int, Meta(ge=0, description="NVML's index.")]
    product: Word
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(name="memoryMiB")
    pci_bus_id: Word
    minor: Annotated[Count | None, Meta(description="The N of /dev/nvidiaN; absent where it could not be asked.")] = (
        None
    )
    numa_node: Count | None = None
    serial: Word | None = None
    compute_capability: Annotated[str, Meta(max_length=16)] = ""
    clique: Annotated[str, Meta(max_length=253, description="NVLink fabric: cluster UUID, a dot, clique id.")] = ""
    mode: Annotated[str, Meta(max_length=32, description="whole, timeSlicing, mps, mig or fractional.")] = ""
    offers: Annotated[tuple[Offer, ...], Meta(max_length=8)] = ()
    mig: Annotated[Mig | None, Meta(description="Absent where the GPU cannot do MIG.")] = None
    health: Health | None = None


class LinkEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What connects two GPUs. Pairs of which nothing is known are left out."""

    a: Annotated[int, Meta(ge=0, description="Index of one GPU, the smaller.")]
    b: Annotated[int, Meta(ge=0, description="Index of the other GPU.")]
    pcie: Annotated[str, Meta(max_length=8, description="Nearest common ancestor: PSB, PIX, PXB, PHB, NODE, SYS.")] = ""
    nvlinks: Annotated[int, Meta(ge=0, description="Active direct NVLinks.")] = 0
    nvswitch: Annotated[int, Meta(ge=0, description="NVLinks that both have into NVSwitches.")] = 0


class ResourceEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An extended resource that the node advertises."""

    name: Word
    devices: Annotated[int, Meta(ge=0, description="Devices advertised, replicas counted.")]
    sharing: Annotated[str, Meta(max_length=32, description="none, time-slicing, mps or fractional.")] = "none"
    enforcement: Enforced = ""
    fail_requests_greater_than_one: bool = False


class HolderEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A container that holds a device, as the kubelet says."""

    device: Annotated[str, Meta(max_length=253, description="A UUID, or a replica of one: UUID::n.")]
    namespace: Word
    pod: Word
    container: Word


class Driver(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Versions of the driver and of the newest CUDA it supports."""

    version: Word = ""
    cuda: Annotated[str, Meta(max_length=32)] = ""


class Summary(Struct, frozen=True, rename="camel"):
    """The node in a line, for kubectl get."""

    gpus: Count
    healthy: Annotated[int, Meta(ge=0, description="GPUs that are handed out.")]
    product: Annotated[str, Meta(max_length=MAX_TEXT)]


class GpuNodeStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the agent found."""

    summary: Summary
    observed_at: Annotated[Time | None, Meta(description="When any of this last changed.")] = None
    driver: Driver = Driver()
    devices: Annotated[tuple[Device, ...], Meta(max_length=MAX_GPUS)] = ()
    links: Annotated[tuple[LinkEntry, ...], Meta(max_length=MAX_GPUS * (MAX_GPUS - 1) // 2)] = ()
    resources: Annotated[tuple[ResourceEntry, ...], Meta(max_length=64)] = ()
    holders: Annotated[tuple[HolderEntry, ...], Meta(max_length=MAX_HOLDERS)] = ()
    problems: Annotated[
        tuple[Text, ...],
        Meta(max_length=MAX_PROBLEMS, description="What was asked for and could not be, one line each."),
    ] = ()


class GpuNode(Struct, frozen=True, rename="camel"):
    """One node's GPUs."""

    metadata: ObjectMeta
    status: GpuNodeStatus
    api_version: str = GPU_NODES.api_version
    kind: str = GPU_NODES.kind


HANDED_OUT = ("Healthy", "Suspect")


def build(
    *,
    node: Node,
    layout: Layout,
    health: Mapping[str, HealthView] | None = None,
    holders: Mapping[DeviceId, HolderView] | None = None,
    problems: Sequence[str] | None = None,
) -> GpuNode:
    """The object for ``node``: equal inputs give equal objects. ``problems`` None: the layout's.

    ``health`` is by UUID of a GPU or MIG instance; who is not in it has no health to tell and counts as healthy.
    Owner and time of observation are the writer's to add.
    """
    views = health or {}
    offers = _offers(layout)
    modes = device_modes(node, layout)
    devices = tuple(_device(gpu, offers, views, modes[gpu.uuid]) for gpu in node.gpus[:MAX_GPUS])
    healthy = sum(device.health is None or device.health.state in HANDED_OUT for device in devices)
    cuda = "" if node.cuda_version == (0, 0) else f"{node.cuda_version[0]}.{node.cuda_version[1]}"
    status = GpuNodeStatus(
        summary=Summary(gpus=len(devices), healthy=healthy, product=_products(node)),
        driver=Driver(version=node.driver_version, cuda=cuda),
        devices=devices,
        links=_links(node),
        resources=tuple(
            ResourceEntry(
                name=resource.name,
                devices=len(resource.devices),
                sharing=resource.sharing.value,
                enforcement=weakest(resource).value,
                fail_requests_greater_than_one=resource.fail_requests_greater_than_one,
            )
            for resource in layout.resources
        ),
        holders=_holders(holders or {}),
        problems=tuple(
            problem[:MAX_TEXT] for problem in (layout.problems if problems is None else problems)[:MAX_PROBLEMS]
        ),
    )
    return GpuNode(metadata=ObjectMeta(name=node.name), status=status)


def owned_by(gpunode: GpuNode, node_uid: str) -> GpuNode:
    """The object as a possession of the Node with that uid: it goes when the Node goes."""
    name = gpunode.metadata.name
    owner = OwnerReference(api_version=NODES.api_version, kind=NODES.kind, name=name, uid=node_uid)
    return msgspec.structs.replace(gpunode, metadata=ObjectMeta(name=name, owner_references=(owner,)))


def observed(gpunode: GpuNode, at_s: float) -> GpuNode:
    """The object with the wall second of its last change."""
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, observed_at=rfc3339(at_s)))


def rfc3339(wall_s: float) -> str:
    """A time as the API writes it, to the second, in UTC."""
    return dt.datetime.fromtimestamp(int(wall_s), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _offers(layout: Layout) -> dict[str, tuple[Offer, ...]]:
    """By physical id: the resources it is advertised under."""
    found: dict[str, list[Offer]] = {}
    for resource in layout.resources:
        groups: dict[str, list[LogicalDevice]] = {}
        for device in resource.devices:
            groups.setdefault(device.physical_id, []).append(device)
        for physical_id, devices in groups.items():
            found.setdefault(physical_id, []).append(_offer(resource, devices))
    return {physical_id: tuple(offers[:8]) for physical_id, offers in found.items()}


def _offer(resource: layout_model.Resource, devices: Sequence[LogicalDevice]) -> Offer:
    share = devices[0].share or ALONE
    limited = share.sharing is not SharingMode.FRACTIONAL
    return Offer(
        resource=resource.name,
        replicas=len(devices),
        enforcement=enforced(devices[0]).value,
        granularity=share.granularity,
        spread=not share.packed,
        memory_mib=share.memory_mib if limited else None,
        threads=share.threads if limited else None,
    )


def _device(
    gpu: Gpu, offers: Mapping[str, tuple[Offer, ...]], views: Mapping[str, HealthView], mode: LayoutMode
) -> Device:
    own = views.get(gpu.uuid)
    major, minor = gpu.compute_capability
    return Device(
        uuid=gpu.uuid,
        index=gpu.index,
        minor=gpu.minor if gpu.minor >= 0 else None,
        product=gpu.product,
        memory_mib=gpu.memory_mib,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=gpu.numa_node,
        serial=gpu.serial,
        compute_capability="" if (major, minor) == (0, 0) else f"{major}.{minor}",
        clique=gpu.clique.label if gpu.clique else "",
        mode=mode.value,
        offers=offers.get(gpu.uuid, ()),
        mig=_mig(gpu, offers, views) if gpu.mig_capable else None,
        health=_health(own),
    )


def _health(view: HealthView | None) -> Health | None:
    if view is None:
        return None
    return Health(
        state=view.state,
        reasons=tuple(reason[:MAX_TEXT] for reason in view.reasons[:32]),
        since=None if view.since_s is None else rfc3339(view.since_s),
    )


def _mig(gpu: Gpu, offers: Mapping[str, tuple[Offer, ...]], views: Mapping[str, HealthView]) -> Mig:
    whole = views.get(gpu.uuid)
    instances = tuple(
        Instance(
            uuid=mig.uuid,
            profile=mig.profile,
            gi=mig.gi_id,
            ci=mig.ci_id,
            memory_mib=mig.memory_mib,
            start=mig.start,
            size=mig.size,
            offers=offers.get(mig.uuid, ()),
            health=None if views.get(mig.uuid) == whole else _health(views.get(mig.uuid)),
        )
        for mig in gpu.mig_instances[:MAX_INSTANCES]
    )
    placements = tuple(
        Placement(
            profile=profile.name,
            profile_id=profile.profile_id,
            slices=profile.slices,
            size=profile.size,
            starts=profile.starts,
            free=free_starts(gpu, profile),
        )
        for profile in gpu.mig_profiles
    )
    return Mig(enabled=gpu.mig_enabled, placements=placements, instances=instances)


def free_starts(gpu: Gpu, profile: MigProfile) -> tuple[int, ...] | None:
    """Where a GPU instance of ``profile`` could be made now, beside those that exist; None where that is not known.

    Memory slices must not overlap, compute slices must suffice, and a profile may be limited in number.
    """
    # Several compute instances may share one GPU instance: it counts once.
    existing: dict[int, MigInstance] = {mig.gi_id: mig for mig in gpu.mig_instances}
    used: set[int] = set()
    for mig in existing.values():
        if mig.start is None or mig.size is None:
            return None
        used.update(range(mig.start, mig.start + mig.size))
    compute = max((each.slices for each in gpu.mig_profiles), default=0) - sum(m.gi_slices for m in existing.values())
    alike = sum(_gi_profile(mig) == profile.name for mig in existing.values())
    if profile.slices > compute or alike >= profile.max_count:
        return ()
    return tuple(start for start in profile.starts if used.isdisjoint(range(start, start + profile.size)))


def _gi_profile(mig: MigInstance) -> str:
    """The GPU instance's profile: a part of one spells its own size before it (``1c.3g.40gb``)."""
    head, _, rest = mig.profile.partition(".")
    return rest if head.endswith("c") else mig.profile


def _links(node: Node) -> tuple[LinkEntry, ...]:
    found = []
    for i, first in enumerate(node.gpus[:MAX_GPUS]):
        for j in range(i + 1, min(len(node.gpus), MAX_GPUS)):
            link = node.links[i][j]
            if link.pcie is None and not link.nvlinks and not link.nvswitch:
                continue
            a, b = sorted((first.index, node.gpus[j].index))
            pcie = "" if link.pcie is None else link.pcie.name
            found.append(LinkEntry(a=a, b=b, pcie=pcie, nvlinks=link.nvlinks, nvswitch=link.nvswitch))
    return tuple(found)


def _holders(holders: Mapping[DeviceId, HolderView]) -> tuple[HolderEntry, ...]:
    entries = (
        HolderEntry(device=device, namespace=holder.namespace, pod=holder.pod, container=holder.container)
        for device, holder in sorted(holders.items())
    )
    return tuple(entries)[:MAX_HOLDERS]


def _products(node: Node) -> str:
    """``NVIDIA A100-SXM4-80GB``, or each model with its number where there are several."""
    counts = Counter(gpu.product for gpu in node.gpus)
    if len(counts) <= 1:
        return next(iter(counts), "")
    return ", ".join(f"{count} x {product}" for product, count in counts.items())[:MAX_TEXT]
