"""The GpuNode object: everything about one node's GPUs, for people, for the controller, and for other tools.

    NodeInventory, Layout, health, holders -> build() -> GpuNode -> owned_by(), observed() -> publisher

One object for each node, cluster-scoped, named as the node, owned by it. The agent writes all of it but the grants of
repairs, which are the controller's; ``status`` says what is, a GpuLayout what should be. The status is declared in
``inventory.api.gpunode``.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from inventory import __version__
from inventory.api.gpunode import (
    HANDED_OUT,
    KIND,
    MAX_FAULT_COUNTS,
    MAX_GPUS,
    MAX_HOLDERS,
    MAX_INSTANCES,
    MAX_PROBLEMS,
    MAX_TEXT,
    MAX_WITHHELD,
    PLURAL,
    ApplicationFaults,
    Device,
    Driver,
    GpuNodeStatus,
    Health,
    HolderEntry,
    Instance,
    LinkEntry,
    Mig,
    Offer,
    OrderAnswer,
    Placement,
    RepairEntry,
    ResourceEntry,
    Summary,
    WithheldEntry,
)
from inventory.api.names import GROUP, VERSION
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigProfile, NodeInventory
from inventory.layout import layout as layout_model
from inventory.layout.entries import LayoutMode
from inventory.layout.layout import Layout, LogicalDevice
from inventory.layout.offers import ALONE, device_modes, enforced, weakest
from inventory.layout.sharing import SharingMode
from kube.objects import ObjectMeta, OwnerReference
from kube.resources import NODES, Resource

GPU_NODES = Resource(GROUP, VERSION, PLURAL, KIND)


_ON_PROBATION: Final = "Probation"
"""The state of a repair in which the verdict alone keeps the GPU out."""


class HealthView(Struct, frozen=True):
    """The health of one device, as ``build`` takes it. ``since_s`` is the wall second of the last change of state;
    ``until`` says what ends a state in which the device is not handed out, ``unrepaired`` why nothing repairs it.
    ``reset_due``: a reset is due at a moment at which nobody needs the GPU.
    """

    state: str
    reasons: tuple[str, ...] = ()
    since_s: float | None = None
    until: str = ""
    unrepaired: str = ""
    reset_due: bool = False


class HolderView(Protocol):
    """The container that holds a device."""

    @property
    def namespace(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def container(self) -> str: ...


class GpuNode(Struct, frozen=True, rename="camel"):
    """One node's GPUs."""

    metadata: ObjectMeta
    status: GpuNodeStatus
    api_version: str = GPU_NODES.api_version
    kind: str = GPU_NODES.kind


def build(  # noqa: PLR0913
    *,
    node: NodeInventory,
    layout: Layout,
    health: Mapping[str, HealthView] | None = None,
    holders: Mapping[DeviceId, HolderView] | None = None,
    problems: Sequence[str] | None = None,
    by_claim: Collection[GpuUuid] = (),
    withheld: Mapping[str, str] | None = None,
    reset_mode: str = "",
    repairs: Sequence[RepairEntry] = (),
    order_answers: Sequence[OrderAnswer] = (),
    application_faults: Sequence[ApplicationFaults] = (),
) -> GpuNode:
    """The object for ``node``: equal inputs give equal objects. ``problems`` None: the layout's.

    ``health`` and ``withheld`` (why no new container gets it, health aside) are by UUID of a GPU or MIG instance; a
    device that is not in them counts as healthy, and as given out.
    Owner and time of observation are the writer's to add.
    """
    views = health or {}
    offers = _offers(layout)
    modes = device_modes(node, layout, by_claim)
    states = {repair.gpu: repair.state for repair in repairs}
    devices = tuple(
        _device(gpu, offers, views, modes[gpu.uuid], states.get(gpu.uuid, "")) for gpu in node.gpus[:MAX_GPUS]
    )
    in_repair = {repair.gpu for repair in repairs if repair.state != _ON_PROBATION}
    healthy = sum(device.healthy and device.uuid not in in_repair for device in devices)
    cuda = "" if node.cuda_version == (0, 0) else f"{node.cuda_version[0]}.{node.cuda_version[1]}"
    status = GpuNodeStatus(
        summary=Summary(gpus=len(devices), healthy=healthy, product=_products(node)),
        agent_version=__version__,
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
        withheld=tuple(
            WithheldEntry(device=device, why=why[:MAX_TEXT])
            for device, why in sorted((withheld or {}).items())[:MAX_WITHHELD]
        ),
        problems=tuple(
            problem[:MAX_TEXT] for problem in (layout.problems if problems is None else problems)[:MAX_PROBLEMS]
        ),
        reset_mode=reset_mode,
        repairs=tuple(repairs[:MAX_GPUS]),
        order_answers=tuple(order_answers[:MAX_GPUS]),
        application_faults=tuple(application_faults[:MAX_FAULT_COUNTS]),
    )
    return GpuNode(metadata=ObjectMeta(name=node.name), status=status)


