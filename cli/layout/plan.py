"""The changes that a layout would make on one node, and the pods in their way: the agent's own planning, on a node's
GpuNode.

    NodeInventory, modes now, layout, who holds what -> planned() -> NodePlan
    GpuNode JSON -> seen() -> Seen (the first three of these, as the node's agent published them)
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from inventory.api.gpunode import Device, GpuNodeStatus
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
    unknown_links,
)
from inventory.layout.change import in_the_way, wanted_modes
from inventory.layout.entries import (
    Dra,
    Enforcement,
    Fractional,
    GpuLayoutSpec,
    GpuMode,
    LayoutMode,
    Mig,
    Mps,
    MpsClient,
    Resolved,
    TimeSliced,
    WhenBusy,
    Whole,
    enforcement,
    mode_word,
    resolve,
)
from inventory.layout.layout import DEFAULT_GPU_RESOURCE, mig_resource_name, physical_id, plan, shared_name
from inventory.layout.sharing import LayoutSpec, SharingMode
from inventory.mig import plan as migplan
from inventory.mig.parts import Part
from inventory.mig.plan import Compute, DoesNotFit, Existing, InTheWay
from inventory.words.catalog import plural


class GpuChange(Struct, frozen=True, rename="camel"):
    """One GPU whose offer changes. ``disturbs`` are the pods in the way, ``when_busy`` is the layout's action then."""

    gpu: int
    uuid: str
    before: str
    after: str
    enforcement: str
    disturbs: tuple[str, ...] = ()
    when_busy: WhenBusy = WhenBusy.REFUSE


class NodePlan(Struct, frozen=True):
    """The changes on one node. ``resources`` are devices by resource name, before and after. With ``problems`` nothing
    is applied.
    """

    node: str
    changes: tuple[GpuChange, ...] = ()
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    problems: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        return bool(self.problems) or any(
            change.disturbs and change.when_busy is WhenBusy.REFUSE for change in self.changes
        )


class Seen(Struct, frozen=True):
    """A node as its GpuNode shows it. ``held`` names the pods by device."""

    node: NodeInventory
    modes: Mapping[GpuUuid, GpuMode] = {}
    held: Mapping[DeviceId, str] = {}


PLAIN = LayoutSpec()


def planned(seen: Seen, layout: GpuLayoutSpec) -> NodePlan:
    """The changes that ``layout`` would make on the node."""
    node, name = seen.node, seen.node.name
    resolved = resolve(node, layout, seen.modes)
    before = _counts(node, seen.modes)
    if resolved.problems:
        return NodePlan(name, before=before, after=before, problems=resolved.problems)
    wanted = wanted_modes(node, seen.modes, resolved.modes)
    blocked = {
        blocking.gpu: blocking.devices
        for blocking in in_the_way(node, PLAIN, seen.modes, wanted, resolved.when_busy, seen.held)
    }
    changes, problems = [], []
    cut = list(node.gpus)
    for place, gpu in enumerate(node.gpus):
        mode = wanted.get(gpu.uuid)
        held = {*blocked.get(gpu.uuid, ())}
        if isinstance(mode, Mig):
            migs = _migs_in_the_way(gpu, mode, seen.held)
            if isinstance(migs, str):
                problems.append(f"{name}: GPU {gpu.index}: {migs}")
            else:
                held |= migs
                cut[place] = _as_cut(gpu, mode)
        elif mode is not None:
            cut[place] = msgspec.structs.replace(gpu, mig_enabled=False, mig_instances=())
        if _described(gpu, seen.modes.get(gpu.uuid)) != _described(cut[place], mode):
            changes.append(_change(gpu, cut[place], seen, mode, resolved, held))
    after = _counts(msgspec.structs.replace(node, gpus=tuple(cut)), wanted)
    return NodePlan(name, tuple(changes), before, after, tuple(problems))


def _change(gpu: Gpu, cut: Gpu, seen: Seen, mode: GpuMode | None, resolved: Resolved, held: set[DeviceId]) -> GpuChange:
    return GpuChange(
        gpu=gpu.index,
        uuid=gpu.uuid,
        before=_described(gpu, seen.modes.get(gpu.uuid)),
        after=_described(cut, mode),
        enforcement=(Enforcement.HARDWARE if mode is None else enforcement(mode)).value,
        disturbs=tuple(sorted({seen.held[device] for device in held})),
        when_busy=resolved.when_busy.get(gpu.uuid, WhenBusy.REFUSE),
    )