def owned_by(gpunode: GpuNode, node_uid: str) -> GpuNode:
    """The object as a possession of the Node with that uid: it goes when the Node goes."""
    name = gpunode.metadata.name
    owner = OwnerReference(api_version=NODES.api_version, kind=NODES.kind, name=name, uid=node_uid)
    return msgspec.structs.replace(gpunode, metadata=ObjectMeta(name=name, owner_references=(owner,)))


def observed(gpunode: GpuNode, at_s: float) -> GpuNode:
    """The object with the wall second of its last change."""
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, observed_at=moment(at_s)))


def moment(wall_s: float) -> dt.datetime:
    """``wall_s`` (seconds since the epoch) as the API writes a time: in UTC, to the second."""
    return dt.datetime.fromtimestamp(int(wall_s), dt.UTC)


def _offers(layout: Layout) -> dict[str, tuple[Offer, ...]]:
    """The resources that each device is advertised under, by physical id."""
    by_device: dict[str, list[Offer]] = {}
    for resource in layout.resources:
        groups: dict[str, list[LogicalDevice]] = {}
        for device in resource.devices:
            groups.setdefault(device.physical_id, []).append(device)
        for physical_id, devices in groups.items():
            by_device.setdefault(physical_id, []).append(_offer(resource, devices))
    return {physical_id: tuple(offers[:8]) for physical_id, offers in by_device.items()}


def _offer(resource: layout_model.Resource, devices: Sequence[LogicalDevice]) -> Offer:
    share = devices[0].share or ALONE
    limited = share.sharing is not SharingMode.FRACTIONAL
    return Offer(
        resource=resource.name,
        replicas=len(devices),
        enforcement=enforced(devices[0]).value,
        granularity=share.granularity,
        spread=not share.packed,
        daemon=share.together[0] if share.together and not limited else "",
        memory_mib=share.memory_mib if limited else None,
        threads=share.threads if limited else None,
    )


def _device(
    gpu: Gpu, offers: Mapping[str, tuple[Offer, ...]], views: Mapping[str, HealthView], mode: LayoutMode, repair: str
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
        health=_health(own, repair),
    )


def _health(view: HealthView | None, repair: str = "") -> Health | None:
    """The health of a device; ``repair`` is the state of its GPU's. Instances have their GPU's alone."""
    if view is None:
        return Health(state=HANDED_OUT[0], repair=repair) if repair else None
    return Health(
        state=view.state,
        reasons=tuple(reason[:MAX_TEXT] for reason in view.reasons[:32]),
        since=None if view.since_s is None else moment(view.since_s),
        until=view.until[:MAX_TEXT],
        repair=repair,
        reset_due=view.reset_due,
        unrepaired=view.unrepaired[:MAX_TEXT],
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
    """The places where a GPU instance of ``profile`` could be made now, beside those that exist; None where the places
    are not known.

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


def _links(node: NodeInventory) -> tuple[LinkEntry, ...]:
    links = []
    for i, first in enumerate(node.gpus[:MAX_GPUS]):
        for j in range(i + 1, min(len(node.gpus), MAX_GPUS)):
            link = node.links[i][j]
            if link.pcie is None and not link.nvlinks and not link.nvswitch:
                continue
            a, b = sorted((first.index, node.gpus[j].index))
            pcie = "" if link.pcie is None else link.pcie.name
            links.append(LinkEntry(a=a, b=b, pcie=pcie, nvlinks=link.nvlinks, nvswitch=link.nvswitch))
    return tuple(links)


def _holders(holders: Mapping[DeviceId, HolderView]) -> tuple[HolderEntry, ...]:
    entries = (
        HolderEntry(device=device, namespace=holder.namespace, pod=holder.pod, container=holder.container)
        for device, holder in sorted(holders.items())
    )
    return tuple(entries)[:MAX_HOLDERS]


def _products(node: NodeInventory) -> str:
    """``NVIDIA A100-SXM4-80GB``, or each model with its number where there are several."""
    counts = Counter(gpu.product for gpu in node.gpus)
    if len(counts) <= 1:
        return next(iter(counts), "")
    return ", ".join(f"{count} x {product}" for product, count in counts.items())[:MAX_TEXT]