def _counts(node: NodeInventory, modes: Mapping[GpuUuid, GpuMode]) -> dict[str, int]:
    return {str(resource.name): len(resource.devices) for resource in plan(node, PLAIN, modes).resources}


def _migs_in_the_way(gpu: Gpu, mode: Mig, held: Mapping[DeviceId, str]) -> set[DeviceId] | str:
    """The held instances that must go, by the planner that cuts; a sentence where the profiles do not fit together."""
    if not gpu.mig_profiles:
        return set()
    by_physical: dict[str, list[DeviceId]] = {}
    for device in held:
        by_physical.setdefault(physical_id(device), []).append(device)
    slices = {profile.name: profile.slices for profile in gpu.mig_profiles}
    existing = [
        Existing(
            mig.gi_id,
            mig.profile,
            mig.start,
            mig.size,
            (Compute(mig.ci_id, Part(0, slices[mig.profile]), busy=mig.uuid in by_physical),),
        )
        for mig in gpu.mig_instances
        if mig.start is not None and mig.size is not None and mig.profile in slices
    ]
    found = migplan.plan(gpu.mig_profiles, existing, mode.profiles)
    if isinstance(found, DoesNotFit):
        return found.why
    going = {instance.gi_id for instance in found.blocking} if isinstance(found, InTheWay) else set()
    return {device for mig in gpu.mig_instances if mig.gi_id in going for device in by_physical.get(mig.uuid, ())}


def _as_cut(gpu: Gpu, mode: Mig) -> Gpu:
    """The GPU with the wanted instances, as far as names and numbers go."""
    instances = tuple(
        MigInstance(MigUuid(f"{gpu.uuid}/{n}"), n, n, 0, profile, 1, 1, 0, 0) for n, profile in enumerate(mode.profiles)
    )
    return msgspec.structs.replace(gpu, mig_enabled=True, mig_instances=instances)


def _described(gpu: Gpu, mode: GpuMode | None) -> str:
    """A GPU's mode in a few words."""
    if isinstance(mode, TimeSliced):
        return f"timeSlicing x {mode.replicas}"
    if isinstance(mode, Mps):
        if mode.equal:
            return f"mps x {len(mode.clients)}"
        return "mps " + ", ".join(
            f"{client.memory_mib or '-'} MiB/{client.threads or '-'} %" for client in mode.clients
        )
    if isinstance(mode, Fractional):
        shared = f", one daemon for {plural(len(mode.together), 'GPU')}" if mode.together else ""
        return f"fractional by {mode.granularity}{shared}"
    if isinstance(mode, Dra):
        return LayoutMode.DRA.value  # the GPU's claims decide whether it is cut
    if gpu.mig_enabled:
        profiles = Counter(mig.profile for mig in gpu.mig_instances)
        shown = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items())) or "no instance"
        return f"mig {shown}" + (f", each x {mode.replicas}" if isinstance(mode, Mig) and mode.replicas > 1 else "")
    return LayoutMode.WHOLE.value if mode is None else mode_word(mode).value


# -- from GpuNode ------------------------------------------------------------------------------------------------


class _Object(Struct):
    metadata: dict[str, Any]
    status: GpuNodeStatus


_decoder = msgspec.json.Decoder(_Object)


def seen(raw: bytes) -> Seen:
    """Decode a GpuNode off the wire. Raises msgspec.MsgspecError."""
    found = _decoder.decode(raw)
    return seen_of(str(found.metadata["name"]), found.status)


def seen_of(name: str, status: GpuNodeStatus) -> Seen:
    gpus = tuple(_gpu(device) for device in status.devices)
    major, _, minor = status.driver.cuda.partition(".")
    node = NodeInventory(
        name=NodeName(name),
        driver_version=status.driver.version,
        cuda_version=(int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0),
        gpus=gpus,
        links=unknown_links(len(gpus)),
    )
    together: dict[str, tuple[GpuUuid, ...]] = {}
    for gpu in status.devices:
        for daemon in {offer.daemon for offer in gpu.offers if offer.daemon}:
            together[daemon] = (*together.get(daemon, ()), GpuUuid(gpu.uuid))
    modes = {GpuUuid(gpu.uuid): mode for gpu in status.devices if (mode := _mode(gpu, together)) is not None}
    held = {DeviceId(holder.device): holder.pod_key for holder in status.holders}
    return Seen(node, modes, held)


def _gpu(device: Device) -> Gpu:
    major, _, minor = (device.compute_capability or "0.0").partition(".")
    mig = device.mig
    return Gpu(
        uuid=GpuUuid(device.uuid),
        index=device.index,
        minor=-1 if device.minor is None else device.minor,
        product=device.product,
        pci_bus_id=device.pci_bus_id,
        numa_node=device.numa_node,
        memory_mib=device.memory_mib,
        compute_capability=(int(major), int(minor or 0)),
        mig_capable=mig is not None,
        mig_enabled=mig is not None and mig.enabled,
        # The number of a profile's places bounds how many fit; the exact search looks at the places.
        mig_profiles=tuple(
            MigProfile(
                placement.profile,
                placement.profile_id,
                placement.slices,
                placement.size,
                placement.starts,
                max(1, len(placement.starts)),
                0,
                0,
            )
            for placement in (mig.placements if mig is not None else ())
        ),
        mig_instances=tuple(
            MigInstance(
                uuid=MigUuid(one.uuid),
                index=index,
                gi_id=one.gi,
                ci_id=one.ci,
                profile=one.profile,
                gi_slices=1,
                ci_slices=1 if one.offers else 0,
                memory_mib=one.memory_mib,
                multiprocessors=0,
                start=one.start,
                size=one.size,
            )
            for index, one in enumerate(mig.instances if mig is not None else ())
        ),
    )


def _mode(device: Device, together: Mapping[str, tuple[GpuUuid, ...]]) -> GpuMode | None:
    """The mode that the offers show; None for a GPU that is offered as without a layout."""
    offers = device.offers
    if device.mode == LayoutMode.MIG:
        return _mig_mode(device)
    if device.mode == LayoutMode.DRA:
        return Dra()  # no offer tells of shares
    if not offers or device.mode in (LayoutMode.WHOLE, ""):
        named = {ResourceName(offer.resource) for offer in offers} - {DEFAULT_GPU_RESOURCE}
        return Whole(named.pop()) if named else None
    rename, resource = _naming(ResourceName(offers[0].resource), DEFAULT_GPU_RESOURCE)
    if device.mode == LayoutMode.TIME_SLICING:
        return TimeSliced(offers[0].replicas, rename, resource)
    if device.mode == LayoutMode.FRACTIONAL:
        return Fractional(offers[0].granularity, together=together.get(offers[0].daemon, ()))
    clients = tuple(
        MpsClient(offer.memory_mib, offer.threads, ResourceName(offer.resource))
        for offer in offers
        for _ in range(offer.replicas)
    )
    if all(client.memory_mib is None and client.threads is None for client in clients):
        return Mps((MpsClient(),) * len(clients), equal=True, rename=rename, resource=resource)
    return Mps(clients, equal=False)


def _mig_mode(device: Device) -> GpuMode | None:
    instances = device.mig.instances if device.mig is not None else ()
    offers = [instance.offers[0] for instance in instances if instance.offers]
    if not offers:
        return None
    replicas, word = offers[0].replicas, offers[0].enforcement
    sharing = SharingMode.MPS if word == Enforcement.DAEMON else SharingMode.TIME_SLICING
    rename, resource = _naming(ResourceName(offers[0].resource), mig_resource_name(instances[0].profile))
    return Mig(
        tuple(instance.profile for instance in instances),
        replicas,
        sharing if replicas > 1 else SharingMode.NONE,
        rename=rename if replicas > 1 else True,
        resource=None if replicas == 1 else resource,
    )


def _naming(name: ResourceName, plain: ResourceName) -> tuple[bool, ResourceName | None]:
    """The fields ``rename`` and ``resource`` of an entry that gives that name."""
    if name in (plain, shared_name(plain)):
        return name != plain, None
    return True, name
